"""What every command shares: lines on standard error, the JSON line, errors in one line."""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from jgs import interrupts
from jgs.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

PREFIX = "python -m jgs."
"""How a command is called, in help texts and errors: `jgs.scripts` sets it to "jgs "."""

_WIDTH = 120  # columns of a table where standard error is no terminal
# Python looks for unreachable objects after so many new ones. Imports and tracing make many
# that stay, and with Python's own number it would look at them again and again.
_OBJECTS = 50_000
# See `configure_jax`.
_JAX = {
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_transfer_guard": "allow",
}
# What errors of XLA's allocator and of Python's threads say. They have no class of their own.
_NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "can't start new thread")


def say(text: str) -> None:
    """Writes one line to standard error, above the progress bar where there is one.

    An error of that write is dropped, and the command goes on: the stream may be closed or
    full, or a signal handler may call this in the middle of another line.
    """
    if sys.stderr is not None:
        with suppress(OSError, ValueError, RuntimeError):
            print(text, file=sys.stderr, flush=True)


def show(table: Table) -> None:
    """Prints a table on standard error, as wide as the terminal."""
    from rich.console import Console  # a slow import

    console = Console(stderr=True)
    (console if console.is_terminal else Console(stderr=True, width=_WIDTH)).print(table)


def run(
    command: Callable[[], dict[str, Any] | int],
    *,
    stopped: str = "",
    disk: tuple[str, str] = ("every file must be readable", "Mend the permissions."),
    memory: tuple[str, str] = ("the command must fit into memory", "End other programs."),
    kept: Callable[[dict[str, Any]], str] = str,
) -> int:
    """Runs a command; returns its exit status: 0, 2 for bad input, 130 after Ctrl-C, 143 after
    SIGTERM.

    Standard output gets the result alone, as one JSON line. Everything else goes to standard
    error, including the log of jgs.

    Args:
      command: returns the result, or the exit status where there is no result.
      stopped: what to say after "interrupted" or "terminated".
      disk, memory: the rule and the remedy of the error for a failing disk and for too little
        memory.
      kept: says, for a result that standard output does not take, where else the result is:
        the remedy of that error.
    """
    _reserve_streams()
    logger, handler = logging.getLogger("jgs"), _Lines()
    level, propagate, collection = logger.level, logger.propagate, gc.get_threshold()
    gc.set_threshold(_OBJECTS, *collection[1:])
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # A library may have given the root logger a handler: no line is to appear twice.
    logger.propagate = False
    try:
        with interrupts.Interruptible() as interruption:
            try:
                result = command()
                if isinstance(result, int):
                    return result
                print_out(json.dumps(result, allow_nan=False), "the result", kept(result))
                return 0
            except (KeyboardInterrupt, Exception) as error:
                # Some code may have turned the interruption into another error.
                if isinstance(error, KeyboardInterrupt) or interruption.pressed:
                    number = interruption.hear()
                    say(interrupts.WORDS[signal.Signals(number)] + stopped)
                    return interrupts.status_of(number)
                if (problem := _explained(error, disk, memory)) is None:
                    raise
                # Which of several ranks the error is of; see
                # `jgs.dist.communicators.collect`.
                place = f"{where}: " if (where := getattr(error, "place", "")) else ""
                say(f"error: {place}{' '.join(str(problem).split())}")
                return 2
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        gc.set_threshold(*collection)


def run_writing(
    command: Callable[[], dict[str, Any] | int], what: str, memory: str = "Lower --eval-memory."
) -> int:
    """`run` for a command that reads a run, and writes `what` to `--out`, whole or not at all.
    `memory` is the remedy for too little of it."""
    return run(
        command,
        stopped="; --out is as it was",
        disk=(
            "every file must be readable and writable",
            "Free space or mend the permissions, and run the command again.",
        ),
        memory=("the run's data must fit into memory", memory),
        kept=lambda result: f"{what} in {result['out']}.",
    )


def add_opening(found: Parser) -> None:
    """Adds the flags of a command that opens a run."""
    add = found.add_argument
    add("--no-progress", dest="progress", action="store_false", help="no bar on a terminal")
    add("--root", help="folder of the data sets' files, if they have moved")
    add("--partition", help="folder of the parts, for a run on parts that have moved")
    add(
        "--eval-memory",
        type=int,
        metavar="MIB",
        help="MiB of working memory (default: as in training)",
    )


def _reserve_streams() -> None:
    """Opens closed standard streams: no file of jgs may get one of their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def print_out(text: str, what: str, remedy: str) -> None:
    """Prints on standard output. Raises `InputError` where that is closed, or does not take
    `what` it is to get; `remedy`: where else that is."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        print(text, flush=True)
    except OSError as error:
        with suppress(OSError, AttributeError):
            # The text is in a buffer that Python flushes again at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"standard output must take {what}", error, remedy) from None


@contextmanager
def loading() -> Iterator[None]:
    """A block that loads data: if memory runs out in it, the data set is too large.

    Raises `InputError` then, with the attribute `told` of `jgs.dist.communicators.collect`.
    """
    try:
        yield
    except Exception as error:
        if not _is_memory(error):
            raise
        refusal = InputError(
            "the data set must fit into memory",
            _first_line(error),
            "Use a machine with more memory, or a smaller data set.",
        )
        refusal.told = getattr(error, "told", False)  # type: ignore[attr-defined]
        raise refusal from None


def configure_jax() -> None:
    """Sets the options of JAX that jgs rests on, whatever the environment variables say.

    This is for commands, which share JAX with no other program. Keys are Threefry, with
    today's bits. Dtypes, and arrays of different ranks, are promoted, and transfers allowed.
    What no `--device` says otherwise is computed on the CPU, where the kernels are.
    """
    import jax  # a slow import

    from jgs.devices import compute_on_host

    compute_on_host()
    for name, value in _JAX.items():
        if hasattr(jax.config, name):  # not every version has each
            jax.config.update(name, value)


@contextmanager
def output_elsewhere() -> Iterator[None]:
    """A block in which standard output is standard error, for libraries that write to standard
    output (gloo, METIS): nothing but the result may appear there."""
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
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # C has buffers of its own


def _explained(
    error: Exception, disk: tuple[str, str], memory: tuple[str, str]
) -> InputError | None:
    """The `InputError` that tells the user what to do; None for a fault of jgs."""
    if isinstance(error, InputError):
        return error
    if _is_memory(error):
        return InputError(memory[0], _first_line(error), memory[1])
    if isinstance(error, OSError):
        return InputError(disk[0], error, disk[1])
    if isinstance(error, RuntimeError) and "Unable to initialize backend" in str(error):
        return InputError(
            "JAX must find the platform that it is to use",
            _first_line(error),
            "Correct or unset JAX_PLATFORMS.",
        )
    return None


def _is_memory(error: Exception) -> bool:
    if isinstance(error, InputError):
        return False
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in _NO_MEMORY)
    return isinstance(error, MemoryError)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def option_values(options: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` options as keyword arguments. A value that reads as an int, a float or a
    boolean becomes one; any other stays text."""
    return {name: _literal(value) for name, _, value in (o.partition("=") for o in options)}


_DATABASE = {  # flags that are data options of the same names
    "db_task": ("NAME", "of a database: the task in its folder tasks"),
    "manifest": ("FILE", "of a database: the file .yaml that says its keys and times"),
    "task_sql": ("FILE", "of a database: a query that gives labels, in a file .sql"),
    "entity": ("TABLE", "for --task-sql: the table whose rows have the labels"),
    "target": ("TABLE", "for --task-sql: the table whose rows are to be recommended"),
    "facts": ("KIND", "of a database: nodes, or edges for rows that join two others"),
    "horizon": ("TIME", "for --task-sql: how far labels look ahead, such as '30 days'"),
}


class Parser(argparse.ArgumentParser):
    """A parser of flags. Flags that are not given are absent from its result. Raises
    `InputError` for a command line that does not parse."""

    def __init__(self, prog: str, description: str, **options: Any):
        super().__init__(
            prog=prog.replace("python -m jgs.", PREFIX),
            description=description,
            argument_default=argparse.SUPPRESS,
            formatter_class=partial(argparse.HelpFormatter, max_help_position=28, width=96),
            allow_abbrev=False,
            **options,
        )

    def add_data_options(self) -> None:
        """Adds `--root` and `--data-options`, which are arguments of `jgs.data.load`."""
        self.add_argument("--root", help="folder of the data sets' files (default: data)")
        self.add_argument(
            "--data-options",
            nargs="+",
            type=_option,
            metavar="NAME=VALUE",
            help="the data set's own options, e.g. num_nodes=10000 seed=1",
        )
        add_database_flags(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if own := getattr(found, "database_flags", None):
            del found.database_flags
            found.data_options = [*getattr(found, "data_options", ()), *own]
        return found, rest

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            flag = rest[0].split("=")[0]
            known = self._option_string_actions if flag[2:] and flag[:2] == "--" else ()
            near = "".join(f"Did you mean {n}? " for n in get_close_matches(flag, known, 1))
            self.error(f"unrecognized arguments: {shlex.join(rest)}", near)
        return found

    def error(self, message: str, remedy: str = "") -> NoReturn:
        remedy += f"See {self.prog} --help."
        raise InputError("the command line must parse", message, remedy)


def add_database_flags(found: Any) -> None:
    """Adds the flags of databases to a `Parser` or to one of its groups. What they say is among
    the parser's `data_options`."""
    for name, (metavar, about) in _DATABASE.items():
        found.add_argument(
            f"--{name.replace('_', '-')}",
            action="append",
            dest="database_flags",
            type=partial(absolute_option, name),
            metavar=metavar,
            help=about,
        )


def absolute_option(name: str, text: str) -> str:
    """The option `name=text` of a data set, with the whole path where `text` is a file's, so
    that a run can be opened from any folder."""
    file = name in ("task_sql", "manifest") and os.path.exists(text)
    return f"{name}={os.path.abspath(text) if file else text}"


class _Lines(logging.Handler):
    """Writes log records as plain lines to what `sys.stderr` is at that moment."""

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


def moment(text: str) -> int | str:
    """A time on the command line: a whole number, or a date, which the run reads."""
    try:
        return int(text)
    except ValueError:
        return text
