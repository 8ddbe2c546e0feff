"""What the tests of launched training share."""

import os
import subprocess

import pytest
from forks import quick_python
from ranks import MPIEXEC, environment_of_ranks, free_port, kill, needs_mpi
from small_ranks import make_parts


@pytest.fixture
def no_launcher(monkeypatch):
    """No variable of a launcher is set."""
    for name in [n for n in os.environ if n.startswith(("PMI_", "OMPI_", "MV2_", "SLURM_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def environment():
    return environment_of_ranks()


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("parts") / "parts")


@pytest.fixture
def begin(environment):
    """`begin(command, variables)` starts a process, which ends with the test."""
    started = []

    def begin(command, variables=None):
        process = subprocess.Popen(
            command,
            env=environment | (variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        kill(process)
        process.communicate()


@pytest.fixture
def start(begin):
    """`start(kind, n, flags...)` starts `n` processes of training; "jax" has flags of each."""

    def start(kind, n, *flags, each=None, variables=None):
        command = [quick_python(), "-m", "jgs.train", *map(str, flags)]
        if kind == "mpi":
            needs_mpi()
            return [begin([str(MPIEXEC), "-n", str(n), *command])]
        by_hand = ["--comm", "jax", "--coordinator", f"localhost:{free_port()}"]
        by_hand += ["--num-processes", str(n), "--process-id"]
        own = zip(each or [[]] * n, variables or [{}] * n, strict=True)
        return [begin([*command, *by_hand, str(r), *e], v) for r, (e, v) in enumerate(own)]

    return start
