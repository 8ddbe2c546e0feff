"""What `python -m jgs.predict` does after parsing its flags, on one machine or many ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from jgs.allocator import keep_freed_memory
from jgs.arrays import described
from jgs.dist.communicators.broadcast import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Communicator
from jgs.dist.communicators.launch import together
from jgs.dist.supervision.watchdog import Watch
from jgs.errors import InputError
from jgs.files.npy import map_npy, plain_file
from jgs.graph import NodeIds
from jgs.options import flag
from jgs.predict.open import open_run
from jgs.predict.output import check_out, write
from jgs.predict.types import ids_of, named

_CHANGED = ("root", "partition", "eval_memory", "progress", "seed")
# Which of these a run takes, its class says.
_FLAGS = {"split", "nodes", "node_type", "embed", "fanouts", "seed", "at"}
_FLAGS |= {"pairs", "top_k", "new_only", "relation"}


def predict(given: dict[str, Any], watch: Watch | None) -> dict[str, Any] | int:
    """Writes the predictions that the flags `given` ask for, together with all other ranks.
    Returns what the command prints, or an exit status."""
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
    everywhere(comm, lambda: _check(run, given))
    if "pairs" in given:
        columns = _of_pairs(run, given)
    elif "top_k" in given:
        columns = _of_lists(run, comm, given)
    else:
        columns = _of_nodes(run, comm, given)
    everywhere(comm, lambda: write(out, columns) if comm.rank == 0 else None)
    if comm.rank > 0:
        return 0
    rows = len(next(iter(columns.values())))
    return {
        "out": str(out),
        "pairs" if "pairs" in given or "top_k" in given else "nodes": rows,
        "columns": list(columns),
        **({"best_epoch": run.best_epoch} if hasattr(run, "best_epoch") else {}),
        "run_dir": str(Path(given["run_dir"]).absolute()),
    }


def _check(run: Any, given: dict[str, Any]) -> None:
    """Raises `InputError` for flags that a run of this task does not take."""
    own = run.flags
    for name in sorted(_FLAGS & given.keys()):
        if name not in own:
            task = run.config.task
            raise InputError(
                f"{flag(name)} must be for a run of another task",
                f"{flag(name)} for one of --task {task} --sampler {run.config.sampler}",
                "Leave it out.",
            )
    asked = own & {"pairs", "embed", "top_k"} & given.keys()
    ways = " or ".join(flag(n) for n in sorted(own & {"pairs", "embed", "top_k"}))
    embed, pairs, leave = given.get("embed"), "pairs" in asked, "Leave it out."
    drawn = "--embed too" if embed else "--seed alone"
    wrong: list[tuple[Any, ...]] = [
        (
            "fanouts" in given if embed else "seed" in given and "fanouts" not in given,
            "--fanouts, and the --seed of what is drawn, must be for predictions by sampled "
            "neighbours",
            drawn,
            leave,
        ),
        (
            "pairs" in own and len(asked) != 1,
            f"a run of --task {run.config.task} must be asked for one of {ways}",
            " and ".join(flag(n) for n in sorted(asked)) or "no --pairs",
            "Name a file of pairs, or give another of these.",
        ),
        (
            run.timed and "pairs" not in own and not given.keys() & {"at", "split", "nodes"},
            "--at must say the time for a run on labels at moments",
            "none",
            "E.g. --at 7.",
        ),
        (
            "at" in given and "split" in given,
            "--at must be for other rows than a split's, which have times of their own",
            f"--at {given.get('at')} and --split {given.get('split')}",
            "Leave one out.",
        ),
        *(
            (
                given.get(name) and "embed" in asked,
                f"{flag(name)} must be for pairs or lists",
                "--embed",
                leave,
            )
            for name in ("relation", "new_only")
        ),
        (
            "node_type" in given and pairs,
            "--node-type must be for nodes, whose ids are then those of the type",
            "--pairs",
            "Leave it out, and give ids of the graph.",
        ),
        (given.get("new_only") and pairs, "--new-only must be for --top-k", "--pairs", leave),
    ]
    for found, *said in wrong:
        if found:
            raise InputError(*said)


def _of_nodes(run: Any, comm: Communicator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    of = {"fanouts": given["fanouts"]} if "fanouts" in given else {}
    if run.timed:
        nodes, of["time"] = _timed_nodes(run, comm, given)
    else:
        nodes = _nodes(run, comm, given)
    columns = {"node": _named(run, nodes, given)}
    columns |= {"time": of["time"]} if np.ndim(of.get("time", 0)) else {}
    if given.get("embed"):
        return columns | {"embedding": run.embed(nodes)}
    found = run.predict(nodes, **of)
    return columns if found is None else columns | run.answer.columns(found)


def _of_pairs(run: Any, given: dict[str, Any]) -> dict[str, np.ndarray]:
    of: dict[str, Any] = {}
    if run.timed and given.get("at") is None:
        pairs, of["time"] = read_ids(
            Path(given["pairs"]), run.num_nodes(), 2, run.node_ids, True
        )
    else:
        pairs = read_ids(Path(given["pairs"]), run.num_nodes(), 2, run.node_ids)
        of |= {"time": given["at"]} if run.timed else {}
    source, target = _named(run, pairs, given).T
    columns = {"source": source, "target": target}
    columns |= {"time": of["time"]} if np.ndim(of.get("time", 0)) else {}
    of |= {"relation": given["relation"]} if given.get("relation") else {}
    return columns | run.answer.columns(run.predict(pairs, **of))


def _of_lists(run: Any, comm: Communicator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    nodes, k = _nodes(run, comm, given), given["top_k"]
    of = {"new_only": given.get("new_only", False), "relation": given.get("relation")}
    best, scores = run.recommend(nodes, k, **of)
    listed = best >= 0
    places = np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), best.shape)
    return {
        "source": _named(run, np.repeat(nodes, listed.sum(axis=1)), given),
        "target": _named(run, best[listed], given),
        "place": places[listed],
        "score": scores[listed],
    }


def _named(run: Any, nodes: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    """The data set's own ids of `nodes`, an array of any shape. Where it has none: with
    --node-type their ids in their types, and else `nodes`."""
    if run.node_ids is not None:
        return run.node_ids[nodes]
    return named(run.schema, nodes)[1] if "node_type" in given else nodes


def _nodes(run: Any, comm: Communicator, given: dict[str, Any]) -> np.ndarray:
    """int32: the node ids that the flags ask for, the same on all ranks."""
    kind = given.get("node_type")
    if kind is None and "top_k" in given and not {"nodes", "split"} & given.keys():
        kind = run.source_type(given.get("relation"))
    every = everywhere(
        comm, lambda: ids_of(kind and run.schema, run.num_nodes(), node_type=kind)
    )
    if "split" in given:
        own = run.split(given["split"])
        return own if kind is None else np.intersect1d(own, every)
    if "nodes" not in given:
        return every
    read: list[np.ndarray] = []

    def size() -> str:
        path = Path(given["nodes"])
        num = every.size if run.node_ids is None else run.num_nodes()
        read.append(_in_type(run, path, read_ids(path, num, names=run.node_ids), every, kind))
        return str(len(read[0]))

    num = int(broadcast_text(comm, size))
    return broadcast_arrays(comm, read[0] if read else np.zeros(num, np.int32))


def _timed_nodes(run: Any, comm: Communicator, given: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """int32 `[n]`: the nodes, and the time of `--at`, or times of their own int64 `[n]`: those
    of the rows of labels in a split, or of the file `--nodes`."""
    if "split" in given:
        nodes, time = run.rows(given["split"])
        if "node_type" in given:
            some = np.isin(nodes, _nodes(run, comm, {"node_type": given["node_type"]}))
            nodes, time = nodes[some], time[some]
        return nodes, time
    if given.get("at") is not None:
        return _nodes(run, comm, given), given["at"]
    path, names, kind = Path(given["nodes"]), run.node_ids, given.get("node_type")
    every = _nodes(run, comm, {} if kind is None else {"node_type": kind})
    num = every.size if names is None else run.num_nodes()
    ids, time = read_ids(path, num, 1, names, True)
    return _in_type(run, path, ids, every, kind), time


def _in_type(
    run: Any, path: Path, ids: np.ndarray, every: np.ndarray, kind: str | None
) -> np.ndarray:
    """int32 `[n]`: the nodes of the ids `[n, 1]` in a file, which count from 0 among `every`
    node of the type, or are the data set's own. Raises `InputError` for one of another type."""
    if run.node_ids is None:
        return every[ids[:, 0]]
    if kind and (wrong := np.setdiff1d(ids, every)[:1].tolist()):
        raise InputError(
            f"every id in {path} must be one of a node of the type {kind}",
            repr(run.node_ids[wrong[0]]),
            "Leave it out, or give its type.",
        )
    return ids[:, 0]


def read_ids(
    path: Path,
    num_nodes: int,
    width: int = 1,
    names: NodeIds | None = None,
    timed: bool = False,
) -> Any:
    """int32 `[n, width]`: the nodes whose ids are in a text file with `width` ids a line, or in
    an `.npy` file of this shape, `[n]` for a width of 1. With `names` the file has the data
    set's own ids. If these are text, a line is one id, or several words with a tab or spaces
    between them.

    With `timed` a line, or a row, has a time after its ids; returns these `[n]` too: int64, or
    text where one is no whole number. Raises `InputError`.
    """
    text = names is not None and names.values.dtype == object
    what = ("node ids", "pairs of node ids")[width - 1]
    if timed:
        what = ("a node id", "two node ids")[width - 1] + " and a time, without --at,"
    which = f"from 0 to {num_nodes - 1}" if names is None else "of the data set"
    rule = f"{path} must hold {what} {which}, one a line, or as .npy"
    read = _read(path, rule, width + timed, 0 if text else width, text)
    ids, times = read[:, :width], read[:, width:].reshape(-1)
    found = _nodes_of(path, ids if text else ids.astype(np.int64), rule, num_nodes, names)
    if not timed:
        return found
    whole = times.dtype != object or all(map(_is_whole, times))
    return found, times.astype(np.int64) if whole else times


def _read(path: Path, rule: str, width: int, numbers: int, text: bool) -> np.ndarray:
    """The numbers or words `[n, width]` in a file; the first `numbers` of a line are whole."""
    try:
        if path.suffix == ".npy":
            ids = map_npy(path)
            kinds, given = ("U", "text") if text else ("iu", "ints")
            if ids.dtype.kind not in kinds or ids.shape[1:] != (width,) * (width > 1):
                shape = "[n]" if width == 1 else f"[n, {width}]"
                raise InputError(rule, described(ids), f"Give {given} {shape}.")
            ids = ids.astype(object) if text else ids
        else:
            ids = _of_text(plain_file(path), rule, width, numbers, text)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(rule, error, "Correct the file.") from None
    return ids.reshape(-1, width)


def _nodes_of(
    path: Path, ids: np.ndarray, rule: str, num_nodes: int, names: NodeIds | None
) -> np.ndarray:
    if names is not None:
        return names.nodes(ids.reshape(-1), f"every id in {path}").reshape(ids.shape)
    if bad := np.argwhere((ids < 0) | (ids >= num_nodes))[:1].tolist():
        row, column = bad[0]
        raise InputError(rule, f"{ids[row, column]} (number {row + 1})", "Correct the file.")
    return ids.astype(np.int32)


def _of_text(path: Path, rule: str, width: int, numbers: int, text: bool) -> np.ndarray:
    words: list[str] = []
    with open(path, encoding="utf-8-sig") as file:  # which drops a byte order mark
        for number, line in enumerate(file, 1):
            line = line.removesuffix("\n")
            if not line.strip():
                continue
            found = [line] if text and width == 1 else line.split()
            if text and "\t" in line and width > 1:
                found = line.split("\t")
            if len(found) != width or not all(map(_is_whole, found[:numbers])):
                raise InputError(rule, f"{line[:40]!r} in line {number}", "Correct the file.")
            words += found
    return np.array(words, object)


def _is_whole(word: str) -> bool:
    """Whether a word is a whole number of 64 bits."""
    digits = word.removeprefix("-")
    good = digits.isascii() and digits.isdigit() and len(word) < 21
    return good and -1 << 63 <= int(word) < 1 << 63
