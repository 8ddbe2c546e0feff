"""Which rank is lost, by what all ranks have said. Ranks that hang are told from ranks that
wait for them.

What a rank says is a dict. `phase` is None where it tells none, and `step` is None outside the
steps. `far` is how far its main thread and the thread that draws have counted
(`jgs.dist.supervision.phases`). `silence` and `limit` are the seconds for which it may be
silent, and for which its phase may last. A rank that has said nothing yet is starting. The
functions return the words of a line, and the processes that the line names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CONNECTING = "connecting"
Said = dict[int, dict[str, Any]]
Names = Callable[[list[int]], str]  # of processes: "ranks 0, 2"


def where(said: dict[str, Any]) -> str:
    phase, step = said.get("phase", "starting"), said.get("step")
    if step is None:
        return f"in {phase}" if phase else "outside the steps"
    return f"in {phase} of step {step}" if phase else f"in step {step}"


def counts(said: dict[str, Any]) -> list[int]:
    return said.get("far", [0, 0])


def silent(
    said: Said, quiet: dict[int, float], limit: float, names: Names
) -> tuple[str, list[int]] | None:
    """The ranks that nothing was heard of for too long. `quiet`: for how many seconds nothing
    was heard of each; `limit`: for how many a rank that has said nothing may be silent."""
    least = min(counts(each)[0] for each in said.values())
    found = []
    for number, each in said.items():
        behind = counts(each)[0] == least
        # A rank is silent in MPI_Init, which holds Python's lock while it waits for others.
        waits = each.get("phase") == CONNECTING and not behind
        if quiet[number] > each.get("silence", limit) and not waits:
            found.append((not behind, number))
    if not found:
        return None
    first = min(found)[0]
    return _unheard(said, quiet, [number for rest, number in found if rest == first], names)


def _unheard(
    said: Said, quiet: dict[int, float], last: list[int], names: Names
) -> tuple[str, list[int]]:
    seconds = max(quiet[number] for number in last)
    text = f"nothing heard of {names(last)} for {seconds:.0f} s, last {where(said[last[0]])}"
    return text, last


def stuck(
    said: Said, quiet: dict[int, float], still: float, limit: float, names: Names
) -> tuple[str, list[int]] | None:
    """The ranks furthest behind, where no rank has gone on for `still` seconds and that is too
    long for the phase of each. Of these it is those that nothing was heard of meanwhile, if
    there are some: they are stopped, or cut off."""
    if still <= max(each.get("limit", limit) for each in said.values()):
        return None
    last = list(said)
    for thread in (0, 1):
        least = min(counts(each)[thread] for each in said.values())
        last = [number for number, each in said.items() if counts(each)[thread] == least]
        if len(last) < len(said):
            break
    unheard = [number for number in last if quiet[number] > still / 2]
    if 0 < len(unheard) < len(said):
        return _unheard(said, quiet, unheard, names)
    others: dict[str, list[int]] = {}
    for number, each in said.items():
        if number not in last:
            others.setdefault(where(each), []).append(number)
    if not others:
        who, have = "every rank", "has"
    else:
        who, have = names(last), "has" if len(last) == 1 else "have"
    text = f"{who} {have} been {where(said[last[0]])} for {still:.0f} s"
    if others:
        text += f" ({'; '.join(f'{names(n)}: {place}' for place, n in others.items())})"
    return text, last
