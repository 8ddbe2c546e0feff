"""How the contenders of the distributed benchmark are started, each on the two hosts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import files
from pathlib import Path
from typing import Any

from benchmarks.__main__ import environment
from benchmarks.network import MPICH, Host, mpiexec

_REPOSITORY = Path(__file__).parents[1]
_LIMIT = 300  # seconds a contender may take


class Failed(Exception):
    """A contender's process failed; the message is the last it said."""


def distdgl(python: Path, hosts: list[Host], task: dict, tuned: bool) -> list[dict]:
    """The result of every rank: on each host a server and a trainer, one core for both."""
    with tempfile.TemporaryDirectory() as folder:
        addresses = [host.address for host in hosts]
        ip_config = Path(folder) / "ip_config.txt"
        ip_config.write_text("".join(f"{address}\n" for address in addresses))
        task = task | {"hosts": addresses, "ip_config": str(ip_config)}
        commands = [
            [*_on(host, core), python, "-m", "benchmarks.ranks_dgl"]
            + [json.dumps(task | {"role": role, "rank": core})]
            for role in ("server", "trainer")
            for core, host in enumerate(hosts)
        ]
        said = _together(commands, environment(task["threads"], tuned, peer=True))
    return [result for text in said for result in _results(text)]


def ranks_jgs(hosts: Sequence[Host], num_ranks: int, task: dict, tuned: bool) -> list[dict]:
    """The result of every rank: one on each host, or all here where there are none."""
    program = _mpiexec()
    variables = environment(task["threads"], tuned)
    with tempfile.TemporaryDirectory() as folder:
        task = json.dumps(task | {"out": folder})
        command = [sys.executable, "-m", "benchmarks.ranks_jgs", task]
        if hosts:
            start = mpiexec(program, list(hosts), Path(folder))
            variables |= MPICH
        else:
            start = [str(program), "-n", str(num_ranks)]
        _together([[*start, *command]], variables)
        files = [Path(folder) / f"{rank}.json" for rank in range(num_ranks)]
        return [json.loads(file.read_text()) for file in files]


def alone(python: Path, module: str, task: dict, tuned: bool) -> list[dict]:
    """The results of a contender of one process."""
    command = [python, "-m", f"benchmarks.{module}", json.dumps(task)]
    (said,) = _together([command], environment(task["threads"], tuned, peer=True))
    return _results(said)


def _on(host: Host, core: int) -> list[Any]:
    return [*host.enter, "taskset", "-c", str(core)]


def _together(commands: list[list[Any]], variables: dict[str, str]) -> list[str]:
    """What the commands, run at the same time, say on standard output; raises `Failed`."""
    with tempfile.TemporaryDirectory() as folder:
        errors = [open(Path(folder) / str(i), "w+") for i in range(len(commands))]
        outputs = [open(Path(folder) / f"out{i}", "w+") for i in range(len(commands))]
        running: list[subprocess.Popen] = []
        try:
            for command, out, err in zip(commands, outputs, errors, strict=True):
                running.append(
                    subprocess.Popen(
                        command,
                        cwd=_REPOSITORY,
                        env=variables,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,  # Ctrl-C is for us to handle
                    )
                )
            until = time.monotonic() + _LIMIT
            while any(process.poll() is None for process in running):
                bad = [i for i, process in enumerate(running) if process.poll()]
                if bad or time.monotonic() > until:
                    what = f"exit status {running[bad[0]].returncode}" if bad else "too slow"
                    errors[bad[0] if bad else 0].seek(0)
                    said = errors[bad[0] if bad else 0].read().strip().splitlines()
                    raise Failed(f"{what}: {' / '.join(said[-3:])}")
                time.sleep(0.05)
            for i, process in enumerate(running):
                if process.returncode:
                    errors[i].seek(0)
                    raise Failed(errors[i].read().strip()[-400:])
            said = []
            for out in outputs:
                out.seek(0)
                said.append(out.read())
            return said
        finally:
            for process in running:
                _end(process)
            for file in (*errors, *outputs):
                file.close()


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _results(said: str) -> list[dict]:
    """What the processes reported by `worker.report`, whatever else they and others said."""
    lines = (line for line in said.splitlines() if line.startswith("[{"))
    return [result for line in lines for result in json.loads(line)]


def _mpiexec() -> Path:
    """The one of the MPI library that mpi4py loads: both are installed beside each other."""
    mpich = files("mpich") or []
    found = [file for file in mpich if file.name == "mpiexec"]
    if not found:
        raise Failed("no mpiexec: pip install mpich mpi4py mpi4jax")
    return Path(found[0].locate()).resolve()
