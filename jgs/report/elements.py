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
    """The element as HTML text."""
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
    """A number from 0 to 1, with a bar of its length."""
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
