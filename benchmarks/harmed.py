"""A rank of `benchmarks.faults`: `python -m jgs.train`, which comes to harm at one moment.

    python -m benchmarks.harmed FOLDER HARM MOMENT RANK [FLAGS of jgs.train]

jgs has no hooks for this. On rank `RANK` alone, a function of jgs is replaced when its module
has been imported. What a rank says goes to `FOLDER/rank-N.err` and `.out`. The time of the harm
is that of `FOLDER/harmed`. The harm waits until both ranks import Flax. Earlier, mpiexec may
end a rank that has hardly been started before anything can speak for it.
"""

import importlib.util
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

LATE = 3.0  # seconds

# A module, a function in it, and which call of it; without a function, the module's import.
MOMENTS = {
    "import": ("flax", "", 1),
    "meeting": ("jgs.dist.communicators.launch", "connect", 1),
    "parts": ("jgs.data.parts", "open_parts", 1),
    "first": ("jgs.train.loop.learner", "ModelLearner.step", 1),
    "middle": ("jgs.train.loop.learner", "ModelLearner.step", 8),
    "evaluation": ("jgs.train.loop.learner", "ModelLearner.evaluate", 2),
    "checkpoint": ("jgs.train.loop.training", "_Training.save", 2),
    "result": ("jgs.train.loop.learner", "ModelLearner.result", 1),
}
_WRITING = ("jgs.train.loop.checkpoint", "reserve", 2)  # rank 0 has begun to write a checkpoint


def fill(disk: Path) -> None:
    """Fills the disk of a folder."""
    free = os.statvfs(disk)
    with open(disk / "fill", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)


def cut() -> None:
    """Cuts the cable of this host."""
    subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)


def sleep_for_ever() -> None:
    while True:
        time.sleep(3600)


def harm(folder: Path, kind: str, rank: int) -> None:
    while kind != "absent" and not (folder / f"imports-{1 - rank}").exists():
        time.sleep(0.01)
    (folder / "harmed").touch()
    if kind == "full":
        fill(folder / f"disk-{rank}")
    elif kind == "cut":
        cut()
    elif kind == "late":
        time.sleep(LATE)
    elif kind in ("hang", "absent"):
        sleep_for_ever()
    else:
        names = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}
        os.kill(os.getpid(), names[kind])


class At:
    """A finder for `sys.meta_path`.

    It calls `act` before the n-th call of a function, or before a module's import.
    """

    def __init__(self, module, function, number, act):
        self.module, self.function, self.number, self.act = module, function, number, act

    def find_spec(self, name, path=None, target=None):
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        if not self.function:
            self.act()
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.replace(module)

        spec.loader.exec_module = exec_module
        return spec

    def replace(self, module):
        *within, name = self.function.split(".")
        place = getattr(module, within[0]) if within else module
        old, calls = getattr(place, name), []

        def acting(*inputs, **named):
            calls.append(1)
            if len(calls) == self.number:
                self.act()
            return old(*inputs, **named)

        setattr(place, name, acting)


def main() -> None:
    folder, kind, moment, number = Path(sys.argv[1]), *sys.argv[2:5]
    sys.argv[1:] = flags = sys.argv[5:]
    by_hand = flags[flags.index("--process-id") + 1] if "--process-id" in flags else None
    rank = int(os.environ.get("PMI_RANK", by_hand or 0))
    for stream, suffix in ((1, "out"), (2, "err")):
        file = os.open(folder / f"rank-{rank}.{suffix}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, stream)
        os.close(file)
    sys.argv += ["--scratch", str(folder / f"disk-{rank}")]
    imports = folder / f"imports-{rank}"
    sys.meta_path.insert(0, At(*MOMENTS["import"], imports.touch))
    if rank == int(number):
        if kind == "absent":
            harm(folder, kind, rank)
        elif kind != "none":
            where = _WRITING if moment == "checkpoint" and rank == 0 else MOMENTS[moment]
            sys.meta_path.insert(0, At(*where, lambda: harm(folder, kind, rank)))
    runpy.run_module("jgs.train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
