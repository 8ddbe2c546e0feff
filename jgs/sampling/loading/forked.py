"""Draws in a forked process, which would wait for ever: the fork has none of XLA's threads."""

from __future__ import annotations

import os
import sys

from jgs.errors import InputError

_users: list[int] = []  # the process that was forked last with XLA running in it


def _before_fork() -> None:
    # It is private to JAX, which has no public word for it. Without it nothing is refused.
    bridge = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "backends_are_initialized", bool)():
        _users[:] = [os.getpid()]


os.register_at_fork(before=_before_fork)


def refuse_forked() -> None:
    """Raises `InputError` in a process that was forked from one with XLA running in it."""
    if _users and _users[0] != os.getpid():
        raise InputError(
            "a process that draws batches must not be forked from one that has used JAX",
            f"process {os.getpid()}, forked from {_users[0]}",
            'Start it with multiprocessing.get_context("spawn"), or draw in a thread.',
        )
