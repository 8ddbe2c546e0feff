"""`python -m jgs.train`: train, and print the result as one JSON line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

from jgs.allocator import keep_freed_memory
from jgs.errors import InputError
from jgs.train import config, folder
from jgs.train.progress import say


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 for bad input, 130 after Ctrl-C.

    Standard output gets the result alone, one JSON line; everything else is on standard
    error.
    """
    logger, handler = logging.getLogger("jgs"), _Lines()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a library may have given the root a handler: no line twice
    try:
        settings = folder.configure(config.parse(argv))
        if settings.keep_memory:
            keep_freed_memory()
        # Only now: importing the rest takes a second, and errors above need none of it.
        from jgs.train import loop

        try:
            result = loop.run(settings)
        except loop.Interrupted as where:
            say(f"interrupted at {where}; --resume with the same --run-dir continues there")
            return 130
    except (InputError, OSError, MemoryError, RuntimeError) as error:
        if (problem := _explained(error)) is None:
            raise
        say(f"error: {' '.join(str(problem).split())}")
        return 2
    except KeyboardInterrupt:
        say("interrupted; --resume continues from the last checkpoint, if there is one")
        return 130
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    print(json.dumps(result, allow_nan=False), flush=True)
    return 0


def _explained(error: Exception) -> InputError | None:
    """What the user can do about an error, or None where it is a fault of jgs."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, OSError):
        return InputError(
            "every file of the run must be readable and writable",
            error,
            "Free space or mend the permissions, then continue with --resume.",
        )
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # XLA's
        return InputError(
            "the run must fit into memory",
            (str(error) or "MemoryError").splitlines()[0],
            "Lower --hidden, --batch-size, --fanouts or --eval-memory.",
        )
    return None


class _Lines(logging.Handler):
    """Log records as plain lines on whatever standard error is by then."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


if __name__ == "__main__":
    sys.exit(main())
