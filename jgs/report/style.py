"""The style of a report's page: light or dark, as the reader's system is.

The colours are blue and orange of Okabe and Ito, "Color universal design" (2008), which readers
with every kind of colour vision tell apart, darker on white and lighter on black.
"""

STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1c1c1e; --soft: #5a5a60; --line: #d4d4d8; --card: #f6f6f8;
  --a: #0072b2; --b: #b34700; --heat-a: #56b4e9; --heat-b: #f0a040; --on: #1c1c1e; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #16171a; --ink: #ececef; --soft: #a8a8b0; --line: #3a3b40; --card: #1f2024;
  --a: #56b4e9; --b: #f0a040; --heat-a: #0072b2; --heat-b: #b34700; --on: #fff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; border-top: 1px solid var(--line);
  padding-top: .8rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
.soft, caption, summary { color: var(--soft); }
pre { background: var(--card); padding: .7rem; white-space: pre-wrap; border-radius: .4rem;
  font-size: .9rem; }
pre span { display: inline-block; max-width: 100%; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr));
  gap: .6rem; margin: .8rem 0; }
.facts div { background: var(--card); border-radius: .4rem; padding: .5rem .7rem; }
.facts dt { color: var(--soft); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.grid { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.grid > * { min-width: 0; }
figure { margin: 0; max-width: 28rem; }
figcaption { color: var(--soft); font-size: .9rem; }
.example { background: var(--card); border-radius: .4rem; padding: .8rem; max-width: 34rem; }
.example dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .8rem; margin: 0;
  font-size: .9rem; }
.example dt { color: var(--soft); }
.example dd { margin: 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
th:first-child { text-align: left; padding-left: 0; max-width: 14rem;
  overflow-wrap: anywhere; min-width: 4rem; }
thead th { color: var(--soft); font-weight: 500; vertical-align: bottom; }
tbody th { font-weight: 500; }
summary { cursor: pointer; padding: .3rem 0; font-size: .9rem; }
:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; }
.share { display: inline-flex; align-items: center; gap: .5rem; }
.bar { width: 4rem; height: .6rem; background: var(--line); display: inline-block; }
.bar .fill { display: block; height: 100%; background: var(--a); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg .name { fill: var(--soft); }
svg text.on { fill: var(--on); }
.rule { stroke: var(--line); }
.axis { stroke: var(--soft); }
.line { fill: none; stroke-width: 1.8; }
.line.a { stroke: var(--a); } .line.b { stroke: var(--b); }
.line.ink { stroke: var(--ink); stroke-width: 1.2; }
.line.dash { stroke: var(--soft); stroke-dasharray: 4 4; stroke-width: 1.2; }
.dot.a, .fill.a, .node.a { fill: var(--a); }
.dot.b, .fill.b, .node.b { fill: var(--b); }
.cell.a { fill: var(--heat-a); } .cell.b { fill: var(--heat-b); }
.fill.soft { fill: var(--line); } .dot.faint { fill-opacity: .45; }
.cell.none { fill: var(--card); }
.ring { fill: none; stroke-width: 2; } .ring.b { stroke: var(--b); }
.node { stroke: var(--paper); stroke-width: 1; }
.node.other { fill: var(--soft); } .node.none { fill: var(--paper); stroke: var(--soft); }
.node.seed { stroke: var(--ink); stroke-width: 2.5; }
.edge { fill: none; } .edge.for { stroke: var(--b); }
.edge.against { stroke: var(--a); stroke-dasharray: 3 2; }
.keys span { display: inline-block; margin-right: 1rem; white-space: nowrap; }
.key { display: inline-block; width: .9em; height: .9em; vertical-align: -.1em; }
@media (max-width: 30rem) { body { padding: .7rem; } table { font-size: .82rem; }
  th, td { padding: .2rem .3rem; }
  .bar { display: none; } }
"""
