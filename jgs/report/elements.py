"""Elements of a page, and charts of them in plain SVG. Python's `xml.etree` writes them, and
escapes all text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np

from jgs.report.figures import Bin, Calibration

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


_WIDTH, _HEIGHT = 360, 232  # in units of text that is 11 high
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 14, 42
_POINTS = 2000  # in a cloud: of more a sample is drawn
_COUNTED = 12  # classes: the cells of a larger matrix have no room for counts


class Plot:
    """Axes of numbers, and what is drawn on them."""

    def __init__(
        self,
        title: str,
        about: str,  # what the chart shows, for those who cannot see it
        x: tuple[float, float],  # the bounds of the axis
        y: tuple[float, float],
        names: tuple[str, str],  # what stands beside the axes
        ticks: Sequence[tuple[float, str]] | None = None,  # on the x axis; None: round numbers
    ):
        self._x, self._y = _wide(*x), _wide(*y)
        self.svg = picture(title, about, _WIDTH, _HEIGHT)
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        for value in round_numbers(*self._y):
            (_, at) = self.place(self._x[0], value)
            self.add("line", x1=_LEFT, x2=right, y1=at, y2=at, class_="rule")
            self.text(shown(value), _LEFT - 6, float(at) + 4, anchor="end")
        for value, name in ticks or [(v, shown(v)) for v in round_numbers(*self._x)]:
            self.text(name, float(self.place(value, self._y[0])[0]), bottom + 15)
        self.add("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, class_="axis")
        self.text(names[0], (_LEFT + right) / 2, _HEIGHT - 6, class_="name")
        turned = f"translate(11 {(_TOP + bottom) / 2:.0f}) rotate(-90)"
        self.add("text", names[1], transform=turned, text_anchor="middle", class_="name")

    def place(self, x: float, y: float) -> tuple[str, str]:
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        left = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
        return f"{left:.1f}", f"{_HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    def add(self, name: str, /, *children: str | Element, **attributes: object) -> None:
        self.svg.append(tag(name, *children, **attributes))

    def text(
        self, text: str, x: float, y: float, anchor: str = "middle", class_: str | None = None
    ) -> None:
        at = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
        self.add("text", text, **at, text_anchor=anchor, class_=class_)

    def line(self, xs: Sequence[float], ys: Sequence[float], class_: str) -> None:
        points = " ".join(",".join(self.place(x, y)) for x, y in zip(xs, ys, strict=True))
        self.add("polyline", points=points, class_=class_)

    def point(self, x: float, y: float, radius: float, class_: str, about: str = "") -> None:
        (cx, cy), told = self.place(x, y), [tag("title", about)] if about else []
        self.add("circle", *told, cx=cx, cy=cy, r=f"{radius:.1f}", class_=class_)

    def bar(self, x: float, width: float, height: float, class_: str, about: str = "") -> None:
        left, top = self.place(x - width / 2, height)
        right, bottom = self.place(x + width / 2, max(self._y[0], 0))
        sizes = {"width": f"{float(right) - float(left):.1f}"}
        sizes["height"] = f"{max(float(bottom) - float(top), 0):.1f}"
        told = [tag("title", about)] if about else []
        self.add("rect", *told, x=left, y=top, **sizes, class_=class_)


def picture(title: str, about: str, width: float, height: float) -> Element:
    """An empty picture, with what it shows for those who cannot see it."""
    told = tag("title", title), tag("desc", about)
    return tag("svg", *told, viewBox=f"0 0 {width:g} {height:g}", role="img")


def curve(
    name: str, epochs: Sequence[int], values: Sequence[float], best: int | None
) -> Element:
    """A line over the epochs, with the best one marked."""
    about = f"From {shown(values[0])} at epoch {epochs[0]} to {shown(values[-1])} at epoch "
    about += f"{epochs[-1]}."
    ticks = round_numbers(*_wide(min(values), max(values)))
    step = ticks[1] - ticks[0]  # the axis ends at ticks
    low = ticks[0] - step if min(values) < ticks[0] else ticks[0]
    high = ticks[-1] + step if max(values) > ticks[-1] else ticks[-1]
    bounds = (min(epochs), max(epochs)), (low, high)
    plot = Plot(f"{name} by epoch", about, *bounds, ("epoch", name))
    plot.line(epochs, values, "line a")
    if len(epochs) < 60:
        for epoch, value in zip(epochs, values, strict=True):
            plot.point(epoch, value, 2.2, "dot a", f"epoch {epoch}: {shown(value)}")
    if best is not None and best in epochs:
        value = values[list(epochs).index(best)]
        plot.point(best, value, 5, "ring b", f"best epoch, {best}: {shown(value)}")
    return plot.svg


def bars(name: str, what: str, bins: Sequence[Bin], top: float | None = None) -> Element:
    """A bar for each bin, with its interval and its number of rows; `top` ends the axis."""
    about = "; ".join(f"{b.name}: {shown(b.value)} of {b.rows:,}" for b in bins) + "."
    high = top or max(b.value for b in bins)
    few = max(1, math.ceil(len(bins) / 7))  # names that have room
    ticks = [(i, b.name) for i, b in enumerate(bins) if i % few == 0]
    bounds = (-0.6, len(bins) - 0.4), (0, high)
    plot = Plot(f"{name} by {what}", about, *bounds, (what, name), ticks)
    for i, each in enumerate(bins):
        said = f"{each.name}: {shown(each.value)} of {each.rows:,}"
        plot.bar(i, 0.7, each.value, "fill a", said)
        if each.interval is not None:
            plot.line((i, i), each.interval, "line ink")
            for end in each.interval:
                plot.line((i - 0.12, i + 0.12), (end, end), "line ink")
    return plot.svg


def reliability(found: Calibration, event: str) -> Element:
    """The share of events over the probability. The diagonal is where both are equal."""
    columns = found.mean.tolist(), found.share.tolist(), found.number.tolist()
    rows = list(zip(*columns, strict=True))
    about = "; ".join(f"at {shown(m)}: {shown(s)} of {n:,}" for m, s, n in rows) + "."
    names = "probability", event
    plot = Plot(f"{event} by probability", about, (0, 1), (0, 1), names)
    most = max(found.number.tolist())
    for low, high, n in zip(found.low, found.high, found.number.tolist(), strict=True):
        plot.bar((low + high) / 2, 0.08, 0.25 * n / most, "fill soft", f"{n:,} predictions")
    plot.line((0, 1), (0, 1), "line dash")
    plot.line(found.mean.tolist(), found.share.tolist(), "line a")
    for mean, hits, n in rows:
        plot.point(mean, hits, 3.5, "dot a", f"at {shown(mean)}: {shown(hits)} of {n:,}")
    return plot.svg


def cloud(given: np.ndarray, true: np.ndarray) -> Element:
    """Predictions over true numbers; at most some thousands of points."""
    some = np.unique(np.linspace(0, len(true) - 1, _POINTS).astype(int))
    both = np.concatenate([given[some], true[some]])
    bounds = float(both.min()), float(both.max())
    about = f"{len(some):,} points; where both are equal they lie on the diagonal."
    names = "label", "prediction"
    plot = Plot("Predictions by labels", about, bounds, bounds, names)
    plot.line(_wide(*bounds), _wide(*bounds), "line dash")
    for label, value in zip(true[some].tolist(), given[some].tolist(), strict=True):
        plot.point(label, value, 1.8, "dot a faint")
    return plot.svg


def histogram(name: str, values: np.ndarray, num_bins: int = 30) -> tuple[Element, list[Bin]]:
    """The number of values in bins of equal width, and the bins."""
    count, ends = np.histogram(values.astype(np.float64), num_bins)
    width = float(ends[1] - ends[0])
    about = f"{values.size:,} values from {shown(float(ends[0]))} to {shown(float(ends[-1]))}."
    bounds = (float(ends[0]), float(ends[-1])), (0, int(count.max()))
    plot = Plot(f"Numbers of {name}", about, *bounds, (name, "rows"))
    bins = []
    for low, n in zip(ends[:-1].tolist(), count.tolist(), strict=True):
        text = f"{shown(low)} to {shown(low + width)}"
        bins.append(Bin(text, n, float(n)))
        plot.bar(low + width / 2, 0.9 * width, n, "fill a", f"{text}: {n:,}")
    return plot.svg, bins


def heat(matrix: np.ndarray, names: Sequence[str]) -> Element:
    """A confusion matrix, each row by its own sum. Cells have counts where there is room."""
    size, margin = len(names), 24 + 6 * min(max(map(len, names)), 12)
    cell = (_WIDTH - margin - 4) / size
    right, total = int(np.trace(matrix)), int(matrix.sum())
    about = f"Rows are classes and columns predicted classes. {right:,} of {total:,} are right."
    svg = picture("Confusion matrix", about, _WIDTH, _WIDTH)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    letter = min(11, 0.9 * cell)
    for i, name in enumerate(names):
        at = margin + (i + 0.5) * cell
        short = name if len(name) <= 13 else name[:12] + "…"
        style = f"font-size:{letter:.1f}px"
        place = {"x": margin - 5, "y": f"{at + letter / 3:.1f}", "text_anchor": "end"}
        svg.append(tag("text", tag("title", name), short, **place, style=style))
        turned = f"translate({at + letter / 3:.1f} {margin - 5}) rotate(-90)"
        svg.append(tag("text", tag("title", name), short, transform=turned, style=style))
    for i, j in np.ndindex(size, size):
        count, share = int(matrix[i, j]), float(shares[i, j])
        left, top = margin + j * cell, margin + i * cell
        square = {"x": f"{left:.1f}", "y": f"{top:.1f}"}
        square |= dict.fromkeys(("width", "height"), f"{cell - 1:.1f}")
        said = tag("title", f"{names[i]}, predicted {names[j]}: {count:,} ({share:.1%})")
        color = f"cell {'a' if i == j else 'b'}"
        svg.append(tag("rect", **square, class_="cell none"))
        svg.append(tag("rect", said, **square, class_=color, fill_opacity=f"{share:.3f}"))
        if size <= _COUNTED and count:
            place = {"x": f"{left + cell / 2:.1f}", "y": f"{top + cell / 2 + 4:.1f}"}
            ink = "on" if share > 0.5 else None
            number = {"text_anchor": "middle", "class_": ink, "pointer_events": "none"}
            fit = f"font-size:{min(11, 1.6 * cell / len(f'{count:,}')):.1f}px"
            svg.append(tag("text", f"{count:,}", **place, **number, style=fit))
    svg.append(tag("text", "class ↓   predicted →", x=2, y=12, class_="name"))
    return svg


def round_numbers(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` + 1 round numbers, at distances of 1, 2 or 5 times a power of 10."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def _wide(low: float, high: float) -> tuple[float, float]:
    if high - low > 1e-9 * max(abs(low), abs(high), 1e-300):
        return low, high
    room = max(abs(low), 1.0) / 2
    return low - room, high + room
