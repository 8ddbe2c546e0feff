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
from jgs.dist.communicators.start import Watch
from jgs.dist.communicators.together import together
from jgs.errors import InputError
from jgs.files.npy import map_npy, plain_file
from jgs.graph import NodeIds
from jgs.options import flag
from jgs.predict.open import open_run
from jgs.predict.output import check_out, write
from jgs.predict.run import Predictions
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
    if "fanouts" in given if given.get("embed") else "seed" in given and "fanouts" not in given:
        raise InputError(
            "--fanouts, and the --seed of what is drawn, must be for predictions by sampled "
            "neighbours",
            "--embed too" if given.get("embed") else "--seed alone",
            "Leave it out.",
        )
    asked = own & {"pairs", "embed", "top_k"} & given.keys()
    if "pairs" in own and len(asked) != 1:
        ways = " or ".join(flag(n) for n in sorted(own & {"pairs", "embed", "top_k"}))
        raise InputError(
            f"a run of --task {run.config.task} must be asked for one of {ways}",
            " and ".join(flag(n) for n in sorted(asked)) or "no --pairs",
            "Name a file of pairs, or give another of these.",
        )
    if run.timed and "pairs" not in own and not given.keys() & {"at", "split", "nodes"}:
        raise InputError(
            "--at must say the time for a run on labels at moments", "none", "E.g. --at 7."
        )
    if "at" in given and "split" in given:
        raise InputError(
            "--at must be for other rows than a split's, which have times of their own",
            f"--at {given['at']} and --split {given['split']}",
            "Leave one out.",
        )
    for name in ("relation", "new_only"):
        if given.get(name) and "embed" in asked:
            raise InputError(
                f"{flag(name)} must be for pairs or lists", "--embed", "Leave it out."
            )
    if "node_type" in given and "pairs" in asked:
        raise InputError(
            "--node-type must be for nodes, whose ids are then those of the type",
            "--pairs",
            "Leave it out, and give ids of the graph.",
        )
    if given.get("new_only") and "pairs" in asked:
        raise InputError("--new-only must be for --top-k", "--pairs", "Leave it out.")


def _of_nodes(run: Any, comm: Communicator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    if run.timed:
        return _at_moments(run, comm, given)
    nodes = _nodes(run, comm, given)
    columns = {"node": _named(run, nodes, given)}
    if given.get("embed") or not hasattr(run, "predict"):
        return columns | {"embedding": run.embed(nodes)}
    if (found := run.predict(nodes, fanouts=given.get("fanouts"))) is not None:
        columns |= _predicted(run, found)
    return columns


def _at_moments(run: Any, comm: Communicator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns of nodes at the time of `--at`, or at times of their own: those of a file, or
    of the label table's rows in a split."""
    time: Any = given.get("at")
    if "split" in given:
        nodes, time = run.rows(given["split"])
        if "node_type" in given:
            some = np.isin(nodes, _nodes(run, comm, {"node_type": given["node_type"]}))
            nodes, time = nodes[some], time[some]
    elif time is None:
        nodes, time = _timed_nodes(run, comm, given)
    else:
        nodes = _nodes(run, comm, given)
    columns = {"node": _named(run, nodes, given)}
    columns |= {"time": time} if np.ndim(time) else {}
    found = run.predict(nodes, time=time)
    return columns | _predicted(run, found)


def _of_pairs(run: Any, given: dict[str, Any]) -> dict[str, np.ndarray]:
    of: dict[str, Any] = {}
    if run.timed and given.get("at") is None:
        pairs, of["time"] = read_timed(Path(given["pairs"]), run.num_nodes(), 2, run.node_ids)
    else:
        pairs = read_ids(Path(given["pairs"]), run.num_nodes(), 2, run.node_ids)
        of |= {"time": given["at"]} if run.timed else {}
    source, target = _named(run, pairs, given).T
    columns = {"source": source, "target": target}
    columns |= {"time": of["time"]} if np.ndim(of.get("time", 0)) else {}
    of |= {"relation": given["relation"]} if given.get("relation") else {}
    found = run.predict(pairs, **of)
    return columns | _predicted(run, found)


def _predicted(run: Any, found: Any) -> dict[str, np.ndarray]:
    """The columns of predictions: of classes, or numbers."""
    if not isinstance(found, Predictions):
        return {run.number: found}
    columns = found._asdict()
    if run.class_names is not None and not getattr(run, "multilabel", False):
        columns["class_name"] = run.class_names[found.prediction]
    return columns


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


def _timed_nodes(
    run: Any, comm: Communicator, given: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """int32 and int64 `[n]`: the nodes and times in the file `--nodes`."""
    path, names, kind = Path(given["nodes"]), run.node_ids, given.get("node_type")
    every = _nodes(run, comm, {} if kind is None else {"node_type": kind})
    num = every.size if names is None else run.num_nodes()
    ids, time = read_timed(path, num, 1, names)
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
    path: Path, num_nodes: int, width: int = 1, names: NodeIds | None = None
) -> np.ndarray:
    """int32 `[n, width]`: the nodes whose ids are in a text file with `width` ids a line, or in
    an `.npy` file of this shape, `[n]` for a width of 1. With `names` the file has the data
    set's own ids. If these are text, a line is one id, or two ids with a tab or spaces between
    them. Raises `InputError`."""
    what = "node ids" if width == 1 else "pairs of node ids"
    text = names is not None and names.values.dtype == object
    rule = _rule(path, what, num_nodes, names)
    return _nodes_of(path, _read(path, rule, width, text), rule, num_nodes, names)


def read_timed(
    path: Path, num_nodes: int, width: int = 1, names: NodeIds | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """int32 `[n, width]` and `[n]`: the ids and times in a file of `width` ids and a time a
    line, or an `.npy` file `[n, width + 1]`. Times are int64, or text where one is no whole
    number. The ids are those of `read_ids`. Raises `InputError`."""
    text = names is not None and names.values.dtype == object
    what = "a node id" if width == 1 else "two node ids"
    rule = _rule(path, f"{what} and a time, without --at,", num_nodes, names)
    read = _read(path, rule, width + 1, text, timed=True)
    ids, times = read[:, :width], read[:, width]
    if times.dtype != object or all(map(_is_whole, times)):
        times = times.astype(np.int64)
    if not text:
        ids = ids.astype(np.int64)
    return _nodes_of(path, ids, rule, num_nodes, names), times


def _rule(path: Path, what: str, num_nodes: int, names: NodeIds | None) -> str:
    which = f"from 0 to {num_nodes - 1}" if names is None else "of the data set"
    return f"{path} must hold {what} {which}, one a line, or as .npy"


def _read(path: Path, rule: str, width: int, text: bool, timed: bool = False) -> np.ndarray:
    """The numbers or texts `[n, width]` in a file; text where the last one is a time."""
    try:
        if path.suffix == ".npy":
            ids = map_npy(path)
            kinds, given = ("U", "text") if text else ("iu", "ints")
            if ids.dtype.kind not in kinds or ids.shape[1:] != (width,) * (width > 1):
                shape = "[n]" if width == 1 else f"[n, {width}]"
                raise InputError(rule, described(ids), f"Give {given} {shape}.")
            ids = ids.astype(object) if text else ids
        else:
            ids = _of_text(plain_file(path), rule, width, text, timed)
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


def _of_text(path: Path, rule: str, width: int, text: bool, timed: bool) -> np.ndarray:
    numbers, words = width if not text else 0, []
    numbers -= timed and not text
    with open(path, encoding="utf-8-sig") as file:  # which drops a byte order mark
        for number, line in enumerate(file, 1):
            line = line.removesuffix("\n")
            if not line.strip():
                continue
            found = [line]
            if not text:
                found = line.split()
            elif width > 1:
                found = line.split("\t" if "\t" in line else None)
            if len(found) != width or not all(map(_is_whole, found[:numbers])):
                raise InputError(rule, f"{line[:40]!r} in line {number}", "Correct the file.")
            words += found
    return (
        np.array(words, object) if text or timed else np.array(list(map(int, words)), np.int64)
    )


def _is_whole(word: str) -> bool:
    """Whether a word is a whole number of 64 bits."""
    digits = word.removeprefix("-")
    good = digits.isascii() and digits.isdigit() and len(word) < 21
    return good and -1 << 63 <= int(word) < 1 << 63
