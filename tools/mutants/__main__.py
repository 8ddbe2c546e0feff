"""Whether the tests catch faults that were put into jgs on purpose.

    .venv/bin/python tools/mutants             # all faults of the lists *.toml beside this file
    .venv/bin/python tools/mutants labor ties  # those whose name or list has one of these words

A fault is a small change of one place of one file: what stands there `before`, and `after`.
Each is put into a copy of the working tree, in `build/mutants`, where the `tests` run that
should see it. A fault that they do not see has survived: it is printed at the end, and the
status is 1.
Faults of C++ files need CMake and compile the kernels once more, which takes some minutes.

A fault with `slow` is caught by `make test-all` alone; `slow` says why.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from queue import SimpleQueue

REPOSITORY = Path(__file__).resolve().parents[2]
COPIES = REPOSITORY / "build" / "mutants"
LIBRARY = Path("jgs", "kernels", "libjgs_kernels.so")
# What pytest returns: tests failed, or none did. Any other status is no verdict of a test.
CAUGHT, SURVIVED = 1, 0


@dataclass(frozen=True)
class Fault:
    name: str
    what: str  # the wrong behaviour, in a sentence
    file: str
    before: str  # occurs once in the file
    after: str
    tests: list[str]  # the files that see it
    slow: str = ""  # why only slow tests see it
    area: str = ""  # the list that it stands in

    def applied(self, text: str) -> str:
        """The file's text with the fault. Raises `ValueError` where it does not apply."""
        if (count := text.count(self.before)) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has its `before` {count} times, not once"
            )
        return text.replace(self.before, self.after)


def faults(folder: Path = Path(__file__).parent) -> list[Fault]:
    """The faults of all lists. Raises `ValueError` for an entry that is not one."""
    found, known = [], {f.name for f in fields(Fault)}
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["fault"]:
            if unknown := entry.keys() - known:
                raise ValueError(f"{path.name}: {entry.get('name')} has {sorted(unknown)}")
            found.append(Fault(**entry, area=path.stem))
    return found


class Copy:
    """A copy of the working tree whose Python imports it, with all else of this environment."""

    def __init__(self, root: Path):
        self.root, self.venv = root, root / ".venv"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(
            listed, cwd=REPOSITORY, check=True, capture_output=True, text=True
        )
        wanted = {name for name in names.stdout.splitlines() if (REPOSITORY / name).is_file()}
        for name in wanted:
            put(root / name, (REPOSITORY / name).read_bytes(), REPOSITORY / name)
        for path in list(root.rglob("*")):  # what an earlier copy had besides
            own = path.relative_to(root)
            if path.is_file() and own.parts[0] in ("jgs", "tests") and str(own) not in wanted:
                path.unlink()
        programs = REPOSITORY / "build" / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        (root / "build").mkdir(exist_ok=True)
        if not (root / "build" / "programs").exists():
            (root / "build" / "programs").symlink_to(programs)
        self.make_environment()
        self.library = (
            next(Path(p) for p in sys.path if (Path(p) / LIBRARY).is_file()) / LIBRARY
        )
        shutil.copy2(self.library, root / LIBRARY)

    def make_environment(self) -> None:
        """A virtual environment that finds this one's packages behind the copy. The editable
        installation of this one is not among them: it would import the original."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        (packages,) = self.venv.glob("lib/python*/site-packages")
        (own,) = Path(sys.prefix).glob("lib/python*/site-packages")
        (packages / "copy.pth").write_text(f"{self.root}\n{own}\n")
        for script in Path(sys.prefix, "bin").iterdir():
            place = self.venv / "bin" / script.name
            known = place.exists() or not script.is_file()
            if known or script.name.startswith(("python", "activate", "Activate")):
                continue
            if script.read_bytes().startswith(f"#!{sys.prefix}".encode()):
                text = script.read_text().replace(sys.prefix, str(self.venv), 1)
                place.write_text(text)
                place.chmod(0o755)
            else:
                place.symlink_to(script)

    def try_out(self, fault: Fault, options: list[str]) -> tuple[int, str]:
        """pytest's status with the fault, and what it printed."""
        path = self.root / fault.file
        good = path.read_text()
        path.write_text(fault.applied(good))
        try:
            if path.parent == (self.root / LIBRARY).parent and path.suffix != ".py":
                self.compile_kernels()
            python = str(self.venv / "bin" / "python")
            command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options]
            if fault.slow:
                command += ["-m", "slow or not slow"]
            data = REPOSITORY.parent / "shared" / "data"
            env = {"JGS_TEST_DATA": str(data)} | os.environ
            done = subprocess.run(
                [*command, *fault.tests], cwd=self.root, env=env, capture_output=True, text=True
            )
            said = done.stdout + done.stderr
            return verdict_of(done.returncode, said), said
        finally:
            path.write_text(good)
            shutil.copy2(self.library, self.root / LIBRARY)

    def compile_kernels(self) -> None:
        build, place = self.root / "build" / "kernels", (self.root / LIBRARY).parent
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": place,
            "Python_EXECUTABLE": sys.executable,
        }
        cmake = [sys.executable, "-m", "cmake"]
        make = [*cmake, "-S", place, "-B", build, *(f"-D{n}={v}" for n, v in options.items())]
        for command in (make, [*cmake, "--build", build, "--parallel", str(os.cpu_count())]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode:
                raise ValueError(done.stdout.decode())


def verdict_of(status: int, said: str) -> int:
    """`status`, or -1 where no test is named that failed: Python without pytest ends with 1."""
    named = any(line.startswith(("FAILED", "ERROR")) for line in said.splitlines())
    return status if status != CAUGHT or named else -1


def put(place: Path, content: bytes, source: Path) -> None:
    """Writes what changed alone, so that only changed kernels are compiled again."""
    if not place.is_file() or place.read_bytes() != content:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="of names or lists (default: all faults)")
    parser.add_argument("--jobs", type=int, default=1, help="copies side by side")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one test")
    args = parser.parse_args()
    chosen = [
        fault
        for fault in faults()
        if not args.words or any(w in fault.name or w in fault.area for w in args.words)
    ]
    for fault in chosen:
        fault.applied((REPOSITORY / fault.file).read_text())
    COPIES.mkdir(parents=True, exist_ok=True)
    lock = open(COPIES / "lock", "w")  # noqa: SIM115  held until the end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another run uses {COPIES}: wait until it has ended")
    copies: SimpleQueue[Copy] = SimpleQueue()
    for job in range(min(args.jobs, len(chosen))):
        copies.put(Copy(COPIES / str(job)))

    def verdict(fault: Fault) -> bool:
        copy = copies.get()
        began = time.perf_counter()
        try:
            status, said = copy.try_out(fault, ["--timeout", str(args.timeout)])
        finally:
            copies.put(copy)
        word = {CAUGHT: "caught", SURVIVED: "SURVIVED"}.get(status, "NO VERDICT")
        seconds = time.perf_counter() - began
        last = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        by = last[0].split(" - ")[0].removeprefix("FAILED ") if last else ""
        print(f"{word:10} {fault.area}/{fault.name} ({seconds:.0f} s) {by}", flush=True)
        if status not in (CAUGHT, SURVIVED):
            print(said[-3000:], flush=True)
        return status == CAUGHT

    with ThreadPoolExecutor(args.jobs) as pool:
        caught = list(pool.map(verdict, chosen))
    print(f"{sum(caught)} of {len(caught)} faults were caught")
    for fault in (f for f, seen in zip(chosen, caught, strict=True) if not seen):
        print(f"not caught: {fault.area}/{fault.name}: {fault.what} ({fault.file})")
    return 0 if all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
