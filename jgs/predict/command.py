"""What `python -m jgs.predict` does once its flags are known, on one machine or many ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from jgs.allocator import keep_freed_memory
from jgs.dist.comm import Communicator
from jgs.dist.first import arrays_of_first, everywhere, text_of_first
from jgs.dist.start import Watch
from jgs.dist.together import together
from jgs.errors import InputError
from jgs.files.npy import map_npy, plain_file
from jgs.predict.open import open_run
from jgs.predict.output import check_out, write
from jgs.predict.run import Run

_CHANGED = ("root", "partition", "eval_memory")


def predict(given: dict[str, Any], watch: Watch | None) -> dict[str, Any] | int:
    """Writes what the flags `given` ask for, together with all other ranks; returns what the
    command prints."""
    keep_freed_memory()
    return together(
        lambda comm, _: _predict(comm, given),
        given,
        lambda: 60.0,
        lambda: "none is written",
        watch,
    )


def _predict(comm: Communicator, given: dict[str, Any]) -> dict[str, Any] | int:
    out = Path(os.path.abspath(given["out"]))
    everywhere(comm, lambda: check_out(out) if comm.rank == 0 else None)
    changed = {name: given[name] for name in _CHANGED if name in given}
    run = open_run(given["run_dir"], comm=comm, **changed)
    if not isinstance(run, Run):
        raise InputError(
            "python -m jgs.predict must have a run that tells of nodes",
            "one of --task links",
            "Ask jgs.open_run(folder).predict(pairs).",
        )
    nodes = _nodes(run, comm, given)
    columns: dict[str, np.ndarray] = {"node": nodes}
    if given.get("embed"):
        columns["embedding"] = run.embed(nodes)
    elif (found := run.predict(nodes)) is not None:
        columns |= found._asdict()
    everywhere(comm, lambda: write(out, columns) if comm.rank == 0 else None)
    if comm.rank > 0:
        return 0
    return {
        "out": str(out),
        "nodes": len(nodes),
        "columns": list(columns),
        "best_epoch": run.best_epoch,
        "run_dir": str(Path(given["run_dir"]).absolute()),
    }


def _nodes(run: Run, comm: Communicator, given: dict[str, Any]) -> np.ndarray:
    """int32, the ids of the data set that are asked for, the same on all ranks."""
    if "split" in given:
        return run.split(given["split"])
    if "nodes" not in given:
        return np.arange(run.num_nodes(), dtype=np.int32)
    read: list[np.ndarray] = []

    def size() -> str:
        read.append(read_nodes(Path(given["nodes"]), run_nodes))
        return str(len(read[0]))

    run_nodes = run.num_nodes()
    num = int(text_of_first(comm, size))
    return arrays_of_first(comm, read[0] if read else np.zeros(num, np.int32))


def read_nodes(path: Path, num_nodes: int) -> np.ndarray:
    """int32: the ids in a text file, one a line, or in an `.npy` file; raises `InputError`."""
    rule = f"{path} must hold node ids from 0 to {num_nodes - 1}, one a line, or as .npy"
    try:
        if path.suffix == ".npy":
            ids = map_npy(path)
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise InputError(rule, f"{ids.dtype}{list(ids.shape)}", "Give ints [n].")
        else:
            ids = _ids_of_text(plain_file(path), rule)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(rule, error, "Correct the file.") from None
    if bad := np.flatnonzero((ids < 0) | (ids >= num_nodes))[:1].tolist():
        raise InputError(rule, f"{ids[bad[0]]} (number {bad[0] + 1})", "Correct the file.")
    return ids.astype(np.int32)


def _ids_of_text(path: Path, rule: str) -> np.ndarray:
    ids = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            word = line.strip()
            if word and not (word.removeprefix(b"-").isdigit() and len(word) < 19):
                raise InputError(rule, f"{word[:40]!r} in line {number}", "Correct the file.")
            if word:
                ids.append(int(word))
    return np.array(ids, np.int64)
