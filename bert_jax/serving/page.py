"""The page at `/`, for sending example requests to each route by hand. It loads nothing from other hosts."""

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bert-jax serve</title>
<style>
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
  body { max-width: 56rem; margin: 0 auto; padding: 1rem; }
  h1 { font-size: 1.4rem; }
  label { display: block; margin: .8rem 0 .2rem; font-weight: 600; }
  select, input, textarea, button { font: inherit; box-sizing: border-box; padding: .4rem; }
  select, input, textarea { width: 100%; }
  textarea { min-height: 11rem; font-family: ui-monospace, monospace; font-size: .9rem; }
  button { margin-top: .8rem; padding: .5rem 1.5rem; }
  pre { overflow: auto; max-height: 28rem; padding: .8rem; border: 1px solid #8886; border-radius: .3rem; }
  table { border-collapse: collapse; margin-top: .8rem; }
  td, th { border: 1px solid #8886; padding: .2rem .6rem; text-align: left; }
</style>
</head>
<body>
<h1>bert-jax serve</h1>
<p>Choose a route, edit the example, send it. <a href="openapi.json">openapi.json</a> describes all routes,
<a href="metrics">metrics</a> is for Prometheus.</p>
<label for="route">Route</label><select id="route"></select>
<label for="key">API key, if the server has one</label><input id="key" type="password" autocomplete="off">
<div id="editor"><label for="body">Request</label><textarea id="body" spellcheck="false"></textarea></div>
<button id="send">Send</button>
<p id="status" role="status"></p>
<div id="table"></div>
<pre id="answer" hidden></pre>
<script>
"use strict";
const $ = (id) => document.getElementById(id);
const routes = [];

function cosine(a, b) {
  let ab = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; i++) { ab += a[i] * b[i]; aa += a[i] * a[i]; bb += b[i] * b[i]; }
  return ab / Math.sqrt(aa * bb || 1);
}

function table(header, rows) {
  const made = document.createElement("table");
  for (const [number, row] of [header, ...rows].entries()) {
    const line = made.insertRow();
    for (const cell of row) {
      const box = document.createElement(number ? "td" : "th");
      box.textContent = cell;
      line.append(box);
    }
  }
  $("table").append(made);
}

function summarize(answer) {
  const data = Array.isArray(answer) ? answer : answer.data;
  if (!Array.isArray(data) || !data.length) return;
  const vectors = data.map((item) => (Array.isArray(item) ? item : item.embedding));
  if (vectors.every((v) => Array.isArray(v) && typeof v[0] === "number")) {
    const names = vectors.map((_, i) => String(i));
    const rows = vectors.slice(0, 20).map((a, i) => [i, ...vectors.map((b) => cosine(a, b).toFixed(3))]);
    table(["cosine", ...names], rows);
  } else if (data[0].label !== undefined) {
    table(["class", "score"], data.map((item) => [item.label, item.score.toFixed(4)]));
  } else if (data[0].score !== undefined) {
    table(["text", "relevance"], data.map((item) => [item.index, item.score.toFixed(4)]));
  }
}

function choose() {
  const route = routes[$("route").value];
  $("editor").hidden = route.method === "get";
  $("body").value = route.example === undefined ? "" : JSON.stringify(route.example, null, 2);
}

async function send() {
  const route = routes[$("route").value], headers = {};
  if ($("key").value) headers.authorization = "Bearer " + $("key").value;
  const options = {method: route.method.toUpperCase(), headers};
  if (route.method === "post") { headers["content-type"] = "application/json"; options.body = $("body").value; }
  $("table").replaceChildren();
  $("send").disabled = true;
  const started = performance.now();
  try {
    const response = await fetch(route.path.slice(1), options);
    const text = await response.text();
    $("status").textContent = `${response.status} in ${(performance.now() - started).toFixed(0)} ms`;
    let answer = text;
    try { answer = JSON.parse(text); if (response.ok) summarize(answer); } catch { /* shown as it is */ }
    const shown = typeof answer === "string" ? answer : JSON.stringify(answer, null, 1);
    $("answer").textContent = shown.length > 20000 ? shown.slice(0, 20000) + " ..." : shown;
    $("answer").hidden = false;
  } catch (error) {
    $("status").textContent = String(error);
  } finally {
    $("send").disabled = false;
  }
}

async function start() {
  const described = await (await fetch("openapi.json")).json();
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const example = route.requestBody?.content["application/json"].example;
      const option = new Option(`${method.toUpperCase()} ${path}: ${route.summary}`, String(routes.length));
      routes.push({method, path, example});
      $("route").append(option);
    }
  }
  const first = routes.findIndex((route) => route.method === "post");
  $("route").value = String(Math.max(0, first));
  $("route").addEventListener("change", choose);
  $("send").addEventListener("click", send);
  choose();
}
start();
</script>
</body>
</html>
"""
