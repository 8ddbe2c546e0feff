"""Elements of a page. Python's `xml.etree` writes them, and escapes all text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

Element = ElementTree.Element


def tag(name: str, /, *children: Any, **attributes: Any) -> Element:
    """An element.

    Args:
      children: texts, elements, or iterables of them; None is left out.
      attributes: `class_` is the attribute `class`, and `stroke_width` is `stroke-width`. One
        that is None is left out.
    """
    found = Element(name)
    for key, value in attributes.items():
        if value is not None:
            found.set(key.rstrip("_").replace("_", "-"), str(value))
    _add(found, children)
    return found


def _add(parent: Element, children: Iterable[Any]) -> None:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Element):
            parent.append(child)
        elif not isinstance(child, str):
            _add(parent, child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + child
        else:
            parent.text = (parent.text or "") + child


def as_html(element: Element) -> str:
    return ElementTree.tostring(element, encoding="unicode", method="html")


def section(title: str, *children: Any) -> Element:
    return tag("section", tag("h2", title), *children)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Element:
    """A table whose first column names the rows. It scrolls sideways where it is too wide. A
    cell is a text, an element, or a number."""
    body = []
    for first, *others in rows:
        cells = (tag("td", *_cell(value)) for value in others)
        body.append(tag("tr", tag("th", *_cell(first), scope="row"), *cells))
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))),
        tag("tbody", *body),
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def grid(*children: Element) -> Element:
    """Charts and tables side by side, or below each other where there is no room."""
    drawn = (tag("figure", one) if one.tag == "svg" else one for one in children)
    return tag("div", *drawn, class_="grid")


def folded(summary: str, *children: Any) -> Element:
    """What is shown after a click on `summary`."""
    return tag("details", tag("summary", summary), *children)


def share_bar(value: float) -> Element | str:
    if math.isnan(value):
        return "–"
    bar = tag("span", class_="fill", style=f"width:{100 * value:.1f}%")
    return tag("span", tag("span", bar, class_="bar"), f"{value:.3f}", class_="share")


def shown(value: float) -> str:
    """A number as text: whole ones with separators, others with four digits."""
    if isinstance(value, float) and math.isnan(value):
        return "–"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def _cell(value: Any) -> Sequence[Any]:
    return (value,) if isinstance(value, str | Element) else (shown(value),)


# Light or dark, as the reader's system is. The colours are blue and orange of Okabe and Ito,
# "Color universal design" (2008), which readers with every kind of colour vision tell apart.
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
