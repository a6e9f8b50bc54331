"""How the report looks: light or dark as the reader's machine is, eight colours that most eyes can tell apart."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2430; --dim: #667085; --line: #e4e7ec; --card: #f8f9fb;
  --good: #067647; --bad: #b42318; --warn: #93610a;
  --c0: #2f6fdb; --c1: #d9480f; --c2: #0b8a6f; --c3: #9b51c9;
  --c4: #b08800; --c5: #c2255c; --c6: #4a6274; --c7: #5c940d; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161d; --ink: #e6e9ef; --dim: #98a2b3; --line: #2a313c;
  --card: #1a1f28; --good: #47cd89; --bad: #f97066; --warn: #f7b955;
  --c0: #74a7ff; --c1: #ff9158; --c2: #3fc9a8; --c3: #cf94f0;
  --c4: #e3c04c; --c5: #ff7aa2; --c6: #9fb3c4; --c7: #a6d15a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0; display: flex; gap: 12px; align-items: center; }
h1 b { font-size: 13px; padding: 2px 10px; border-radius: 999px; border: 1px solid currentColor; }
h2 { font-size: 17px; margin: 32px 0 8px; }
.dim, small { color: var(--dim); }
.good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.tiles div { flex: 1 1 170px; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; display: flex; flex-direction: column; }
.tiles span { color: var(--dim); font-size: 13px; }
.tiles strong { font-size: 24px; font-weight: 600; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.findings { list-style: none; margin: 16px 0; padding: 0; }
.findings li { padding: 7px 12px; border-left: 3px solid var(--warn); background: var(--card); margin-bottom: 6px; }
.findings .error { border-color: var(--bad); }
.findings b { font-size: 12px; color: var(--warn); margin-right: 6px; } .findings .error b { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 20px; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 10px; padding: 14px 14px 6px; }
figure p { margin: 0 0 6px 4px; font-size: 12px; color: var(--dim); }
figcaption { font-weight: 600; min-height: 62px; }
figcaption small { font-weight: 400; }
figcaption div { font-weight: 400; font-size: 12.5px; display: flex; flex-wrap: wrap; gap: 2px 14px; }
figcaption span::before { content: ""; display: inline-block; width: 12px; height: 3px; border-radius: 2px;
  margin-right: 5px; vertical-align: middle; background: var(--colour); }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 11px; fill: var(--dim); font-variant-numeric: tabular-nums; }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; }
.grid { stroke: var(--line); }
svg .mark text { font-size: 10px; fill: var(--bad); }
.mark line { stroke: var(--bad); stroke-dasharray: 3 3; stroke-width: 1.2; }
polyline { fill: none; stroke: var(--colour); stroke-width: 1.7; stroke-linejoin: round; stroke-linecap: round; }
.c0 { --colour: var(--c0); } .c1 { --colour: var(--c1); } .c2 { --colour: var(--c2); } .c3 { --colour: var(--c3); }
.c4 { --colour: var(--c4); } .c5 { --colour: var(--c5); } .c6 { --colour: var(--c6); } .c7 { --colour: var(--c7); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; font-size: 13px; color: var(--dim); }
.n { text-align: right; }
details { margin-top: 20px; } summary { cursor: pointer; font-weight: 600; }
pre { background: var(--card); padding: 14px; border-radius: 10px; overflow-x: auto; font-size: 12.5px; }
@media print { figure, .tiles div { break-inside: avoid; } }
"""
