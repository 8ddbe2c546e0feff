"""`rt.rustler` of relational-transformer under trial. It fills contexts of rows around rows of
a task: these are the seeds with their cutoffs, and the facts that their entities draw the edges
of one hop. A batch is so many rows of the task, and another order another seed of the shuffle.
A fact at the cutoff counts as past, so the task's cutoffs are a second earlier."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import contexts_rt
from benchmarks.battery.library import NotOffered

_BEGIN, _END = 1_000_000_000, 2_000_000_000  # of the times, in seconds
engine = cache(contexts_rt.engine)


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        self.arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
        if disk or "kind" in self.arrays:
            raise NotOffered("")
        self.place, self.tasks = tempfile.TemporaryDirectory(), {}

    @staticmethod
    def versions() -> dict[str, str]:
        return {"rt.rustler": version("relational-transformer")}

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        cutoffs = how.pop("cutoffs", None)
        more = law != "uniform" or len(fanouts) > 1 or key[1] > 0
        if more or "excluded" in how or any(how.values()):
            raise NotOffered("")
        until = np.full(len(seeds), _END) if cutoffs is None else cutoffs + _BEGIN - 1
        asked = list(zip(seeds.tolist(), until.tolist(), strict=True))
        near = {n: rows for n, rows in self.tasks.items() if len(rows) <= 9 * len(asked)}
        known = (n for n, rows in near.items() if all(pair in rows for pair in asked))
        name = next(known, None) or self.prepare(asked)
        rows, made = self.tasks[name], Path(self.place.name, "made")
        tables = json.loads((made / name / "table_info.json").read_text())
        columns = json.loads((made / name / "column_index.json").read_text())
        begin, facts = (tables[n]["node_idx_offset"] for n in ("ask:Train", "facts:Db"))
        room, found = 3 * fanouts[0] + 8, []  # cells: two of a fact, one of its source
        sampler = engine().Sampler(
            dataset_tuples=[(name, "ask", begin, len(rows))],
            **{"global_rank": 0, "local_rank": 0, "world_size": 1, "d_text": 1},
            **{"local_ctx_size_list": [room], "bfs_width_list": [fanouts[0]]},
            **{"num_walks": 0, "walk_length": 0, "prefer_latest_list": [False]},
            **{"mask_prob_max": 0.0, "embedder": "none", "pre_dir": str(made)},
            **{"shuffle_seed": int(seeds[0]), "context_seed": key[0]},
            **{"items_per_task": len(rows), "target_columns": [columns["y of ask"]]},
            **{"columns_to_drop": [[]], "cutoff_timestamps": [None], "quiet": True},
            **{"ignore_data_errors": False, "num_prev_skipped": 0, "mmap_populate": False},
            **{"legacy_boolean": False, "timeout_per_item": 1e3, "vector_db_path": None},
        )
        places, every = {rows[pair] for pair in asked}, list(rows)
        for step in range(-(-len(rows) // len(seeds))):
            batch = dict(sampler.batch_py(step, len(seeds), room))
            shown = (batch[name].reshape(-1, room) for name in ("node_idxs", "bfs_depths"))
            for row, at in zip(*(of[batch["batch_mask"]] for of in shown), strict=True):
                if (place := int(row[0]) - begin) in places:
                    edges = np.unique(row[at == 2]).astype(np.int64) - facts
                    cutoff = every[place][1] - _BEGIN + 1
                    found.append(np.stack([edges, np.full(edges.size, cutoff)], axis=1))
        hop = np.concatenate(found)
        return [hop if cutoffs is not None else hop[:, 0]]

    def prepare(self, asked: list[tuple[int, int]]) -> str:
        """Writes a RelBench folder with a task of these seeds, and has it prepared."""
        name, rng, pairs = f"d{len(self.tasks)}", np.random.default_rng(0), np.array(asked)
        self.tasks[name] = {pair: i for i, pair in enumerate(asked)}
        root, made = Path(self.place.name, name), Path(self.place.name, "made")
        (root / "db").mkdir(parents=True)
        (root / "tasks" / "ask").mkdir(parents=True)
        stamp = lambda seconds: seconds.astype("M8[s]").astype("M8[us]")  # noqa: E731
        number, size = np.arange(self.arrays["indptr"].size - 1), self.arrays["indices"].size
        time = self.arrays.get("time", np.arange(size) % 1000) + _BEGIN
        facts = {"id": np.arange(size), "at": stamp(time)}
        facts["target"] = np.repeat(number, np.diff(self.arrays["indptr"]))
        facts["source"] = self.arrays["indices"].astype(np.int64)
        ends = {"id": number, "x": rng.normal(size=number.size)}
        for table, columns in {"nodes": ends, "sources": ends, "facts": facts}.items():
            pq.write_table(pa.table(columns), root / "db" / f"{table}.parquet")
        none: Any = {"pkey": "id", "time_col": None, "fkeys": {}}
        keys = {"fkeys": {"target": "nodes", "source": "sources"}, "time_col": "at"}
        said: Any = {"tables": {"nodes": none, "sources": none, "facts": none | keys}}
        said |= dict.fromkeys(("val_timestamp", "test_timestamp"), "2035-01-01")
        said |= {"name": name, "manifest_version": 1}
        (root / "manifest.yaml").write_text(json.dumps(said))
        for split, some in {"train": pairs, "val": pairs[:2], "test": pairs[:2]}.items():
            rows = {"at": stamp(some[:, 1]), "node": some[:, 0], "y": np.arange(len(some)) % 2}
            pq.write_table(pa.table(rows), root / "tasks" / "ask" / f"{split}.parquet")
        said = {"name": "ask", "kind": "external", "time_col": "at", "manifest_version": 1}
        said |= {"task_type": "binary_classification", "entity_table": "nodes"}
        said |= {"entity_col": "node", "target_col": "y"}
        (root / "tasks" / "ask" / "manifest.yaml").write_text(json.dumps(said))
        engine().preprocess(str(root), str(made), source=str(root), skip_tasks=False)
        texts = max(1, len(json.loads((made / name / "text.json").read_text())))
        np.zeros(texts, ml_dtypes.bfloat16).tofile(made / name / "text_emb_none.bin")
        meta = json.loads((made / name / "meta.json").read_text())
        own = {"none": {"file": "text_emb_none.bin", "d_text": 1}}
        meta.setdefault("text_embeddings", {}).update(own)
        (made / name / "meta.json").write_text(json.dumps(meta))
        return name
