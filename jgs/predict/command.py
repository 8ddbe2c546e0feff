"""What `python -m jgs.predict` does after parsing its flags, on one machine or many ranks."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from jgs.allocator import keep_freed_memory
from jgs.dist.communicators.broadcast import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Communicator
from jgs.dist.communicators.launch import together
from jgs.dist.supervision.watchdog import Watch
from jgs.errors import InputError, refuse
from jgs.options import flag
from jgs.predict.ids import ids_of, named, read_ids
from jgs.predict.open import open_run
from jgs.predict.output import check_not_read, check_out, write
from jgs.predict.run import Run
from jgs.train.loop.job import KEPT
from jgs.train.tasks.embed import EMBEDDINGS

_CHANGED = ("dataset", "root", "partition", "eval_memory", "progress", "seed")
# Which of these a run takes, its class says.
_FLAGS = {"split", "nodes", "node_type", "embed", "fanouts", "seed", "at"}
_FLAGS |= {"pairs", "top_k", "new_only", "relation"}


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
        "run_dir": str(Path(given["run_dir"]).absolute()),
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
