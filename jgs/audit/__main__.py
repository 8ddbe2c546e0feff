"""`python -m jgs.audit`: looks for leaks in a database with a task, and in what is drawn of it.

Standard output gets the findings, and a last line of what was tried. The exit status is 0
without a warning and without an error, 1 with one, and 2 for bad input.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the slow imports

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jgs import command


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.run(lambda: _audit(argv))


def parser() -> command.Parser:
    """The parser of the command line."""
    found = command.Parser(
        "python -m jgs.audit",
        "Look for leaks in a database with a task, and try whether what jgs draws and computes "
        "of it is before its cutoff.",
    )
    found.add_argument("--dataset", metavar="PATH", help="the database")
    found.add_argument(
        "--run", metavar="FOLDER", help="a run, whose model is tried; by default a new one"
    )
    found.add_argument("--seed", type=int, help="seed of all random choices (default: 0)")
    found.add_argument("--no-trials", action="store_true", help="look at the data alone")
    found.add_data_options()
    return found


def _audit(argv: Sequence[str] | None) -> int:
    given = vars(parser().parse_args(argv))
    options = command.option_values(given.get("data_options", ()))
    path, run = given.get("dataset"), given.get("run")
    with interrupts.starting():
        from jgs.audit import KINDS, TRIALS, audit  # a slow import, of JAX

    command.configure_jax()
    if path is not None and "://" not in path and not Path(path).exists():
        path = Path(given.get("root", "data")) / path
    trials = not given.get("no_trials", False)
    found = audit(path, run=run, seed=given.get("seed", 0), trials=trials, **options)
    counts = Counter(each.severity for each in found)
    lines = [str(each) for each in found]
    lines.append(
        f"{len(KINDS)} kinds of leaks were looked for, and {len(TRIALS) * trials} were tried: "
        + ", ".join(f"{counts[kind]} {kind}s" for kind in ("error", "warning", "note"))
    )
    for line in lines:
        command.print_out(line, "every finding", "Write them to a file.")
    return int(counts["error"] + counts["warning"] > 0)


if __name__ == "__main__":
    interrupts.leave(main())
