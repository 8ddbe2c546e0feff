"""What every command shares: lines on standard error, the JSON line, errors in one line."""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jgs.errors import InputError


def say(text: str) -> None:
    """One line on standard error, above the bar where there is one."""
    print(text, file=sys.stderr, flush=True)


def run(
    command: Callable[[], dict[str, Any] | int],
    *,
    interrupted: str,
    disk: tuple[str, str],
    memory: tuple[str, str],
) -> int:
    """Runs a command; returns its exit status: 0, 2 for bad input, 130 after Ctrl-C.

    Standard output gets the result alone, one JSON line; everything else, the log of jgs
    too, is on standard error.

    Args:
      command: returns the result, or the exit status where there is none.
      interrupted: what to say after Ctrl-C.
      disk, memory: rule and remedy for when the disk or the memory refuse.
    """
    _heed_interrupts()
    logger, handler = logging.getLogger("jgs"), _Lines()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a library may have given the root a handler: no line twice
    try:
        result = command()
    except (InputError, OSError, MemoryError, RuntimeError) as error:
        if (problem := _explained(error, disk, memory)) is None:
            raise
        say(f"error: {' '.join(str(problem).split())}")
        return 2
    except KeyboardInterrupt:
        say(interrupted)
        return 130
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    if isinstance(result, int):
        return result
    print(json.dumps(result, allow_nan=False), flush=True)
    return 0


@contextmanager
def output_elsewhere() -> Iterator[None]:
    """Libraries that write to standard output (gloo, METIS) write to standard error: there is
    to be nothing but the result."""
    _flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # C has buffers of its own


def _heed_interrupts() -> None:
    """Lets SIGINT interrupt a command that a script has started with `&`: shells have such
    commands ignore it, and whoever sends it by `kill` means it."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _explained(
    error: Exception, disk: tuple[str, str], memory: tuple[str, str]
) -> InputError | None:
    """What the user can do about an error, or None where it is a fault of jgs."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, OSError):
        return InputError(disk[0], error, disk[1])
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # XLA's
        return InputError(memory[0], (str(error) or "MemoryError").splitlines()[0], memory[1])
    return None


def option_values(options: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` options as keyword arguments: ints, floats, booleans, or else text."""
    return {name: _literal(value) for name, _, value in (o.partition("=") for o in options)}


class Parser(argparse.ArgumentParser):
    """Flags not given are absent from the result; `InputError` for what does not parse."""

    def __init__(self, prog: str, description: str):
        super().__init__(
            prog=prog,
            description=description,
            argument_default=argparse.SUPPRESS,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def add_data_options(self) -> None:
        """Adds `--root` and `--data-options`: what `jgs.data.load` is to be given."""
        self.add_argument("--root", help="folder of the data sets' files (default: data)")
        self.add_argument(
            "--data-options",
            nargs="+",
            type=_option,
            metavar="NAME=VALUE",
            help="the data set's own options, e.g. num_nodes=10000 seed=1",
        )

    def error(self, message: str) -> NoReturn:
        raise InputError("the command line must parse", message, f"See {self.prog} --help.")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28, width=96)


class _Lines(logging.Handler):
    """Log records as plain lines on whatever standard error is by then."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def _option(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return text


def _literal(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)
