"""One run of RelGT's tokenizer, for `benchmarks.contexts`: UTILS FOLDER WAY. UTILS is the file
`utils.py` of its repository. Its functions that draw are run without torch: the times are
NumPy's. One process draws."""

from __future__ import annotations

import ast
import json
import random
import sys
import time
import typing
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

_SEEDS, _TOKENS = 8, 300
_DRAW = ("build_adjacency_hetero", "gather_1_and_2_hop_with_seed_time", "_process_one_seed")


def functions(path: Path) -> dict[str, Any]:
    tree = ast.parse(path.read_text())
    chosen = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in _DRAW]
    names = {name: getattr(typing, name) for name in ("Dict", "List", "Optional", "Tuple")}
    space = {"np": np, "random": random, "defaultdict": defaultdict, "HeteroData": Any, **names}
    module = ast.Module([ast.parse("from __future__ import annotations").body[0], *chosen], [])
    exec(compile(module, str(path), "exec"), space)
    return space


class Data(dict):
    """The graph as the functions read it: by type and by edge type."""

    node_types = ("users", "items", "events")
    edge_types = (("events", "of", "users"), ("events", "on", "items"))


def main(utils: Path, folder: Path) -> None:
    tables = {
        name: pq.read_table(folder / "db" / f"{name}.parquet") for name in Data.node_types
    }
    data = Data({name: SimpleNamespace(num_nodes=len(t)) for name, t in tables.items()})
    events = tables["events"]
    data["events"].time = events["time"].to_numpy().astype("M8[s]").astype(np.float64)
    rows = np.arange(len(events))
    for edge, key in zip(Data.edge_types, ("user_id", "item_id"), strict=True):

        class Edges(dict):
            pass

        data[edge] = Edges(edge_index=None)
        data[edge].edge_index = np.stack([rows, events[key].to_numpy()])
    space = functions(utils)
    space["GLOBAL_ADJ"] = space["build_adjacency_hetero"](data)
    space["GLOBAL_ALL_NODES"] = [("users", i) for i in range(data["users"].num_nodes)]
    task = pq.read_table(folder / "tasks" / "churn" / "train.parquet")
    chosen = np.random.default_rng(1).permutation(len(task))[:_SEEDS]
    moments = task["timestamp"].to_numpy().astype("M8[s]").astype(np.float64)[chosen]
    users = task["user_id"].to_numpy()[chosen].tolist()
    begun = time.perf_counter(), time.process_time()
    for i, (user, moment) in enumerate(zip(users, moments.tolist(), strict=True)):
        space["_process_one_seed"]((data, _TOKENS, "users", user, moment, i))
    seconds, busy = time.perf_counter() - begun[0], time.process_time() - begun[1]
    rates = {"contexts": _SEEDS / seconds, "busy": _SEEDS / busy}
    print(json.dumps(rates | {"rows": _TOKENS}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
