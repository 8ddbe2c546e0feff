"""`python -m jgs.train`: train, and print the result as one JSON line."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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
        # Only now: importing the rest takes a second, and errors above need none of it.
        from jgs.train import loop

        with _stop_flag() as stopped:
            try:
                result = loop.run(settings, stopped)
            except loop.Interrupted as where:
                say(f"interrupted at {where}; --resume with the same --run-dir continues there")
                return 130
    except InputError as error:
        say(f"error: {' '.join(str(error).split())}")
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


class _Lines(logging.Handler):
    """Log records as plain lines on whatever standard error is by then."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


@contextmanager
def _stop_flag() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; pressed again, it raises KeyboardInterrupt as ever."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def press(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
