"""What `python -m jgs.predict` does after parsing its flags, on one machine or many ranks; and
the file that it writes: columns of numbers, a row for each node.

An `.npy` file is a structured array with a field for each column, of the dtypes below. A `.csv`
file begins with a line of column names. A `.parquet` file needs pyarrow (the extra `tables`);
each row of a matrix is a list of fixed size. The columns are:

    node          int32, the id in the data set; if the data set has ids of its own
                  (`jgs.NodeIds`), these, int64 or text; otherwise with `--node-type` the id
                  in the type
    prediction    int32, the class; for multi-label data bool `[C]`, in CSV the predicted
                  labels with spaces between them
    probability   float32, the probability of that class; for multi-label data `[C]`, in CSV
                  those of the predicted labels
    class_name    text, the name of the class, where the data set names its classes; not for
                  multi-label data
    embedding     float32 `[W]`, in CSV W columns `embedding_0`, `embedding_1`, ...; with
                  `--embed`, in place of the other columns after `node`
    value         float64, where labels are numbers, in their unit; of several numbers `[T]`,
                  in CSV T columns `value_0`, `value_1`, ...; in place of the other columns
                  after `node`

For a run on labels at moments a row is a node at a time. Without `--at` it has the column
`time`, int64, after `node`.

For a run of `--task links` or `--task edges` a row with `--pairs` is a pair: `source` and
`target`, ids as in `node`, the pair's own `time` if the file of pairs has it, int64, and
`probability`; of edges `prediction` and `probability`, or `value`, float64. With `--top-k` it
is one of a node's targets: `source`, `target`, `place`, int32 from 1 on, and `score`, float32.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jgs.allocator import keep_freed_memory
from jgs.dist.communicators.collect import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Communicator
from jgs.dist.communicators.launch import together
from jgs.dist.supervision.watchdog import Watch
from jgs.errors import InputError, refuse, refusing
from jgs.files.writing import whole_file
from jgs.options import flag
from jgs.predict.ids import ids_of, named, read_ids
from jgs.predict.open import open_run
from jgs.predict.run import Run
from jgs.train.loop.job import KEPT
from jgs.train.loop.model import is_contextual
from jgs.train.tasks.embed import EMBEDDINGS

_CHANGED = ("dataset", "root", "partition", "eval_memory", "progress", "seed")
# Which of these a run takes, its class says.
_FLAGS = {"split", "nodes", "node_type", "embed", "fanouts", "seed", "at"}
_FLAGS |= {"pairs", "top_k", "new_only", "relation"}
ENDINGS = (".csv", ".npy", ".parquet")
_ROWS = 1 << 14  # written at a time


def predict(given: dict[str, Any], watch: Watch | None) -> dict[str, Any] | int:
    """Writes what the flags `given` ask for, with all other ranks; returns what is printed."""
    keep_freed_memory()
    said = "none is written"
    return together(
        lambda comm, _: _predict(comm, given), given, lambda: 60.0, lambda: said, watch
    )


def _predict(comm: Communicator, given: dict[str, Any]) -> dict[str, Any] | int:
    out = Path(os.path.abspath(given["out"]))
    everywhere(comm, lambda: check_out(out) if comm.rank == 0 else None)
    changed = {name: given[name] for name in _CHANGED if name in given}
    run = open_run(given["run_dir"], comm=comm, **changed)
    config, own = run.config, Path(given["run_dir"])
    places = [config.dataset, os.path.join(config.root, config.dataset)]
    read: list[Any] = places if config.partition is None else [config.partition]
    read += [given.get("pairs"), given.get("nodes"), own / EMBEDDINGS, own / KEPT]
    everywhere(comm, lambda: check_not_read(out, read) if comm.rank == 0 else None)
    everywhere(comm, lambda: _check(run, given))
    columns = _columns(run, comm, given)
    everywhere(comm, lambda: write(out, columns) if comm.rank == 0 else None)
    if comm.rank > 0:
        return 0
    rows = len(next(iter(columns.values())))
    return {
        "out": str(out),
        "pairs" if "pairs" in given or "top_k" in given else "nodes": rows,
        "columns": list(columns),
        **({} if run.best_epoch is None else {"best_epoch": run.best_epoch}),
        "run_dir": os.path.abspath(given["run_dir"]),
    }


def _check(run: Any, given: dict[str, Any]) -> None:
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
    lists = [flag(name) for name in ("relation", "new_only") if given.get(name)]
    refuse(
        ("fanouts" in given if embed else "seed" in given and "fanouts" not in given,
         "--fanouts, and the --seed of what is drawn, must be for predictions by sampled "
         "neighbours", drawn, leave),
        (given.get("task_table") and (not run.timed or "split" not in given or asked),
         "--task-table must be beside --split alone, for a run on rows at moments",
         " ".join(flag(n) for n in sorted(asked)) or "another run, or no --split",
         "Give --split test."),
        ("pairs" in own and len(asked) != 1 and not given.get("task_table"),
         f"a run of --task {run.config.task} must be asked for one of {ways}",
         " and ".join(flag(n) for n in sorted(asked)) or "no --pairs",
         "Name a file of pairs, or give another of these."),
        (run.timed and not given.keys() & {"at", "split", "nodes", "pairs"},
         "--at must say the time for a run that sees times", "none",
         "E.g. --at 7, or a date such as 2024-05-01."),
        ("at" in given and "split" in given,
         "--at must be for other rows than a split's, which have times of their own",
         f"--at {given.get('at')} and --split {given.get('split')}", "Leave one out."),
        ("eval_memory" in given and (run.timed or is_contextual(run.config)),
         "--eval-memory must be for exact rows", "a run whose rows are of samples", leave),
        (lists and "embed" in asked,
         f"{', '.join(lists)} must be for pairs or lists", "--embed", leave),
        ("node_type" in given and pairs,
         "--node-type must be for nodes, whose ids are then those of the type", "--pairs",
         "Leave it out, and give ids of the graph."),
        (given.get("new_only") and pairs, "--new-only must be for --top-k", "--pairs", leave),
    )  # fmt: skip


def _columns(run: Run, comm: Communicator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns of the file; on ranks other than 0 those that name the rows."""
    if given.get("task_table"):
        # A slow import, of what reads databases.
        from jgs.predict.task_table import task_table

        return everywhere(comm, lambda: task_table(run, given["split"]))
    nodes, time = _asked(run, comm, given)
    relation = {"relation": given["relation"]} if given.get("relation") else {}
    if "top_k" in given:
        k, new = given["top_k"], given.get("new_only", False)
        at = {} if time is None else {"time": time}
        best, scores = run.recommend(nodes, k, new_only=new, **relation, **at)
        listed = best >= 0
        counts = listed.sum(axis=1)
        places = np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), best.shape)
        at = {"time": np.repeat(time, counts)} if np.ndim(time) else {}
        return {
            "source": _named(run, np.repeat(nodes, counts), given),
            **at,
            "target": _named(run, best[listed], given),
            "place": places[listed],
            "score": scores[listed],
        }
    ends = ("node",) if nodes.ndim == 1 else ("source", "target")
    columns = dict(zip(ends, np.atleast_2d(_named(run, nodes, given).T), strict=True))
    columns |= {"time": time} if np.ndim(time) else {}
    if given.get("embed"):
        return columns | {"embedding": run.embed(nodes)}
    of = {"fanouts": given["fanouts"]} if "fanouts" in given else {}
    of |= relation if time is None else {**relation, "time": time}
    found = run.predict(nodes, **of)
    return columns if found is None else columns | run.answer.columns(found)


def _named(run: Run, nodes: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    if run.node_ids is not None:
        return run.node_ids[nodes]
    return named(run.schema, nodes)[1] if run.schema and "node_type" in given else nodes


def _asked(run: Run, comm: Communicator, given: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """The nodes int32 `[n]` or pairs `[n, 2]` that are asked for, and their times or None."""
    kind, at, names, num = (
        given.get("node_type"),
        given.get("at"),
        run.node_ids,
        run.num_nodes(),
    )
    timed = run.timed and at is None
    if isinstance(at, int) and run.timed and run.time_unit and comm.rank == 0:
        date = np.array(at, f"M8[{run.time_unit}]")
        logging.getLogger("jgs").info("--at %d is %s, in the unit %s", at, date, run.time_unit)
    if "pairs" in given:
        pairs, time = read_ids(Path(given["pairs"]), num, 2, names, timed)
        return pairs, time if timed else at
    if kind is None and not {"nodes", "split", "embed"} & given.keys():
        # Of other types the model has learned nothing.
        lists = "top_k" in given
        kind = run.source_type(given.get("relation")) if lists else run.labelled_type
        if kind is not None and comm.rank == 0:
            logging.getLogger("jgs").info("of all nodes of the type %s", kind)
    every = everywhere(comm, lambda: ids_of(kind and run.schema, num, node_type=kind))
    if "split" in given:
        own, time = run.rows(given["split"])
        some = slice(None) if kind is None else np.isin(own, every)
        return own[some], time if time is None else time[some]
    if "nodes" not in given:
        return every, at
    path, read = Path(given["nodes"]), []

    def size() -> str:
        ids, time = read_ids(path, every.size if names is None else num, 1, names, timed)
        wrong = np.setdiff1d(ids, every)[:1].tolist() if names is not None and kind else []
        if names is not None and wrong:
            raise InputError(
                f"every id in {path} must be one of a node of the type {kind}",
                repr(names[wrong[0]]),
                "Leave it out, or give its type.",
            )
        read.append(every[ids[:, 0]] if names is None else ids[:, 0])
        return json.dumps([len(ids), time is not None and [time.tolist(), time.dtype.str]])

    count, times = json.loads(broadcast_text(comm, size))
    own = broadcast_arrays(comm, read[0] if read else np.zeros(count, np.int32))
    return own, np.array(*times) if timed else at


def check_out(path: Path) -> None:
    refuse(
        (path.suffix not in ENDINGS, f"--out must end in {', '.join(ENDINGS)}", path,
         "Name the format by the ending."),
        (path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None,
         "an --out in .parquet must have pyarrow", "not installed",
         "pip install 'jgs[tables]', or name a .csv or .npy file."),
        (path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK),
         "--out must name a file in a folder that can be written", path, "Make the folder."),
    )  # fmt: skip


def check_not_read(path: Path, read: Iterable[Any]) -> None:
    """Raises `InputError` where `path` is a file that a run reads, or is in a folder that it
    reads. `read` are files and folders, and None."""
    for place in map(Path, filter(None, read)):
        there = path.exists() and place.exists()
        if there and (path.samefile(place) or place.resolve() in path.resolve().parents):
            raise InputError(
                "--out must not replace a file that the run reads, or one in a folder of those",
                path,
                "Name another file.",
            )


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes the columns, `[n]` or `[n, W]` each, whole or not at all. Raises `InputError`."""
    rule = f"{path} must be writable, with room on its disk"
    with refusing(OSError, rule, "Free space, or choose another."), whole_file(path) as file:
        _WRITERS[path.suffix](file, columns)


def _pieces(columns: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    num = len(next(iter(columns.values())))
    for begin in range(0, max(num, 1), _ROWS):
        yield {name: array[begin : begin + _ROWS] for name, array in columns.items()}


def _write_npy(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    columns = {name: a.astype(str) if a.dtype == object else a for name, a in columns.items()}
    dtype = np.dtype([(name, a.dtype, a.shape[1:]) for name, a in columns.items()])
    num = len(next(iter(columns.values())))
    header = {"descr": dtype.descr, "fortran_order": False, "shape": (num,)}
    np.lib.format.write_array_header_1_0(file, header)
    for piece in _pieces(columns):
        rows = np.empty(len(next(iter(piece.values()))), dtype)
        for name, array in piece.items():
            rows[name] = array
        file.write(rows.tobytes())


def _write_csv(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    for number, piece in enumerate(_pieces(columns)):
        texts = _texts(piece)
        if number == 0:
            file.write((",".join(texts) + "\n").encode())
        lines = zip(*texts.values(), strict=True)
        file.write("".join(",".join(line) + "\n" for line in lines).encode())


def _texts(columns: dict[str, np.ndarray]) -> dict[str, Iterable[str]]:
    texts: dict[str, Iterable[str]] = {}
    for name, rows in columns.items():
        if name == "embedding" or (name == "value" and rows.ndim == 2):
            texts |= {f"{name}_{unit}": map(str, own) for unit, own in enumerate(rows.T)}
        elif rows.dtype.kind in "UO":
            texts[name] = map(_quoted, rows)
        elif rows.ndim == 1:
            texts[name] = map(str, rows)
        else:
            labels = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
            shown = labels if name == "prediction" else rows
            both = zip(shown, columns["prediction"], strict=True)
            texts[name] = [" ".join(map(str, row[predicted])) for row, predicted in both]
    return texts


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _write_parquet(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    import pyarrow  # an optional dependency, and a slow import
    import pyarrow.parquet

    def column(rows: np.ndarray) -> Any:
        flat = pyarrow.array(rows.reshape(-1))
        if rows.ndim == 1:
            return flat
        return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])

    pieces = _pieces(columns)
    tables = (pyarrow.table({n: column(a) for n, a in piece.items()}) for piece in pieces)
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


_WRITERS = dict(zip(ENDINGS, (_write_csv, _write_npy, _write_parquet), strict=True))
