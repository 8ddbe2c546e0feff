"""`run_ranks` has several ranks run a Python file; `connect_here` connects inside that file;
`finish` waits for commands.

Kinds: `"mpi"`, processes under mpiexec; `"jax"`, processes under jax.distributed with gloo;
`"devices"`, devices of one process. A process takes about 2 s to start on 2 cores, so one file
should check much.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import programs
import pytest
from forks import quick_python

MPIEXEC = Path(sys.prefix, "bin", "mpiexec")
LIMIT = 240  # seconds; enough on a machine that is busy with other work


def run_ranks(
    script, kind: str, n: int, *args, timeout: float = LIMIT, env=None, status: int | None = 0
) -> str:
    """What `n` ranks that run `script args...` print, with standard error.

    After `timeout` seconds all ranks are killed. The exit status is mpiexec's, or the last one
    other than 0 of the processes. Any status but `status` fails the test with that output; None
    accepts all.
    """
    environment = environment_of_ranks() | (env or {})
    command = [quick_python(), str(script), *map(str, args)]
    if kind == "mpi":
        needs_mpi()
        commands, places = [[str(MPIEXEC), "-n", str(n), *command]], ["mpi"]
    elif kind == "jax":
        port, commands = free_port(), [command] * n
        places = [f"jax localhost:{port} {n} {rank}" for rank in range(n)]
    else:
        commands, places = [command], ["jax"]
        environment["JAX_NUM_CPU_DEVICES"] = str(n)
    # Guards outlive their ranks for a moment, and speak then. The pipe ends with the last one.
    reading, writing = os.pipe()
    with open(reading, errors="replace") as output, ThreadPoolExecutor(1) as reader:
        processes = [
            subprocess.Popen(
                each,
                env=environment | {"JGS_TEST_COMM": place},
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for each, place in zip(commands, places, strict=True)
        ]
        os.close(writing)
        said = reader.submit(output.read)
        end, hung = time.monotonic() + timeout, False
        for process in processes:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                hung = True
        for process in processes:
            kill(process)
        text = said.result()
    statuses = [p.returncode for p in processes]
    got = next((s for s in reversed(statuses) if s), 0)
    if hung or status not in (None, got):
        problem = f"hung for {timeout} s" if hung else f"ended with {statuses}, not {status}"
        pytest.fail(f"{n} ranks of {script} ({kind}) {problem}:\n{text}", pytrace=False)
    return text


def finish(processes):
    """Exit statuses, and what all processes wrote to standard output and to standard error."""
    end = time.monotonic() + LIMIT
    said = [p.communicate(timeout=max(end - time.monotonic(), 1)) for p in processes]
    outs, errs = zip(*said, strict=True)
    err = "".join(line for line in "".join(errs).splitlines(True) if "[Gloo]" not in line)
    return [p.returncode for p in processes], "".join(outs), err


def result(processes):
    statuses, out, err = finish(processes)
    assert set(statuses) == {0}, err
    assert out.count("\n") == 1, out
    assert "Traceback" not in err
    return json.loads(out), err


def environment_of_ranks() -> dict[str, str]:
    """The environment of a rank, in which `every_rank/sitecustomize.py` runs first."""
    here = Path(__file__)
    paths = [str(here.with_name("every_rank")), str(here.parents[1])]
    paths.append(os.environ.get("PYTHONPATH"))
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JGS_NUM_THREADS": "1",
        "XLA_FLAGS": programs.quickly(),  # without pytest's own devices
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # MPICH's ranks sleep while they wait. They would keep the CPUs from the others.
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    }


def needs_mpi() -> None:
    """Skips where MPI is not installed; on CI, where `make` installs it, that is a failure."""
    if importlib.util.find_spec("mpi4jax") is None or not MPIEXEC.is_file():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("mpi4jax is not installed")


def connect_here():
    """The communicator of the kind that `run_ranks` chose."""
    from jgs.dist.communicators.launch import connect

    kind, *where = os.environ["JGS_TEST_COMM"].split()
    if not where:
        return connect(kind)
    return connect(kind, coordinator=where[0], num_ranks=int(where[1]), rank=int(where[2]))


def barrier(comm) -> None:
    """Returns once every rank has called it."""
    import numpy as np

    from jgs.dist.communicators.comm import all_gather_rows

    all_gather_rows(comm, [np.zeros(1, np.int32)] * comm.num_local)


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


def kill(process: subprocess.Popen) -> None:
    """Ends the process and its children, also where these are stopped or hang."""
    if process.poll() is None:
        process.terminate()  # mpiexec ends its ranks, which are in another process group
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
