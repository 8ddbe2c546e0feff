"""One run of relational-transformer's sampler, for `benchmarks.contexts`, in a Python that has
it: MADE FOLDER WAY. What it prepares lies in MADE, for the runs after the first."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np

_WIDTH, _CALLS, _CELLS = 16, 5, 1024
_SEEDS = {"hops": 128, "walks": 16}
_WALKS = {"hops": (0, 0), "walks": (10_000, 20)}


def engine() -> Any:
    """Its Rust library, without the package around it, which imports torch."""
    (path,) = (
        Path(p) / "rt" / "rustler.abi3.so" for p in sys.path if (Path(p) / "rt").is_dir()
    )
    spec = importlib.util.spec_from_file_location("rustler", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main(made: Path, folder: Path, way: str) -> None:
    rustler, name = engine(), folder.name
    if not (made / name / "meta.json").exists():
        rustler.preprocess(str(folder), str(made), source=str(folder), skip_tasks=False)
        texts = json.loads((made / name / "text.json").read_text())
        zeros = np.zeros((max(len(texts), 1), _WIDTH), ml_dtypes.bfloat16)
        zeros.tofile(made / name / "text_emb_none.bin")
        meta = json.loads((made / name / "meta.json").read_text())
        own = {"none": {"file": "text_emb_none.bin", "d_text": _WIDTH}}
        meta.setdefault("text_embeddings", {}).update(own)
        (made / name / "meta.json").write_text(json.dumps(meta))
    info = json.loads((made / name / "table_info.json").read_text())["churn:Train"]
    columns = json.loads((made / name / "column_index.json").read_text())
    walks, length = _WALKS[way]
    sampler = rustler.Sampler(
        dataset_tuples=[(name, "churn", info["node_idx_offset"], info["num_nodes"])],
        **{"global_rank": 0, "local_rank": 0, "world_size": 1},
        **{"local_ctx_size_list": [256], "bfs_width_list": [32]},
        **{"num_walks": walks, "walk_length": length, "prefer_latest_list": [True]},
        **{"mask_prob_max": 0.0, "embedder": "none", "pre_dir": str(made), "d_text": _WIDTH},
        **{"shuffle_seed": 0, "context_seed": 0, "items_per_task": 2000},
        **{"target_columns": [columns["churn of churn"]], "columns_to_drop": [[]]},
        **{"cutoff_timestamps": [None], "quiet": True, "ignore_data_errors": False},
        **{"num_prev_skipped": 0, "mmap_populate": True, "legacy_boolean": False},
        **{"timeout_per_item": 1000.0, "vector_db_path": None},
    )
    number, times, busy, rows = _SEEDS[way], [], [], 0.0
    for call in range(_CALLS + 1):
        begun = time.perf_counter(), time.process_time()
        batch = dict(sampler.batch_py(call, number, _CELLS))
        times.append(time.perf_counter() - begun[0])
        busy.append(time.process_time() - begun[1])
        nodes, padding = (batch[n].reshape(number, -1) for n in ("node_idxs", "is_padding"))
        each = zip(nodes, padding.astype(bool), strict=True)
        rows = float(np.mean([len(np.unique(row[~gone])) for row, gone in each]))
    rates = {"contexts": number / median(times[1:]), "busy": number / min(busy[1:])}
    print(json.dumps(rates | {"rows": rows}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), sys.argv[3])
