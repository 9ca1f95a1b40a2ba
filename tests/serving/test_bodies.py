"""Bodies and answers of any size and shape: the event loop goes on, memory stays, and bytes are those of orjson."""

import asyncio
import concurrent.futures
import contextlib
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
import served
from raw_http import resident_mib
from served import SHAPES, StandIn, running, stand_in_model

from bert_jax.serving import bodies
from bert_jax.serving.batching import Queue, Submission, blank_row
from bert_jax.serving.bodies import SmallestFirst, ValueCounts, count_values, encode_json, json_list, most_counts
from bert_jax.serving.refusals import Refusal
from bert_jax.serving.settings import ServerSettings

ROOT = Path(__file__).parents[2]
NO_LIMIT = ValueCounts(1 << 40, 1 << 40, 1 << 40)


def random_json(rng, depth=3):
    kinds = [
        lambda: rng.choice([0, -1.5e300, None, True, 12345678901]),
        lambda: "".join(rng.choices('a"\\[]{},:\né€', k=9)),
    ]
    if depth:
        kinds += [
            lambda: [random_json(rng, depth - 1) for _ in range(rng.randint(0, 5))],
            lambda: {json.dumps(i) * i: random_json(rng, depth - 1) for i in range(rng.randint(0, 4))},
        ]
    return rng.choice(kinds)()


def counts_of(value):
    """Containers, strings with keys, and commas, of a parsed document."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = np.array([isinstance(value, dict | list), isinstance(value, str), max(0, len(items) - 1)])
    found[1] += len(value) if isinstance(value, dict) else 0
    return sum(map(counts_of, items), found)


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 14])
def test_values_are_counted_without_a_parser(monkeypatch, block):
    monkeypatch.setattr(bodies, "_BLOCK", block)
    rng = random.Random(block)
    for _ in range(300):
        document = random_json(rng)
        containers, strings, commas = counts_of(document).tolist()
        for data in (orjson.dumps(document), json.dumps(document, indent=1).encode()):
            assert count_values(data, NO_LIMIT) == ValueCounts(commas + containers, containers, strings), data


def test_limits_leave_room_for_every_request_within_the_others():
    most, settings = most_counts(ServerSettings()), ServerSettings()
    ids = [[30_000] * (settings.max_request_tokens // settings.max_texts)] * settings.max_texts
    documents = [{"text": 'a "b", [c]', "title": "d", "tags": ["e", "f"], "meta": {"year": 1}}] * settings.max_texts
    for body in ({"input": ids}, {"documents": documents}, {"inputs": [["a", "b"]] * settings.max_texts}):
        count_values(orjson.dumps(body), most)
    for item, what in (
        ("[1]", "lists and objects"),
        ('{"a":1}', "lists and objects"),
        ('""', "strings"),
        ("1", "values"),
    ):
        data = f'{{"inputs": [{",".join([item] * 600_000)}]}}'.encode()
        with pytest.raises(Refusal, match=f"expected a body of at most [0-9]+ {what}, found more"):
            count_values(data, most)


@pytest.mark.parametrize("block", [1, 5, 1 << 14])
def test_lists_in_blocks_are_the_bytes_of_orjson(monkeypatch, block):
    monkeypatch.setattr(bodies, "_BLOCK", block)
    written = []
    monkeypatch.setattr(bodies, "encode_json", lambda value: written.append(encode_json(value)) or written[-1])
    vectors = np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32)
    embeddings = [{"index": 1, "embedding": vector} for vector in vectors[:7]]
    classes = [[{"score": np.float32(1 / 3), "label": "é"}] * 9]
    for items, size in ((vectors[:7], 5), (vectors[:0], 500), (vectors[0], 1), (embeddings, 500), (classes, 18),
                        ([], 1), ([[], {}], 1), (["a" * 999], 1), (vectors, 500)):  # fmt: skip
        expected = encode_json({"data": items})
        assert encode_json({"data": json_list(items, size)}) == expected
        assert encode_json({"data": json_list(iter(items), size)}) == expected
    if block == 1 << 14:
        assert max(map(len, written)) < 1 << 19


def test_the_smallest_body_is_next_and_one_that_gives_up_does_not_block_the_others():
    order, gate = [], threading.Event()

    async def main():
        turns = SmallestFirst("test")
        first = asyncio.create_task(turns.run(9, lambda: gate.wait(10)))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(turns.run(size, lambda size=size: order.append(size))) for size in (5, 1, 3, 2)]
        await asyncio.sleep(0.05)
        others[1].cancel()
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.wait([first, *others], timeout=10)
        last = asyncio.create_task(turns.run(7, lambda: order.append(7)))
        await asyncio.wait_for(last, 10)
        turns.close()

    asyncio.run(main())
    assert order == [2, 3, 5, 7]


def submission(sizes):
    """A request with rows of these sizes."""
    return Submission([blank_row(size) for size in sizes], None, 0.0)


@pytest.mark.slow
def test_no_body_holds_the_event_loop_or_leaves_memory(models, tmp_path, monkeypatch):
    """Two to eight bodies of 2 MB at a time, of every kind that is not text; /health took 2.5 s for some."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.attackers import hostile_bodies

    kinds = [(path, body) for path, body in hostile_bodies(texts=False) if path not in ("/embed", "/predict")]
    waits, statuses, stop = [], set(), threading.Event()

    def health(address):
        with httpx.Client(base_url=address) as client:
            while not stop.wait(0.01):
                started = time.perf_counter()
                assert client.get("/health", timeout=30).status_code == 200
                waits.append(time.perf_counter() - started)

    def send(address, path, body):
        statuses.add(httpx.post(address + path, content=body, timeout=60).status_code)

    words = [str(models["embedder"]), "--name", "plain", "--quiet"]
    with served.process(tmp_path / "log", *words) as process, concurrent.futures.ThreadPoolExecutor(8) as pool:
        watch = threading.Thread(target=health, args=(process.address,))
        watch.start()
        sizes = []
        for path, body in [kinds[0], *kinds]:
            list(pool.map(lambda one: send(process.address, *one), [(path, body)] * 8))
            sizes.append(resident_mib(process.popen.pid) if sys.platform == "linux" else 0)
        stop.set()
        watch.join()
        assert not process.events("error")
    waits.sort()
    print(f"{len(kinds)} kinds, {statuses}, health {waits[len(waits) // 2]:.4f} {waits[-3:]}, {sizes} MB")
    assert len(kinds) > 20 and statuses <= {200, 400, 404, 413, 422, 424, 429} and {400, 413} <= statuses
    assert waits[-1] < 1.0
    assert sizes[-1] < sizes[0] + 100


def test_an_error_does_not_repeat_a_huge_value(tiny_tokenizer):
    values = ["x" * 500_000, [1] * 200_000, {"a": "b" * 500_000}, 10**18]
    with running([stand_in_model(tiny_tokenizer, StandIn())]) as address:
        for field in ("inputs", "model", "truncate", "prompt_name", "dimensions", "truncation_direction"):
            for value in values[field == "inputs" :]:
                answer = httpx.post(f"{address}/embed", json={"inputs": "a dog"} | {field: value})
                assert answer.status_code in (404, 422) and len(answer.content) < 1000, (field, answer.text[:200])
        for path in ("/v1/embeddings", "/rerank", "/v2/models/sleeper/infer", f"/v2/models/{'x' * 20_000}/infer"):
            answer = httpx.post(address + path, json={"input": "a", "model": values[0], "inputs": values[1], "id": "a"})
            assert 400 <= answer.status_code < 430 and len(answer.content) < 1000, answer.text[:200]


def test_answers_that_nobody_reads_are_given_up_the_oldest_first(tiny_tokenizer):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a dog"]}
    body = json.dumps({"id": "x" * 6_000_000, "inputs": [tensor]}).encode()
    head = b"POST /v2/models/sleeper/infer HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    limits = {"max_body_bytes": 8_000_000, "max_buffered_bytes": 20_000_000}
    with running([stand_in_model(tiny_tokenizer, StandIn())], **limits) as address, contextlib.ExitStack() as stack:
        port = int(address.rpartition(":")[2])
        silent = []
        for _ in range(6):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", port))
            connection.sendall(head + body)
            assert connection.recv(12) == b"HTTP/1.1 200"
            silent.append(connection)
        whole = httpx.post(f"{address}/v2/models/sleeper/infer", content=body, timeout=20)
        assert whole.status_code == 200 and len(whole.content) > 6_000_000

        def received(connection):
            size = 0
            with contextlib.suppress(ConnectionError):
                while data := connection.recv(1 << 22):
                    size += len(data)
                    if b'"id":' in data[:200] and size > 6_000_000:
                        break
                    if data.endswith(b'x"}'):
                        break
            return size

        sizes = [received(connection) for connection in silent]
        assert sizes[0] < 6_000_000 < sizes[-1], sizes


@pytest.mark.slow
def test_masks_are_counted_before_there_is_a_row_for_each(server):
    def infer(texts, **parameters):
        tensor = {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
        body = {"inputs": [tensor], "parameters": parameters}
        return httpx.post(f"{server.address}/v2/models/masks/infer", json=body, timeout=60)

    assert "expected at most 131072 tokens" in infer(["[MASK] " * 28] * 300).json()["error"]
    assert "expected at most 2048 texts, found 2050" in infer(["[MASK] [MASK]"] * 1025).json()["error"]
    many = infer(["[MASK] " + "a " * 29] * 1000, top_k=1000)
    assert many.status_code == 413 and many.json()["error"].startswith("top_k: expected at most 4194304 tokens")
    assert len(infer(["a [MASK]"] * 40, top_k=3).json()["outputs"][0]["data"]) == 40


def test_the_first_texts_of_a_request_run_before_the_later_ones_of_long_requests():
    queue = Queue(SHAPES)
    long = submission([10] * 1000)
    queue.add(long)
    for _ in range(20):
        queue.take(0.0)
    queue.add(short := submission([10, 12]))
    taken = [queue.take(0.0) for _ in range(2)]
    assert {item.submission for batch in taken for item in batch.rows} >= {short} and short.waiting == 0
    while (batch := queue.take(1.0)) is not None:
        assert batch.rows
        queue.add(submission([10] * 4)) if long.waiting else None  # as many as the device can do
    assert long.waiting == 0 and queue.tokens == 0  # one of four batches is of the oldest


def test_the_expected_wait_of_a_short_request_leaves_out_the_later_texts_of_long_ones():
    queue = Queue(SHAPES)
    queue.add(long := submission([10] * 1000))
    assert queue.tokens_before(10) == 0 and queue.tokens_before(300) == 320 and queue.tokens_before(10_000) == 10_000
    queue.take(0.0)
    assert queue.tokens_before(300) == 280
    queue.drop(long)
    assert queue.tokens_before(10_000) == queue.tokens == 0 and queue.take(0.0) is None
