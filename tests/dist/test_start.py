"""A rank that is lost ends the others in a line that names it, also before they have met."""

import sys
from pathlib import Path

import pytest
from ranks import MPIEXEC, finish, free_port, needs_mpi, run_ranks

from jgs.dist.communicators import start
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.start import names
from jgs.dist.supervision import lost
from jgs.dist.supervision.guard import LOST
from jgs.dist.supervision.watchdog import Watchdog

SCRIPT = Path(__file__).with_name("check_start.py")
HEALTHY = [sys.executable, "-m", "jgs.train"]


def harmed(harm, moment):
    return [sys.executable, str(SCRIPT), harm, moment]


def by_hand(port, number):
    where = ["--comm", "jax", "--coordinator", f"localhost:{port}"]
    return [*where, "--num-processes", "2", "--process-id", str(number)], {}


def slurm(port, number):
    variables = {
        "SLURM_JOB_ID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost",
        "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number),
        "JAX_COORDINATOR_PORT": str(port),
    }  # fmt: skip
    return ["--comm", "jax"], variables


@pytest.fixture
def ends(begin, parts, tmp_path):
    """`ends(kind, other, limit)`: rank 0's or mpiexec's status, and what the ranks say."""

    def ends(kind, other, limit):
        flags = ["--partition", str(parts), "--run-dir", str(tmp_path / "run")]
        flags += ["--start-timeout", str(limit), "--watchdog", str(limit), "--batch-size", "12"]
        if kind == "mpi":
            needs_mpi()
            ranks = ["-n", "1", *HEALTHY, *flags, ":", "-n", "1", *other, *flags]
            started = [begin([str(MPIEXEC), *ranks])]
        else:
            started, port = [], free_port()
            for number, command in enumerate((HEALTHY, other) if other else (HEALTHY,)):
                own, variables = kind(port, number)
                started.append(begin([*command, *flags, *own], variables))
        statuses, _, err = finish(started)
        return statuses[0], err

    return ends


GONE = "rank 1 is gone (killed, or crashed) in "
CASES = [
    ("mpi", harmed("stop", "import"), 4, "nothing heard of rank 1 for "),
    ("mpi", harmed("kill", "import"), 9, f"{GONE}starting"),
    (by_hand, harmed("exit", "import"), 9, "rank 1 failed: SystemExit: no such library"),
    (by_hand, harmed("kill", "connected"), 99, f"{GONE}conn"),
    (slurm, None, 4, "rank 1 did not connect within 4 s"),
]


@pytest.mark.parametrize(("kind", "command", "limit", "said"), CASES)
def test_a_rank_lost_before_it_has_met_the_others(ends, kind, command, limit, said):
    status, err = ends(kind, command, limit)
    # mpiexec may end rank 0 before anything speaks for it. Then rank 1's guard speaks.
    begins = ("rank 0 ends: ", "error: ", "rank 1 is gone")
    lines = [line for line in err.splitlines() if line.startswith(begins)]
    assert len(lines) == 1, err
    assert said in lines[0]
    assert status == (2 if lines[0].startswith("error: ") else LOST) or kind == "mpi"
    assert "Traceback" not in err


@pytest.mark.usefixtures("no_launcher")
def test_where_guards_meet(monkeypatch):
    assert start.meeting() is None
    assert start.meeting("jax", "a:1", 1, 0) is None
    assert start.meeting("jax", "a:1", 4, 3)[:2] == (3, 4)
    assert start.meeting("jax", "a:1", 4, 3).places == (("a", 1),)
    variables = {"SLURM_NTASKS": "3", "SLURM_PROCID": "2", "SLURM_JOB_ID": "4097"}
    for hosts, first in {"n[07-9,12]": "n07", "a,b[1-2]": "a", "x[3]": "x3"}.items():
        for name, value in {**variables, "SLURM_STEP_NODELIST": hosts}.items():
            monkeypatch.setenv(name, value)
        assert start.meeting().places == ((first, 61441),)  # as JAX derives it
    # Several hosts under Hydra: its proxy tells where mpiexec runs.
    monkeypatch.setattr(start, "_control_port", lambda: "head:4000")
    for name, value in {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "1"}.items():
        monkeypatch.setenv(name, value)
    there = start.meeting()
    assert {host for host, _ in there.places} == {"head"}
    assert not there.certain
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    assert start.meeting().places[0].startswith("\0jgs")
    monkeypatch.setenv("JGS_MEETING", "a:2")
    assert start.meeting().places == (("a", 2),)


def seen(phase, main, drawing=0, step=3, limit=9):
    return {"phase": phase, "far": [main, drawing], "step": step, "limit": limit, "silence": 5}


BEHIND = [
    (
        {0: seen("exchange", 7, 5), 1: seen("sampling", 7, 4), 2: seen("exchange", 7, 5)},
        "ranks 1 has been in sampling of step 3 for 10 s (ranks 0, 2: in exchange of step 3)",
    ),
    (
        {0: seen("evaluation", 6, 5, None), 1: seen("computing", 5, 9)},
        "ranks 1 has been in computing of step 3 for 10 s (ranks 0: in evaluation)",
    ),
    (
        dict.fromkeys((0, 1), seen("computing", 7)),
        "every rank has been in computing of step 3 for 10 s",
    ),
    ({0: seen("computing", 7), 1: seen("checkpoint", 7, limit=11)}, None),
]


@pytest.mark.parametrize(("said", "expected"), BEHIND)
def test_the_rank_that_is_behind_is_named(said, expected):
    def names(ranks):
        return f"ranks {', '.join(map(str, ranks))}"

    quiet = dict.fromkeys(said, 0.3)
    found = lost.stuck(said, quiet, 10, 9, names)
    assert (found and found[0]) == expected
    if expected:  # rank 1 is as far as the others or behind, and then is silent too
        found = lost.stuck(said, quiet | {1: 8.0}, 10, 9, names)
        phase = said[1]["phase"]
        assert found == (f"nothing heard of ranks 1 for 8 s, last in {phase} of step 3", [1])
    # Ranks in MPI_Init are silent while they wait for a rank that is behind.
    waiting, behind = seen("connecting", 3, step=None), seen("starting", 1, step=None)
    said, quiet = {0: waiting, 1: behind, 2: waiting}, dict.fromkeys(range(3), 6.0)
    assert lost.silent(said, quiet, 5, names)[1] == [1]
    assert lost.silent(said, quiet | {1: 1.0}, 5, names) is None


STEPS = Path(__file__).with_name("check_watchdog.py")
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
    output = run_ranks(STEPS, kind, n, harm, rank, timeout=120, status=status)
    others = [other for other in range(n) if other != rank]
    said = SAID[harm].format(rank, names(others))
    for other in others:  # this holds also where mpiexec ended them first
        assert f"rank {other} ends: {said}; last checkpoint: checkpoints/7" in output
    assert "Traceback" not in output or harm == "raise"
    assert "stopped after" not in output


@pytest.mark.parametrize(("kind", "n"), [("mpi", 2), ("jax", 2)])
def test_all_stop_after_the_same_step_when_one_is_asked(kind, n):
    """An evaluation that takes longer than the timeout ends nothing before that."""
    output = run_ranks(STEPS, kind, n, "none", 1, timeout=120)
    assert output.count("stopped after 20") == n
    assert "ends:" not in output


def test_one_process_has_nobody_to_watch():
    with Watchdog(Alone(), timeout=0.1) as watchdog:
        watchdog.step = 1
        assert not watchdog.stop_requested()
        watchdog.request_stop()
        assert watchdog.stop_requested()


EXAMPLE = """
import sys
sys.path.insert(0, sys.argv[1])
import ranks_loop

make = ranks_loop.make_step
ranks_loop.make_step = lambda comm, *rest: None if comm.rank else make(comm, *rest)
ranks_loop.main(1)
"""


def test_an_error_on_one_rank_ends_the_example():
    examples = STEPS.parents[2] / "examples"
    output = run_ranks("-c", "mpi", 2, EXAMPLE, examples, timeout=240, status=None)
    assert "rank 0 ends: rank 1 failed: TypeError: 'NoneType' object is not" in output
    assert "epoch 0" not in output
