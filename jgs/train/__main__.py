"""`python -m jgs.train`: train, and print the result as one JSON line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from jgs import command
from jgs.allocator import keep_freed_memory
from jgs.command import say
from jgs.train import config, folder


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _train(argv),
        interrupted="interrupted; --resume continues from the last checkpoint, if there is one",
        disk=(
            "every file of the run must be readable and writable",
            "Free space or mend the permissions, then continue with --resume.",
        ),
        memory=(
            "the run must fit into memory",
            "Lower --hidden, --batch-size, --fanouts or --eval-memory.",
        ),
    )


def _train(argv: Sequence[str] | None) -> dict[str, Any] | int:
    settings = folder.configure(config.parse(argv))
    if settings.keep_memory:
        keep_freed_memory()
    # Only now: importing the rest takes a second, and errors above need none of it.
    from jgs.train import loop

    try:
        return loop.run(settings)
    except loop.Interrupted as where:
        say(f"interrupted at {where}; --resume with the same --run-dir continues there")
        return 130


if __name__ == "__main__":
    sys.exit(main())
