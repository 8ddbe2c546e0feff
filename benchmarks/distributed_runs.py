"""How the contenders of the distributed benchmark are started."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import files
from pathlib import Path
from typing import IO, Any

from benchmarks.__main__ import Failed, environment
from benchmarks.network import MPICH, Host, mpiexec

_REPOSITORY = Path(__file__).parents[1]
_LIMIT = 300  # seconds a contender may take


def distdgl(python: Path, hosts: list[Host], task: dict, tuned: bool) -> list[dict]:
    """The result of every rank. Each host has a server and a trainer, which share one core."""
    with tempfile.TemporaryDirectory() as folder:
        addresses = [host.address for host in hosts]
        ip_config = Path(folder) / "ip_config.txt"
        ip_config.write_text("".join(f"{address}\n" for address in addresses))
        task = task | {"hosts": addresses, "ip_config": str(ip_config)}
        commands = [
            [
                *(*host.enter, "taskset", "-c", str(core), python),
                *("-m", "benchmarks.ranks_dgl"),
                json.dumps(task | {"role": role, "rank": core}),
            ]
            for role in ("server", "trainer")
            for core, host in enumerate(hosts)
        ]
        said = _together(commands, environment(task["threads"], tuned, peer=True))
    return [result for text in said for result in _results(text)]


def ranks_jgs(hosts: Sequence[Host], num_ranks: int, task: dict, tuned: bool) -> list[dict]:
    """The result of every rank: one on each host, or without hosts all on this machine."""
    program = _mpiexec()
    variables = environment(task["threads"], tuned)
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps(task | {"out": folder})
        command = [sys.executable, "-m", "benchmarks.ranks_jgs", given]
        if hosts:
            start = mpiexec(program, list(hosts), Path(folder))
            variables |= MPICH
        else:
            start = [str(program), "-n", str(num_ranks)]
        _together([[*start, *command]], variables)
        files = [Path(folder) / f"{rank}.json" for rank in range(num_ranks)]
        return [json.loads(file.read_text()) for file in files]


def alone(python: Path, module: str, task: dict, tuned: bool) -> list[dict]:
    """The results of a contender that is one process."""
    command = [python, "-m", f"benchmarks.{module}", json.dumps(task)]
    (said,) = _together([command], environment(task["threads"], tuned, peer=True))
    return _results(said)


def _together(commands: list[list[Any]], variables: dict[str, str]) -> list[str]:
    """Runs the commands at the same time; returns what each prints. Raises `Failed`."""
    with ExitStack() as stack:
        running, outputs, errors = [], [], []
        for command in commands:
            outputs.append(stack.enter_context(tempfile.TemporaryFile("w+")))
            errors.append(stack.enter_context(tempfile.TemporaryFile("w+")))
            process = subprocess.Popen(
                command,
                cwd=_REPOSITORY,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=outputs[-1],
                stderr=errors[-1],
                start_new_session=True,  # Ctrl-C is for us to handle
            )
            stack.callback(_end, process)
            running.append(process)
        until = time.monotonic() + _LIMIT
        states: list[int | None] = [None]
        while None in states and not any(states):
            if time.monotonic() > until:
                raise Failed(f"took more than {_LIMIT} s")
            time.sleep(0.05)
            states = [process.poll() for process in running]
        for status, file in zip(states, errors, strict=True):
            if status:
                lines = _read(file).strip().splitlines() or ["nothing"]
                raise Failed(f"exit status {status}: {' / '.join(lines[-3:])}")
        return [_read(file) for file in outputs]


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _results(said: str) -> list[dict]:
    """What the processes reported by `worker.report`, among all other output."""
    lines = (line for line in said.splitlines() if line.startswith("[{"))
    return [result for line in lines for result in json.loads(line)]


def _mpiexec() -> Path:
    """The `mpiexec` of the MPI library that mpi4py loads, which is installed beside it."""
    mpich = files("mpich") or []
    found = [file for file in mpich if file.name == "mpiexec"]
    if not found:
        raise Failed("no mpiexec: pip install mpich mpi4py mpi4jax")
    return Path(found[0].locate()).resolve()
