"""The bases of a live graph: whole graphs in folders, each at a position of its log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError, refusing
from jgs.files.storage import open_arrays, save_arrays
from jgs.files.writing import writing
from jgs.graph.graph import Graph
from jgs.graph.live.log import Log

_KIND, _GRAPH, _FEATURES, _STATE = "jgs.live", "graph.", "features.", "state"
_LATER = "later."
_PREFIX = "base-"


def log_of(folder: str | os.PathLike) -> Path:
    """The folder of the log."""
    return Path(folder) / "log"


def bases(folder: str | os.PathLike) -> dict[int, Path]:
    """The folders of the bases by position, ascending."""
    found = {}
    for path in Path(folder).glob(f"{_PREFIX}*"):
        if (number := path.name.removeprefix(_PREFIX)).isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def new_log(folder: str | os.PathLike) -> Log:
    """The log of a new live graph, or the empty one of a process that ended before it had
    written the base."""
    path = log_of(folder)
    if path.is_dir() and not bases(folder):
        with suppress(InputError):
            log = Log.open(path)
            if not log.position:
                return log
            log.close()
    return Log.create(path)


def write_base(
    folder: str | os.PathLike,
    position: int,
    graph: Graph,
    features: Mapping[str, np.ndarray],
    later: Mapping[str, Sequence[np.ndarray]],
    state: Mapping[str, Any],
) -> None:
    """Writes a base: a graph without room, arrays of features and of later rows by name, and a
    state that JSON can hold. It appears whole or not at all. Raises `InputError` where it
    cannot be written."""
    arrays = {_GRAPH + name: array for name, array in graph.stored().items()}
    for i, array in enumerate(features.values()):
        arrays[f"{_FEATURES}{i}"] = array
    for i, parts in enumerate(later.values()):
        arrays |= {f"{_LATER}{i}.{part}": array for part, array in enumerate(parts)}
    text = json.dumps({**state, "features": [*features], "later": [*later]}).encode()
    arrays[_STATE] = np.frombuffer(text, np.uint8)
    save_arrays(Path(folder) / f"{_PREFIX}{position:020}", _KIND, arrays)


# It ends when the process does that began it, which would remove older bases.
_APART = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[3]):
    sys.exit(1)
os.nice(19)
from jgs.graph.live import Live
Live.open(sys.argv[1], position=int(sys.argv[2]))._write_base()
"""


def write_base_apart(folder: str | os.PathLike, position: int) -> None:
    """Writes the base at a position of the log in a process of its own, with the lowest
    priority. Raises `InputError`."""
    given = os.fspath(folder), str(position), str(os.getpid())
    argv = [sys.executable, "-P", "-c", _APART, *given]
    paths = os.pathsep.join(filter(None, sys.path))
    own = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    done = subprocess.run(argv, env=own, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        rule = f"a process must write the base at position {position} of {folder}"
        value = said[-1] if said else f"its status {done.returncode}"
        raise InputError(rule, value, "Merge again.")


def read_base(path: Path) -> tuple[Graph, dict[str, np.ndarray], dict, dict[str, Any]]:
    """What `write_base` wrote, with arrays mapped to memory. Raises `InputError`."""
    again = "Restore it from a copy; or make the live graph again, in another folder."
    arrays = open_arrays(path, _KIND, again=again)
    with refusing((ValueError, KeyError, TypeError), f"{path} must be a whole base", again):
        state = json.loads(arrays.pop(_STATE).tobytes())
        names, later = state.pop("features"), {}
        features = {name: arrays.pop(f"{_FEATURES}{i}") for i, name in enumerate(names)}
        for i, name in enumerate(state.pop("later", [])):  # older bases have none
            later[name] = [arrays.pop(f"{_LATER}{i}.{part}") for part in range(3)]
    own = {name.removeprefix(_GRAPH): array for name, array in arrays.items()}
    return Graph.from_stored(str(path), own), features, later, state


def base_at(folder: str | os.PathLike, position: int | None) -> tuple[int, Path]:
    """The newest base that is not after a position, or of all. Raises `InputError` where the
    folder has none."""
    last = np.inf if position is None else position
    found = [(at, path) for at, path in bases(folder).items() if at <= last]
    if not found:
        seen = f"position {position}, before its first base" if bases(folder) else "no base"
        raise InputError(
            f"{folder} must hold a live graph from a position on",
            seen,
            "Check the folder, or ask for a later position.",
        )
    return found[-1]


def drop_older(folder: str | os.PathLike, log: Log, before: int) -> None:
    """Removes the changes and the bases before that at a position, and those bases that
    processes which ended left unfinished. Raises `InputError`."""
    log.drop(before)
    old = [path for at, path in bases(folder).items() if at < before]
    with writing(Path(folder), remedy="Mend the permissions there, and merge again."):
        for path in [*old, *Path(folder).glob(f".{_PREFIX}*")]:
            shutil.rmtree(path)
