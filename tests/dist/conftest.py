"""What the tests of launched training share."""

import socket
import subprocess
import sys

import pytest
from launched import make_parts
from ranks import MPIEXEC, environment_of_ranks, needs_mpi
from two_hosts import MPICH


@pytest.fixture(scope="session")
def environment():
    return environment_of_ranks()


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("parts") / "parts")


@pytest.fixture
def start(environment):
    """`start(kind, n, flags...)` starts `n` processes, which all end with the test. `kind` is
    "mpi", "jax", or the start of a command. `each` is a list of each rank's own flags, and
    `variables` one of its environment variables ("jax" alone)."""
    started = []

    def start(kind, n, *flags, each=None, variables=None):
        command = [sys.executable, "-m", "jgs.train", *map(str, flags)]
        env = environment | (MPICH if kind not in ("mpi", "jax") and n > 1 else {})
        if kind == "jax":
            with socket.create_server(("localhost", 0)) as free:
                port = free.getsockname()[1]
            by_hand = ["--comm", "jax", "--coordinator", f"localhost:{port}"]
            by_hand += ["--num-processes", str(n), "--process-id"]
            each = each or [[]] * n
            commands = [[*command, *by_hand, str(r), *each[r]] for r in range(n)]
        elif n == 1:
            commands = [command]
        else:
            needs_mpi()
            before = [str(MPIEXEC), "-n", str(n)] if kind == "mpi" else kind
            commands = [[*before, *command]]
        pipe = subprocess.PIPE
        processes = [
            subprocess.Popen(
                c, env=env | own, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
            for c, own in zip(commands, variables or [{}] * len(commands), strict=True)
        ]
        started.extend(processes)
        return processes

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()  # mpiexec then ends its ranks
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()
