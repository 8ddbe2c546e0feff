"""What becomes of a run when one rank comes to harm: a table of harms, moments, communicators.

    python -m benchmarks.faults
    python -m benchmarks.faults --only kill stop --moment middle result --comm jax

Two ranks train on a small graph. One comes to the harm at the moment (`harmed.py`). A row has:

- how many seconds after the harm all processes had ended, and with what status;
- the last line of each rank;
- whether the same command with `--resume` then reached, bit for bit, the parameters of a run
  without harm.

No cell waits longer than `--limit`. Each row should meet these rules; what does not is listed
below the table:

- All processes end within the limit, nothing is left, and no traceback is printed.
- Every survivor names the rank that was killed, stopped, hung, or never came. When a cable is
  cut, each rank names the other. When a disk is full, one line names the rank, the disk and how
  much room it lacks.
- After SIGTERM the status is 143. Before its ranks have met, mpiexec may end with 15 instead. A
  rank that is late for 3 s is waited for.

The cut cable joins two network namespaces, which need root and iproute2. The full disk is a
small tmpfs, which needs root.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.harmed import MOMENTS
from benchmarks.network import MPICH, Host, NotPermitted, launcher, two_hosts

HARMS = ("kill", "stop", "terminate", "hang", "cut", "full", "late", "absent")
COMMS = ("mpi", "jax")
_TRAIN = """
    --fanouts 3 2 --batch-size 12 --epochs 3 --checkpoint-every 3 --no-progress --resume
    --eval-memory 1
"""
_SHORT = {"start_timeout": "30", "phase_timeout": "15"}  # limits of versions that have them
_DISK = "24m"
_WIDE = ("--hidden", "1100")  # 300 rows of this width exceed --eval-memory
_MARK = "JGS_FAULTS"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row of the table: who comes to what harm, and when."""

    harm: str
    moment: str
    comm: str
    rank: int


@dataclasses.dataclass
class Found:
    """What became of it.

    Fields:
      seconds: from the harm to the end of all processes; None if some had not ended.
      statuses: the status of mpiexec, or of each rank.
      said: the last line of every rank.
      resumed: whether the parameters were equal; None if that was not tried.
      problems: what is not as it should be.
    """

    seconds: float | None
    statuses: list[int | None]
    said: list[str]
    resumed: bool | None
    problems: list[str]


def cells(
    harms: Sequence[str], moments: Sequence[str], comms: Sequence[str], rank: int
) -> Iterator[Cell]:
    """The cells that make sense for these harms, moments and communicators.

    A rank can be absent only from the start. No cable is cut at the import, because the ranks
    have not connected yet. The full disk is that of rank 0, which has the run folder. In an
    evaluation it is the disk of rank 1's `--scratch`, for rank 1 writes nowhere else.
    """
    for harm in harms:
        for moment in moments:
            if harm == "absent" and moment != "import":
                continue
            if harm == "cut" and moment == "import":
                continue
            for comm in comms:
                harmed = rank
                if harm == "full":
                    harmed = int(moment == "evaluation")
                yield Cell(harm, moment, comm, harmed)


class Runs:
    """Runs of two ranks in a folder with a small graph's parts."""

    def __init__(self, folder: Path, limit: float, start_limit: float, watchdog: float):
        self.folder, self.limit, self.start_limit = folder, limit, start_limit
        self.parts, self._number = folder / "parts", 0
        self._whole: dict[tuple, str] = {}
        cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
        least = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self.environment = os.environ | cache | least | {"JAX_PLATFORMS": "cpu"}
        self.environment |= {"JGS_NUM_THREADS": "1", "XLA_FLAGS": ""}
        from jgs.train.config import Config  # a slow import

        known = {f.name for f in dataclasses.fields(Config)}
        self.limits = ["--watchdog", str(watchdog)]
        self.limits += [
            word
            for name, value in _SHORT.items()
            if name in known
            for word in (f"--{name.replace('_', '-')}", value)
        ]
        options = ["num_nodes=600", "num_edges=4000", "num_features=5"]
        command = [sys.executable, "-m", "jgs.partition", "--dataset", "synthetic"]
        command += ["--data-options", *options, "--parts", "2", "--method", "ldg"]
        done = subprocess.run([*command, "--out", self.parts], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)

    def whole(self, cell: Cell) -> str:
        """The hash of the parameters of a run without harm."""
        key = (cell.comm, cell.harm == "full")
        if key not in self._whole:
            place = self._fresh()
            self._finish(place, dataclasses.replace(cell, moment="import"))
            self._whole[key] = _params(place) or sys.exit(_said(place, 0))
        return self._whole[key]

    def run(self, cell: Cell, resume: bool) -> Found:
        want = self.whole(cell) if resume else ""
        place = self._fresh()
        with ExitStack() as stack:
            if cell.harm == "full":
                for rank in range(2):
                    stack.enter_context(_small_disk(place / f"disk-{rank}"))
            found = self._harmed(place, cell)
            if resume and found.seconds is not None:
                for rank in range(2):
                    (place / f"disk-{rank}" / "fill").unlink(missing_ok=True)
                if not (done := _params(place)):
                    self._finish(place, cell)
                    done = _params(place)
                found.resumed = done == want
                if not done:
                    found.problems.append(f"resumed, rank 0 says: {_said(place, 0)}")
                elif not found.resumed:
                    found.problems.append("resumed, its parameters differ")
        return found

    def _fresh(self) -> Path:
        self._number += 1
        place = self.folder / str(self._number)
        for rank in range(2):
            (place / f"disk-{rank}").mkdir(parents=True)
        return place

    def _start(
        self, place: Path, cell: Cell, hosts: Sequence[Host] = ()
    ) -> list[subprocess.Popen]:
        run_dir = place / "disk-0" / "run"
        words = [sys.executable, "-m", "benchmarks.harmed", place, cell.harm, cell.moment]
        words += [cell.rank, *_TRAIN.split(), *self.limits, "--partition", self.parts]
        words += ["--run-dir", run_dir, *(_WIDE if cell.harm == "full" else ())]
        command = list(map(str, words))
        environment = self.environment | {_MARK: str(place)}
        if cell.comm == "mpi":
            start = [str(Path(sys.prefix, "bin", "mpiexec"))]
            if hosts:
                start = [*hosts[0].network, *start, "-iface", "eth0", "-launcher", "ssh"]
                start += ["-launcher-exec", str(launcher(place, list(hosts)))]
                start += ["-hosts", ",".join(h.address for h in hosts), "-ppn", "1"]
                environment |= MPICH
            commands = [[*start, "-n", "2", *command]]
        else:
            address = hosts[0].address if hosts else "localhost"
            by_hand = ["--comm", "jax", "--coordinator", f"{address}:{_free_port()}"]
            by_hand += ["--num-processes", "2", "--process-id"]
            enter = [list(host.network) for host in hosts] or [[], []]
            commands = [[*enter[r], *command, *by_hand, str(r)] for r in range(2)]
            if cell.harm == "absent":
                del commands[cell.rank]
                (place / "harmed").touch()
        with open(place / "launcher.txt", "a") as said:
            return [
                subprocess.Popen(
                    c, env=environment, stdout=said, stderr=said, start_new_session=True
                )
                for c in commands
            ]

    def _finish(self, place: Path, cell: Cell) -> None:
        """Runs without harm to the end."""
        kind = "full" if cell.harm == "full" else "none"
        cell = dataclasses.replace(cell, harm=kind, rank=-1)
        processes = self._start(place, cell)
        end = time.time() + self.start_limit + self.limit
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.time(), 0.1))
        _end_all(place, processes)

    def _harmed(self, place: Path, cell: Cell) -> Found:
        with ExitStack() as stack:
            hosts = stack.enter_context(two_hosts()) if cell.harm == "cut" else ()
            processes = self._start(place, cell, hosts)
            stack.callback(_end_all, place, processes)
            harmed, begun = place / "harmed", time.time()
            # Only mpiexec ends a rank that is stopped or hangs; without it that rank remains.
            remains = cell.comm == "jax" and cell.harm in ("stop", "hang")
            seconds = None
            while seconds is None:
                time.sleep(0.1)
                began = harmed.stat().st_mtime if harmed.exists() else None
                if time.time() > (began + self.limit if began else begun + self.start_limit):
                    break
                if not _alive(place, cell.rank if remains else None):
                    seconds = time.time() - (began or begun)
            for process in processes if seconds is not None and not remains else ():
                process.wait()
            statuses = [process.poll() for process in processes]
            came = harmed.exists()
        said = [_said(place, rank) for rank in range(2)]
        found = Found(seconds, statuses, said, None, [])
        if not came:
            found.problems.append("the moment never came")
        found.problems += problems(cell, found, "".join(_errors(place, r) for r in range(2)))
        return found


def problems(cell: Cell, found: Found, text: str) -> list[str]:
    """What is not as it should be; `text` is all that the ranks wrote to standard error."""
    wrong = []
    if found.seconds is None:
        wrong.append("it hung")
    if "Traceback" in text:
        wrong.append("a traceback")
    lost = {0: "rank 0", 1: "rank 1"}
    if cell.harm in ("kill", "stop", "hang", "absent"):
        if lost[cell.rank] not in (line := found.said[1 - cell.rank]).split("ends:")[-1]:
            wrong.append(f"the survivor does not name the rank: {line or 'nothing'}")
    elif cell.harm == "cut":
        for rank, line in enumerate(found.said):
            if lost[1 - rank] not in line.split("ends:")[-1]:
                wrong.append(f"rank {rank} does not name the other: {line or 'nothing'}")
    elif cell.harm == "terminate" and not {143, _unmet(cell)} & set(found.statuses):
        wrong.append(f"no status 143: {found.statuses}")
    elif cell.harm == "full" and not re.search(r"error: .*rank \d.*[ (]\d+ MiB", text):
        wrong.append("no line names the rank, its disk and what is missing")
    elif cell.harm == "late" and set(found.statuses) != {0}:
        wrong.append(f"the late rank was not waited for: {found.statuses}")
    return wrong


def _unmet(cell: Cell) -> int:
    """A status allowed after SIGTERM: mpiexec's own 15 before its ranks have met, or 143."""
    return 15 if cell.comm == "mpi" and cell.moment in ("import", "meeting") else 143


def row(cell: Cell, found: Found) -> str:
    """A row of the Markdown table."""
    seconds = "hung" if found.seconds is None else f"{found.seconds:.1f}"
    statuses = " ".join(map(str, found.statuses))
    said = "; ".join(f"{rank}: {_short(line)}" for rank, line in enumerate(found.said) if line)
    resumed = {None: "", True: "equal", False: "no"}[found.resumed]
    where = f"{cell.harm} | {cell.moment} | {cell.comm} | {cell.rank}"
    good = "" if not found.problems else "!"
    return f"| {good} {where} | {seconds} | {statuses} | {said} | {resumed} |"


HEAD = """| harm | moment | comm | rank | seconds | status | each rank's last line | resumed |
|---|---|---|---|---|---|---|---|"""


def _short(line: str) -> str:
    line = re.sub(r"/\S*/", ".../", line.replace("|", "/"))
    return line if len(line) < 200 else line[:197] + "..."


def _errors(place: Path, rank: int) -> str:
    try:
        return (place / f"rank-{rank}.err").read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _said(place: Path, rank: int) -> str:
    lines = [s for s in _errors(place, rank).splitlines() if s.strip() and "[Gloo]" not in s]
    ends = [s for s in lines if re.search(r"ends: |^error: |^terminated|^interrupted", s)]
    return (ends or lines or [""])[-1]


def _params(place: Path) -> str | None:
    """The hash of the parameters in the run's result; None without a result."""
    with suppress(OSError, ValueError):
        text = (place / "disk-0" / "run" / "result.json").read_text()
        return json.loads(text)["params_sha256"]
    return None


def _processes(place: Path) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """The pid, words and environment of every process that was started for a folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "environ").read_bytes().decode(errors="replace")
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # the process has ended, or is not ours
        variables = dict(v.partition("=")[::2] for v in text.split("\0"))
        if variables.get(_MARK) == str(place):
            yield int(entry.name), words, variables


def _alive(place: Path, without: int | None) -> list[int]:
    """The pids of the processes that have not ended, without those of rank `without`."""
    found = []
    for pid, words, variables in _processes(place):
        by_hand = words[words.index("--process-id") + 1] if "--process-id" in words else None
        rank = variables.get("PMI_RANK", by_hand)
        if rank is None or "benchmarks.harmed" not in words or int(rank) != without:
            found.append(pid)
    return found


def _end_all(place: Path, processes: Sequence[subprocess.Popen]) -> None:
    for pid, _, _ in _processes(place):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait()


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        raise NotPermitted(done.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=HARMS, default=HARMS, metavar="HARM", help=" ".join(HARMS))
    add("--moment", nargs="+", choices=MOMENTS, default=MOMENTS, help=" ".join(MOMENTS))
    add("--comm", nargs="+", choices=COMMS, default=COMMS)
    add("--rank", type=int, choices=(0, 1), default=1, help="the one that comes to harm")
    add("--limit", type=float, default=60, help="seconds after which a cell has hung")
    add("--start-limit", type=float, default=300, help="seconds for the moment to come")
    add("--watchdog", type=float, default=5, help="that of the runs: more on a busy machine")
    add("--no-resume", action="store_true", help="leave that out, half of the time")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    bad: list[str] = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="jgs-faults-") as folder:
        runs = Runs(Path(folder), args.limit, args.start_limit, args.watchdog)
        every = list(cells(args.only, args.moment, args.comm, args.rank))
        for cell in every:
            try:
                found = runs.run(cell, not args.no_resume)
            except NotPermitted as reason:
                found = Found(0.0, [], [], None, [f"not permitted: {reason}"])
            print(row(cell, found), flush=True)
            bad += [
                f"- {' '.join(map(str, dataclasses.astuple(cell)))}: {p}"
                for p in found.problems
            ]
    print(f"\n{len(every)} cells, {len(bad)} problems")
    print("\n".join(bad))


if __name__ == "__main__":
    main()
