"""`python -m jgs.launch.rank NUMBER MODULE FLAGS...`: one rank, as `jgs.launch` starts it.

The module runs in this process, so that whoever started it may signal it and wait for it. A
second process, forked before anything else, attends the rank:

- It puts `[NUMBER] ` in front of each line that the rank writes to standard error, and passes
  the lines on whole. It passes on the last lines of a killed rank too, and what the rank's
  guard says of its end (see `jgs.dist.supervision.guard`).
- With `--control` as the first argument it obeys lines on standard input: `INT` and `TERM` send
  the rank that signal. Standard input ends when `jgs.launch` or its connection ends. The rank
  is then terminated, and killed `GRACE` seconds later, so no rank outlives its run.

Where `NUMBER` is `-`, the rank's number comes from the environment, where MPI launchers set it.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys
import time

GRACE = 5.0
LINGER = 4.0  # seconds, at most, for which the guard of an ended rank is heard
_SIGNALS = {b"INT": signal.SIGINT, b"TERM": signal.SIGTERM}
_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def main(argv: list[str]) -> None:
    control = argv[0] == "--control"
    number, module, *flags = argv[control:]
    if number == "-":
        number = next((os.environ[name] for name in _VARIABLES if name in os.environ), "?")
    rank = os.getpid()
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.close(write_end)
            _attend(rank, f"[{number}] ".encode(), read_end, control)
        finally:
            os._exit(0)
    os.close(read_end)
    os.dup2(write_end, 2)
    os.close(write_end)
    if control:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _attend(rank: int, prefix: bytes, said: int, control: bool) -> None:
    os.setsid()  # signals to the rank's process group do not reach this process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(said, 3)
    # The launcher waits for the end of the rank's files alone.
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.close(1)
    watched, unread, orders = {3} | ({0} if control else set()), b"", b""
    kill_at = end_at = None
    while 3 in watched:
        ready, _, _ = select.select(watched, [], [], 0.25)
        if os.getppid() != rank and 3 not in ready:
            # A process that the rank has started holds its standard error: perhaps its guard.
            end_at = end_at or time.monotonic() + LINGER
            if time.monotonic() > end_at:
                break
        if 3 in ready:
            if not (data := os.read(3, 1 << 16)):
                break
            *lines, unread = (unread + data).split(b"\n")
            _write(b"".join(prefix + line + b"\n" for line in lines))
        if 0 in ready:
            if data := os.read(0, 4096):
                *lines, orders = (orders + data).split(b"\n")
                for line in lines:
                    _signal(rank, _SIGNALS.get(line))
            else:
                watched.remove(0)
                _signal(rank, signal.SIGTERM)
                kill_at = time.monotonic() + GRACE
        if kill_at is not None and time.monotonic() > kill_at:
            _signal(rank, signal.SIGKILL)
    if unread:
        _write(prefix + unread + b"\n")


def _signal(rank: int, number: int | None) -> None:
    if number is not None and os.getppid() == rank:  # otherwise the rank has ended
        os.kill(rank, number)


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # nobody reads it any more; the rank goes on


if __name__ == "__main__":
    main(sys.argv[1:])
