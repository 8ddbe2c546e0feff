"""A lost rank ends the run: the others name it and the last checkpoint, and exit."""

from pathlib import Path

import pytest
from ranks import run_ranks

from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.rendezvous import names
from jgs.dist.supervision.watchdog import LOST, Watchdog

SCRIPT = Path(__file__).with_name("check_watchdog.py")
SAID = {
    "kill": "rank {} is gone (killed, or crashed) in step 20",
    "stop": "nothing heard of rank {} for 2 s, last in step 20",
    "raise": "rank {} failed: ValueError: no such feature",
    "hang": "rank {} has been in step 20 for 2 s ({}: in step 20)",
}
HARMS = [("mpi", 3, harm, rank) for harm, rank in zip(SAID, (1, 0, 2, 1), strict=True)]
HARMS += [("jax", 2, "kill", 1), ("jax", 2, "raise", 0), ("jax", 2, "hang", 0)]


@pytest.mark.parametrize(("kind", "n", "harm", "rank"), HARMS)
def test_lost_rank_is_named_by_all_others(kind, n, harm, rank):
    status = LOST if (kind, harm) == ("jax", "hang") else None
    output = run_ranks(SCRIPT, kind, n, harm, rank, timeout=120, status=status)
    others = [other for other in range(n) if other != rank]
    said = SAID[harm].format(rank, names(others))
    for other in others:  # this holds also where mpiexec ended them first
        assert f"rank {other} ends: {said}; last checkpoint: checkpoints/7" in output
    assert "Traceback" not in output or harm == "raise"
    assert "stopped after" not in output


@pytest.mark.parametrize(("kind", "n"), [("mpi", 2), ("jax", 2)])
def test_all_stop_after_the_same_step_when_one_is_asked(kind, n):
    """An evaluation that takes longer than the timeout ends nothing before that."""
    output = run_ranks(SCRIPT, kind, n, "none", 1, timeout=120)
    assert output.count("stopped after 20") == n
    assert "ends:" not in output


EXAMPLE = """
import sys
sys.path.insert(0, sys.argv[1])
import ranks_loop

make = ranks_loop.make_step
ranks_loop.make_step = lambda comm, *rest: None if comm.rank else make(comm, *rest)
ranks_loop.main(1)
"""


def test_an_error_on_one_rank_ends_the_example():
    examples = SCRIPT.parents[2] / "examples"
    output = run_ranks("-c", "mpi", 2, EXAMPLE, examples, timeout=240, status=None)
    assert "rank 0 ends: rank 1 failed: TypeError: 'NoneType' object is not" in output
    assert "epoch 0" not in output


def test_one_process_has_nobody_to_watch():
    with Watchdog(Alone(), timeout=0.1) as watchdog:
        watchdog.step = 1
        assert not watchdog.stop_requested()
        watchdog.request_stop()
        assert watchdog.stop_requested()
