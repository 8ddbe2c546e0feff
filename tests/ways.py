"""The way of a call through the rooms of jgs, as a real run takes it.

The calls of functions of jgs are listed in the order in which the run makes them, each caller
and callee once. A *stay* is a stretch of callees in one room, a *return* a stay in a room that
an earlier stay was in. So the returns are the stays less the rooms.

What does not count: files that lie beside the rooms (errors, arrays, settings, options, tables,
the commands' own), and `graph/device`, by which every room gives arrays to JAX; imports, and
what JAX traces, which are no part of a later run; properties, which give a value; and what
Python or JAX calls by itself, such as `__len__`.
"""

import sys
from collections.abc import Callable
from inspect import isclass
from pathlib import Path
from typing import Any, NamedTuple

import jgs

JGS = Path(jgs.__file__).parent
ROOMS = {  # folders, the deeper ones first, of the rooms that a way goes through
    "graph/row_tables": "rows",
    "sampling/loading": "loading",
    "graph": "graph",
    "files": "files",
    "kernels": "kernels",
    "ops": "ops",
    "sampling": "sampling",
    "dist": "dist",
    "models": "models",
    "train": "learn",
    "predict": "learn",
    "data": "data",
    "partition": "partition",
    **dict.fromkeys(("report", "viz", "export"), "tools"),
}
BESIDE = "graph/device.py"
BY_ITSELF = {"__len__", "__repr__", "__contains__", "tree_flatten", "tree_unflatten"}
BY_ITSELF |= {"tree_flatten_with_keys", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Call(NamedTuple):
    """A call by its caller and its callee, functions as `file:name`."""

    caller: str
    callee: str
    room: str  # of the callee


def room_of(file: str) -> str | None:
    """The room of a file; None beside them."""
    path = Path(file)
    if not path.is_relative_to(JGS) or path == JGS / BESIDE:
        return None
    folder = path.relative_to(JGS).parent.as_posix()
    return next((ROOMS[own] for own in ROOMS if f"{folder}/".startswith(f"{own}/")), None)


def way_of(function: Callable[[], Any]) -> tuple[Any, list[Call]]:
    """What `function()` returns, and the calls of its run. Other threads are not seen."""
    found: dict[tuple[Any, Any], None] = {}
    given, outside = _properties(), 0
    rooms: dict[Any, str | None] = {}

    def counts(code: Any) -> bool:
        if code not in rooms:
            own = code.co_name in BY_ITSELF or code in given
            rooms[code] = None if own else room_of(code.co_filename)
        return rooms[code] is not None

    def see(frame: Any, event: str, _: Any) -> None:
        nonlocal outside
        code = frame.f_code
        traces = code.co_name.startswith("trace_to_jaxpr") and "jax" in code.co_filename
        if code.co_name == "<module>" or traces:
            outside += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or outside or not counts(code):
            return
        caller = frame.f_back
        while caller is not None and not counts(caller.f_code):
            caller = caller.f_back
        found.setdefault((caller and caller.f_code, code))

    sys.setprofile(see)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    return result, [Call(_shown(a), _shown(b), str(rooms[b])) for a, b in found]


def returns(way: list[Call]) -> int:
    rooms = [call.room for call in way]
    stays = [room for at, room in enumerate(rooms) if not at or rooms[at - 1] != room]
    return len(stays) - len(set(stays))


def shown(way: list[Call]) -> str:
    """The way as text: each stay, and the calls that make it."""
    lines: list[str] = []
    for at, call in enumerate(way):
        if not at or way[at - 1].room != call.room:
            lines.append(f"== {call.room}")
        lines.append(f"   {call.callee}  (by {call.caller or 'the test'})")
    return "\n".join(lines)


def _properties() -> set[Any]:
    modules = [module for name, module in [*sys.modules.items()] if name.split(".")[0] == "jgs"]
    classes = {each for m in modules for each in [*vars(m).values()] if isclass(each)}
    every = (each for own in classes for each in vars(own).values())
    getters = (each.fget for each in every if isinstance(each, property))
    return {each.__code__ for each in getters if hasattr(each, "__code__")}


def _shown(code: Any) -> str:
    if code is None:
        return ""
    return f"{Path(code.co_filename).relative_to(JGS)}:{code.co_qualname}"
