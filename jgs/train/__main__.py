"""`python -m jgs.train`: train, and print the result as one JSON line."""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import os
import sys
from collections.abc import Sequence
from typing import Any

from jgs import command
from jgs.allocator import keep_freed_memory
from jgs.dist.communicators.start import CONNECTING, cluster, launched, unmet
from jgs.dist.supervision.watchdog import watching
from jgs.train.config import SETTINGS, Config
from jgs.train.flags import parse
from jgs.train.loop import folder


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _train(argv),
        stopped="; --resume continues from the last checkpoint, if there is one",
        disk=(
            "every file of the run must be readable and writable",
            "Free space or mend the permissions, then continue with --resume.",
        ),
        memory=(
            "the run must fit into memory",
            "Lower --hidden, --batch-size, what is sampled, or --eval-memory.",
        ),
        kept=lambda result: f"It is in {os.path.join(result['run_dir'], folder.RESULT)} too.",
    )


def _train(argv: Sequence[str] | None) -> dict[str, Any] | int:
    with watching(sys.argv[1:] if argv is None else argv, SETTINGS) as watch:
        with unmet():
            given = parse(argv)
            if several := _several(given):
                with interrupts.starting():
                    from jgs.train.loop import start  # a slow import
        if not several:
            settings = folder.configure(given)
            if settings.partition is None:
                return _run(settings)
            with interrupts.starting():
                from jgs.train.loop import start
        return start.train(given, watch)


def _run(settings: Config) -> dict[str, Any] | int:
    if settings.keep_memory:
        keep_freed_memory()
    with interrupts.starting():
        # A slow import, of a second: the errors above need nothing of it.
        from jgs import kernels
        from jgs.train.loop import training as loop

    command.configure_jax()

    try:
        with kernels.this_host_only():
            return loop.run(settings)
    except loop.Interrupted as where:
        return where.say()


def _several(given: dict[str, Any]) -> bool:
    """Whether there may be other processes; `communicators.launch` finds out if there are."""
    asked = given.keys() & CONNECTING.keys() - {"start_timeout"}
    if given.get("comm") == "none":
        return len(asked) > 1  # which `connect` refuses
    return bool(asked or launched() or cluster())


if __name__ == "__main__":
    interrupts.leave(main())
