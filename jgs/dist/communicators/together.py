"""`together`: a command that several processes run, where one of them speaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from jgs import kernels
from jgs.command import output_elsewhere
from jgs.dist.communicators.broadcast import FailedElsewhere, everywhere
from jgs.dist.communicators.comm import Communicator
from jgs.dist.communicators.launch import connect, unmet
from jgs.dist.communicators.start import START_TIMEOUT, Watch
from jgs.dist.supervision.watchdog import Watchdog
from jgs.interrupts import number_of, status_of


def together(
    work: Callable[[Communicator, Watchdog], dict[str, Any] | int],
    given: dict[str, Any],
    timeout: Callable[[], float],
    last_checkpoint: Callable[[], str],
    watch: Watch | None,
) -> dict[str, Any] | int:
    """What `work` returns, done together with all other ranks that were started.

    Returns `work`'s result on rank 0. Returns the exit status on the other ranks, and where
    there is no result. Raises `InputError` on the rank that has the problem, or on rank 0 where
    all ranks have it.

    Args:
      given: how to connect: the flags `comm`, `coordinator`, `num_processes`, `process_id`,
        `interface`, `device`.
      timeout: returns the watchdog's timeout in seconds. Every rank calls it; it may raise
        `InputError`.
      last_checkpoint: as `Watchdog` takes it.
      watch: this process's watch, from its start; None where it is the only process, or where
        `connect` is to make one.
    """
    with output_elsewhere(), suppress(FailedElsewhere), ExitStack() as stack:
        with unmet():
            comm = connect(
                given.get("comm", "auto"),
                coordinator=given.get("coordinator"),
                num_ranks=given.get("num_processes"),
                rank=given.get("process_id"),
                interface=given.get("interface"),
                timeout=given.get("start_timeout", START_TIMEOUT),
                watch=watch,
                drawing=given.get("device", "auto") != "auto",
            )
            if comm.rank > 0:  # one rank speaks; every rank warns
                logging.getLogger("jgs").setLevel(logging.WARNING)
            seconds = everywhere(comm, timeout)
            watchdog = stack.enter_context(
                Watchdog(comm, timeout=seconds, last_checkpoint=last_checkpoint, watch=watch)
            )
        try:
            with kernels.this_host_only():
                return work(comm, watchdog)
        except KeyboardInterrupt as error:  # others may wait for this rank
            watchdog.failed(error)
            if comm.rank > 0:  # rank 0 speaks
                raise SystemExit(status_of(number_of(error))) from error
            raise
        except Exception as error:
            if getattr(error, "told", False):
                watchdog.close()  # every rank ends by itself
            raise
    return 2
