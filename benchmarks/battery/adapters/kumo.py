"""Kumo Engine under trial, by `SamplerEngine`. Nodes and edges are rows of two tables: an edge
is a fact with two foreign keys and a time, so a hop of the battery is two of its own.

It has no key, but a seed of the engine; a step is another question to the same engine. Facts
at the cutoff count as past, so it is asked for the moment before."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import diskgraph
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.battery.library import NotOffered

_BEGIN, _END = 1_000_000_000, 2_000_000_000  # of the times, in seconds
_ALL = 1_000_000_000
_MODES = {"uniform": "uniform", "latest": "temporal_most_recent"}


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        if disk:
            raise NotOffered("the index is always on the disk")
        arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
        if "weight" in arrays and folder.name not in ("plain", "renumbered"):
            raise NotOffered("")
        self.indices, num = arrays["indices"], arrays["indptr"].size - 1
        target = np.repeat(np.arange(num), np.diff(arrays["indptr"]))
        kind = arrays.get("kind", np.zeros(target.size, int))
        self.edges = [np.flatnonzero(kind == i) for i in range(kind.max() + 1)]
        time = arrays.get("time", np.zeros(target.size, int)) + _BEGIN
        self.place, ids = tempfile.TemporaryDirectory(), {"dtype": "int64", "stype": "ID"}
        tables = {"nodes": {"id": np.arange(num)}}
        for i, of in enumerate(self.edges):
            columns = {"id": np.arange(of.size), "target": target[of]}
            columns |= {"source": self.indices[of].astype(np.int64)}
            tables[f"r{i}"] = columns | {"at": time[of].astype("M8[s]")}
        said, paths = [], {name: f"{self.place.name}/{name}.parquet" for name in tables}
        for name, columns in tables.items():
            pq.write_table(pa.table(columns), paths[name])
            one = {"pkey": {"name": "id", "dst_key": "id", **ids}, "data_source": "local"}
            one |= {"table_name": name, "source_table_name": name, "cols": [], "fkeys": []}
            if name != "nodes":
                one["time_col"] = {"name": "at", "dtype": "date", "stype": "timestamp"}
                one["fkeys"] = [
                    {"name": end, "dst_table": "nodes", "dst_key": "id", **ids}
                    for end in ("target", "source")
                ]
            said.append(one)
        of_all = {"name": "g", "tables": said}, self.place.name, dict.fromkeys(paths, "1")
        config = diskgraph.DiskgraphConfigConverter(*of_all, source_paths=paths).convert()
        self.index = f"{self.place.name}/index"
        diskgraph.ingest(json.dumps(config), self.index)
        self.engine = lru_cache(4)(lambda seed: diskgraph.SamplerEngine(self.index, seed))
        mapping = self.engine(0).get_type_mapping()
        self.types = (json.loads(mapping) if isinstance(mapping, str) else mapping)[
            "node_types"
        ]

    @staticmethod
    def versions() -> dict[str, str]:
        return {"Kumo Engine": version("kumo-engine")}

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        refused = how.get("replace") or how.get("padding") or "excluded" in how
        if law not in _MODES or refused:
            raise NotOffered("")
        hop = {"mode": _MODES[law], "absent_key_policy": "uniform_fallback"}
        layers = []
        for fanout in fanouts:
            each = fanout if isinstance(fanout, list) else [fanout]
            drawn = {f"r{i}_target_to_nodes_id_reverse": k for i, k in enumerate(each)}
            sources = {f"r{i}_source_to_nodes_id": _ALL for i in range(len(each))}
            for fanouts_of in (drawn, sources):
                named = {name: hop | {"fanout": k} for name, k in fanouts_of.items()}
                layers.append({"fanouts": named, "default_fanout": None})
        cutoffs = how.get("cutoffs")
        until = np.full(len(seeds), _END) if cutoffs is None else cutoffs + _BEGIN - 1
        asked = {"nodes": seeds}, json.dumps({"layers": layers[:-1]}), False, {"nodes": until}
        parts = list(self.engine(key[0]).sample(*asked, True, diskgraph.TimeUnit.Seconds))
        numbers = json.loads(parts[-1]["stats"])["nodes_per_type"]
        hops: list[Any] = [[np.zeros((0, 2), np.int64)] for _ in fanouts]
        for part in parts:
            if part["type"] == "node" and self.types[part["type_id"]] != "nodes":
                of = self.edges[int(self.types[part["type_id"]][1:])]
                seed, row = (part["batch"][name].to_numpy() for name in ("id_a", "id_b"))
                ends = np.cumsum(numbers[part["type_id"]])
                for hop_edges, begin, end in zip(hops, ends[::2], ends[1::2], strict=True):
                    cut = (
                        np.zeros(end - begin, int)
                        if cutoffs is None
                        else cutoffs[seed[begin:end]]
                    )
                    hop_edges.append(np.stack([of[row[begin:end]], cut], axis=1))
        made = [np.concatenate(edges) for edges in hops]
        return made if cutoffs is not None else [edges[:, 0] for edges in made]
