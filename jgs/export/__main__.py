"""`python -m jgs.export`: writes a trained run as an artifact, which `jgs.load_exported` opens.

Standard output gets one JSON line, with the fields of the artifact's `spec.json`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jgs import command

_ARGUMENTS = ("fanouts", "batch_sizes", "platforms", "with_graph", "direct")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    memory = "Use a machine with more memory."
    return command.run_writing(lambda: _export(argv), "The artifact is", memory)


def _export(argv: Sequence[str] | None) -> dict[str, Any]:
    given = vars(parser().parse_args(argv))
    with interrupts.starting():
        # Slow imports, of JAX and Flax: --help and the errors above do not wait for them.
        from jgs.export.write import export_run
        from jgs.predict.open import open_run
    command.configure_jax()
    own = {name: given[name] for name in ("params", "root") if name in given}
    run = open_run(given["run_dir"], progress=False, **own)
    out = Path(given["out"]).absolute()
    asked = {name: given[name] for name in _ARGUMENTS if name in given}
    spec = export_run(run, out, **asked).fields()
    size = sum(path.stat().st_size for path in out.iterdir())
    return {"out": str(out), "bytes": size, "run_dir": given["run_dir"], **spec}


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.export",
        "Write the sampler, the reading of features and the model of a run of python -m "
        "jgs.train as one artifact. jgs.load_exported opens it without training code.",
    )
    add = found.add_argument
    add("--run-dir", required=True, help="folder of the run")
    add("--out", required=True, help="folder to write; an artifact there is replaced")
    add(
        "--fanouts",
        type=int,
        nargs="+",
        metavar="K",
        help="draw so many neighbours, a number for each layer, seeds' hop first (default: "
        "those of the run)",
    )
    add(
        "--batch-sizes",
        type=int,
        nargs="+",
        metavar="B",
        help="the numbers of nodes that there is a program for; the next larger one answers "
        "(default: 1 8 64)",
    )
    add(
        "--platforms",
        nargs="+",
        metavar="NAME",
        help="where it is to run, of cpu, cuda, rocm and tpu (default: cpu)",
    )
    add(
        "--with-graph",
        action="store_true",
        help="put the graph and the features into the artifact; otherwise they are given when "
        "it is opened",
    )
    add(
        "--direct",
        action="store_true",
        help="sum the neighbours' features while reading them, also where that changes the "
        "last bits: faster for wide features",
    )
    add(
        "--params",
        choices=("best", "last"),
        help="the parameters of the epoch of best validation, or of the last one (default: "
        "best)",
    )
    add("--root", help="folder of the data sets' files, if they have moved")
    return found


if __name__ == "__main__":
    interrupts.leave(main())
