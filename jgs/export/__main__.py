"""`python -m jgs.export`: writes a trained run as an artifact, which `jgs.load_exported` opens.

Standard output gets one JSON line, with the fields of the artifact's `spec.json`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from jgs import command
from jgs.errors import InputError
from jgs.options import Option, add_options, flag

_ARGUMENTS: tuple[str, ...] = ("fanouts", "batch_sizes", "platforms", "with_graph")
_ARGUMENTS += ("direct", "live", "new_nodes", "at")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    memory = "Use a machine with more memory."
    return command.run_writing(lambda: _export(argv), "The artifact is", memory)


def _export(argv: Sequence[str] | None) -> dict[str, Any]:
    given = vars(parser().parse_args(argv))
    again, needed = "again" in given, {"run_dir", "out"}
    wrong = sorted(given.keys() - {"again"} if again else needed - given.keys())
    if wrong:
        raise InputError(
            "a run must be exported by --run-dir and --out, or an artifact by --again alone",
            ("" if again else "no ") + ", ".join(map(flag, wrong)),
            "E.g. --run-dir runs/cora --out model.",
        )
    with interrupts.starting():
        # Slow imports, of JAX and Flax: --help and the errors above do not wait for them.
        from jgs.export.write import export_again, export_run
        from jgs.predict.open import open_run
    command.configure_jax()
    if again:
        out = Path(os.path.abspath(given["again"]))
        return _said(out, {}, export_again(out))
    own = {name: given[name] for name in ("params", "root") if name in given}
    run = open_run(given["run_dir"], progress=False, **own)
    out = Path(os.path.abspath(given["out"]))
    asked = {name: given[name] for name in _ARGUMENTS if name in given}
    place = {"run_dir": os.path.abspath(given["run_dir"])}
    return _said(out, place, export_run(run, out, **asked))


def _said(out: Path, run: dict[str, Any], spec: Any) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in out.iterdir())
    return {"out": str(out), "bytes": size, **run, **spec.fields()}


# fmt: off
@dataclass
class _Asked:
    run_dir: Annotated[str | None, Option("folder of the run")] = None
    out: Annotated[str | None, Option("folder to write; an artifact there is replaced")] = None
    again: Annotated[str | None, Option(
        "folder of an artifact, whose programs are written anew by the JAX that is installed, "
        "and draw the same", metavar="DIR"
    )] = None
    fanouts: Annotated[tuple[int | str, ...], Option(
        "draw so many neighbours, a number for each layer, seeds' hop first, or a=5,b=9 by "
        "relation (default: those of the run)", metavar="K"
    )] = ()
    batch_sizes: Annotated[tuple[int, ...], Option(
        "the numbers of nodes that there is a program for; the next larger one answers",
        metavar="B"
    )] = (1, 8, 64)
    platforms: Annotated[tuple[str, ...], Option(
        "where it is to run, of cpu, cuda, rocm and tpu", metavar="NAME"
    )] = ("cpu",)
    with_graph: Annotated[bool, Option(
        "put the graph and the features into the artifact; otherwise they are given when it is "
        "opened"
    )] = False
    at: Annotated[int | str | None, Option(
        "for a run on links with times, beside --with-graph: the moment at which the targets "
        "are prepared that can be recommended; a number or a date", metavar="TIME",
        parse=command.moment
    )] = None
    direct: Annotated[bool, Option(
        "sum the neighbours' features while reading them, also where that changes the last "
        "bits: faster for wide features"
    )] = False
    live: Annotated[bool, Option(
        "read graphs that grow, for jgs serve --log"
    )] = False
    new_nodes: Annotated[int | None, Option(
        "beside --live: ids of each node type to keep free for nodes that come later (default: "
        "a fifth of the nodes, at least 1024)", least=0, metavar="N"
    )] = None
    params: Annotated[str, Option(
        "the parameters of the epoch of best validation, or of the last one",
        choices=("best", "last")
    )] = "best"
    root: Annotated[str | None, Option(
        "folder of the data sets' files, if they have moved"
    )] = None
# fmt: on


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.export",
        "Write the sampler, the reading of features and the model of a run of python -m "
        "jgs.train as one artifact. jgs.load_exported opens it without training code.",
    )
    add_options(found, _Asked)
    return found


if __name__ == "__main__":
    interrupts.leave(main())
