"""`python -m jgs.report`: writes one HTML page about a training run.

Standard output gets one JSON line. `jgs.report.write_report` says what the page shows.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

from collections.abc import Sequence
from typing import Any

from jgs import command


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run_writing(lambda: _report(argv), "The page is")


def _report(argv: Sequence[str] | None) -> dict[str, Any]:
    given = vars(parser().parse_args(argv))
    with interrupts.starting():
        # A slow import, of Flax, for which the errors above need not wait.
        from jgs.report.page import write_report
    command.configure_jax()
    return write_report(given.pop("run_dir"), given.pop("out", None), **given)


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.report",
        "Write one HTML page about a run of python -m jgs.train, which needs no network: its "
        "curves and its command; for --task nodes also where it is right and wrong, by class "
        "and by degree, how far its probabilities hold, and the examples most wrong.",
    )
    add = found.add_argument
    add("--run-dir", required=True, help="folder of the run")
    add("--out", metavar="FILE", help=".html to write (default: report.html in --run-dir)")
    add("--split", choices=("train", "val", "test"), help="split to judge (default: test)")
    add("--examples", type=int, metavar="K", help="number of examples (default: 6)")
    command.add_opening(found)
    return found


if __name__ == "__main__":
    interrupts.leave(main())
