"""`python -m jgs.replay`: computes the answers of `jgs serve` again, and compares them.

Standard output gets one JSON line: how many answers there are, and how many are the same. The
exit status is 1 where one differs, which a line on standard error shows, or where one is from
before a merge of the log and cannot be computed: `gone` says how many.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from jgs import command
from jgs.errors import InputError, refusing
from jgs.options import Option, add_options

_WHAT = {"nodes": "predict", "pairs": "predict", "sources": "recommend"}
_ENDLESS = 2**62  # of moments: the server has checked them
_TOGETHER = 256  # answers at one position that are computed at a time
Line = tuple[int, dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(lambda: _replay(argv))


def _replay(argv: Sequence[str] | None) -> dict[str, Any] | int:
    given = vars(parser().parse_args(argv))
    lines = sorted(_lines(Path(given["answers"])), key=lambda line: line[1]["position"])
    with interrupts.starting():
        from jgs.graph.live.base import bases  # slow imports
        from jgs.serve.engine import Engine
    command.configure_jax()
    first, gone = None, 0
    if "log" in given:
        first = min(bases(given["log"]), default=0)
        gone = sum(answer["position"] < first for _, answer in lines)
        lines = lines[gone:]
        first = lines[0][1]["position"] if lines else first
    engine = Engine(given["artifact"], given.get("log"), position=first, ahead=_ENDLESS)
    different = 0
    for position, group in groupby(lines, key=lambda line: line[1]["position"]):
        engine.advance(position)
        some = list(group)
        for begin in range(0, len(some), _TOGETHER):
            for number, field in _differences(engine, some[begin : begin + _TOGETHER]):
                different += 1
                if different == 1:
                    command.say(f"line {number}, at position {position}, differs in {field}")
    result = {"answers": len(lines) + gone, "same": len(lines) - different}
    result |= {"gone": gone} if gone else {}
    if different or gone:
        command.print_out(json.dumps(result), "the result", "It is on standard error.")
        return 1
    return result


def _differences(engine: Any, lines: list[Line]) -> Iterator[tuple[int, str]]:
    """The numbers of lines whose answer is another now, with the first field that differs."""
    from jgs.serve.questions import FIELDS, question  # a slow import

    asked: list[tuple[int, dict[str, Any], Any]] = []
    for number, old in lines:
        if old["artifact"] != engine.digest:
            value = (
                f"{old['artifact'][:12]}... in line {number}, and not {engine.digest[:12]}..."
            )
            raise InputError("answers must be of the artifact", value, "Give that artifact.")
        kind = next(kind for what, kind in _WHAT.items() if what in old)
        body = {n: old[n] for n in FIELDS[kind] if n in old and n != "names"}
        try:
            asked.append((number, old, question(kind, body, None, engine.key)))
        except InputError as error:
            yield number, f"that it is no question: {error}"
    answers = engine.answers([one for _, _, one in asked])
    for (number, old, _), answer in zip(asked, answers, strict=True):
        if isinstance(answer, InputError):
            yield number, f"that it is refused now: {answer}"
        elif (new := json.loads(json.dumps(answer))) != old:
            yield number, next(n for n in {**old, **new} if new.get(n, ...) != old.get(n, ...))


def _lines(path: Path) -> Iterator[Line]:
    with refusing(OSError, "--answers must be a file that can be read", "Correct it."):
        text = path.read_bytes()
    for number, line in enumerate(text.split(b"\n")[:-1], 1):  # a last one may be cut off
        rule = f"line {number} of {path} must be an answer of jgs serve"
        with refusing((ValueError, RecursionError), rule, "Remove it."):
            answer = json.loads(line)
            whole = isinstance(answer, dict) and type(answer.get("position")) is int
            if not (whole and type(answer.get("artifact")) is str and _WHAT.keys() & answer):
                raise ValueError("another object")
        yield number, answer


# fmt: off
@dataclass
class _Asked:
    artifact: Annotated[str, Option("folder of the artifact that answered")]
    answers: Annotated[str, Option(
        "file of answers as jgs serve gave them, one JSON object a line, such as its --record "
        "writes", metavar="FILE"
    )]
    log: Annotated[str | None, Option(
        "folder of the log of that server, if it had one", metavar="FOLDER"
    )] = None
# fmt: on


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.replay",
        "Compute answers of jgs serve again, each of the graph as it was at its position, and "
        "say whether they have the same bits.",
    )
    add_options(found, _Asked)
    return found


if __name__ == "__main__":
    interrupts.leave(main())
