"""The style sheet of reports, for light and dark screens and for paper."""

SHADES = 20  # CSS classes s1 to s20 of cells, from lightly to fully shaded

_SHADES = "\n".join(f".s{i} {{ background: rgb(var(--hue) / {65 * i / SHADES:.0f}%) }}" for i in range(1, SHADES + 1))
CSS = f"""
:root {{ color-scheme: light dark; --ink: #1d1d1f; --paper: #fff; --faint: #66666c; --line: #d8d8de; --band: #f5f5f8;
  --hue: 38 103 196; --good: #1a7f37; --bad: #c62828 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8ea; --paper: #161618; --faint: #a0a0a8; --line: #3a3a40; --band: #212125; --hue: 90 155 255;
    --good: #57c97a; --bad: #ff7b72 }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 76rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif }}
h1 {{ font-size: 1.6rem; margin: 0 0 .3rem }}
h2 {{ font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .6rem; border-top: 1px solid var(--line) }}
h3 {{ font-size: 1rem; margin: 1.4rem 0 .3rem }}
p {{ max-width: 46rem; margin: .4rem 0 }}
p.note, footer, figcaption {{ color: var(--faint) }}
nav a {{ margin-right: 1rem; white-space: nowrap }}
a {{ color: rgb(var(--hue)) }}
code {{ overflow-wrap: anywhere; unicode-bidi: isolate }}
figure {{ margin: .8rem 0 }}
img {{ max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px }}
.wide {{ overflow-x: auto; margin: .8rem 0 }}
table {{ border-collapse: collapse; font-size: .92rem }}
th, td {{ padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  unicode-bidi: isolate }}
thead th {{ color: var(--faint); font-weight: 600; vertical-align: bottom }}
tbody tr:hover {{ background: var(--band) }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }}
.t {{ white-space: pre-wrap; overflow-wrap: anywhere; min-width: 12rem; max-width: 34rem }}
.total td {{ font-weight: 600; border-top: 2px solid var(--line) }}
.matrix td, .matrix th {{ border: 1px solid var(--line) }}
.matrix tbody th {{ font-weight: 400; text-align: right }}
.matrix .right {{ outline: 2px solid var(--good); outline-offset: -2px }}
.map {{ font-size: 11px; line-height: 1 }}
.map td {{ width: 15px; min-width: 15px; height: 15px; padding: 0; border: 1px solid var(--line) }}
.map th {{ padding: 1px 4px; border: 0; font-weight: 400; color: var(--ink); text-align: right; white-space: pre }}
.map thead span {{ display: inline-block; writing-mode: vertical-rl; transform: rotate(180deg) }}
mark {{ color: inherit; background: none; border-radius: 4px; padding: 0 .25em; border: 1.5px solid var(--good) }}
mark {{ unicode-bidi: isolate }}
mark.wrong {{ border: 1.5px dashed var(--bad) }}
mark small {{ color: var(--faint); margin-left: .35em; white-space: nowrap }}
.words {{ min-width: 20rem; max-width: 48rem; line-height: 1.7 }}
.words b {{ display: inline-block; min-width: 4.4em; color: var(--faint) }}
.good {{ color: var(--good); font-weight: 600 }}
.bad {{ color: var(--bad); font-weight: 600 }}
td code {{ white-space: nowrap }}
footer {{ margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .6rem; font-size: .85rem }}
{_SHADES}
@media print {{ body {{ max-width: none }} nav {{ display: none }} tr {{ break-inside: avoid }} }}
"""
