"""Write an archive of runs, parts, an artifact and a built graph, for the versions to come.

    python tests/kept/write.py tests/kept/VERSION.tar.xz

It is run before a release and before a format changes, with the version to be kept installed.
`tests/test_kept.py` opens every archive. The programs are the commands of users. Each run
has two epochs; what a third one measured and what was predicted lie beside it.
"""

import importlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from jgs import Graph
from jgs.data import Dataset

N = 40
SMALL = "--batch-size 8 --lr 0.05 --no-progress"
NODES = "--fanouts 2 2 --hidden 8"
RUNS = {
    "classes": f"--dataset classes.npz --data-options normalize_features=true {NODES}",
    "halves": f"--dataset labels.npz {NODES} --model gat --feature-dtype float16",
    "codes": f"--dataset numbers.npz {NODES} --sampler labor --feature-dtype int8",
    "parts": f"--partition two {NODES} --model gcn",
    "types": f"--dataset typed {NODES} --model rgcn",
    "typed-parts": f"--partition two-typed {NODES} --model hgt",
    "pairs": f"--task links --dataset edges.csv {NODES} --decoder mlp",
    "events": f"--task links --temporal --dataset events.csv {NODES} --model tgat",
    "edges": f"--task edges --dataset edges.csv {NODES}",
    "vectors": "--task embed --sampler walk --dim 8 --dataset classes.npz",
}
ASKED = {
    "pairs": "--pairs pairs.txt",
    "edges": "--pairs pairs.txt",
    "events": "--pairs timed.txt",
}


def command(*flags: str) -> None:
    """`jgs` with these flags, of which a text may hold several."""
    name, *words = " ".join(flags).split()
    if importlib.import_module(f"jgs.{name}.__main__").main(words):
        raise SystemExit(f"jgs {name} {' '.join(words)} failed")


def write_data() -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(N) % 3
    x = (np.eye(3)[kinds] + rng.random((N, 3))).astype(np.float32)
    src, dst = rng.integers(0, N, (2, 200))
    train, val, test = np.split(rng.permutation(N), [24, 32])
    plain = {"edge_index": np.stack([src, dst]), "features": x}
    plain |= {"train_idx": train, "val_idx": val, "test_idx": test}
    np.savez_compressed("classes.npz", labels=kinds, class_names=["a", "b", "c"], **plain)
    np.savez_compressed("numbers.npz", labels=np.float32(1e6 + 10 * x[:, 0] + kinds), **plain)
    np.savez_compressed("labels.npz", labels=np.float32(x > 0.8), **plain)
    split = rng.choice(["train", "val", "test"], src.size, p=[0.6, 0.2, 0.2])
    table("edges.csv", source=src, target=dst, label=(src + dst) % 2, split=split)
    table("events.csv", source=src, target=dst, time=1_600_000_000 + 60 * np.arange(src.size))
    Path("pairs.txt").write_text("0 1\n5 9\n7 7\n")
    Path("timed.txt").write_text("0 1 1600009000\n5 9 1600012000\n")
    relations = {
        ("author", "writes", "paper"): (rng.integers(0, 20, 100), rng.integers(0, N, 100)),
        ("paper", "cites", "paper"): (src, dst),
        ("paper", "at", "venue"): (np.arange(N), rng.integers(0, 4, N)),
    }
    counts = {"author": 20, "paper": N, "venue": 4}
    graph = Graph.from_relations(counts, relations, both_ways=True)
    features = {"paper": x, "author": rng.random((20, 5), dtype=np.float32)}
    splits = {"train": train, "val": val, "test": test}
    Dataset.from_arrays(graph, features, {"paper": kinds}, splits, name="typed").save("typed")


def table(path: str, **columns: np.ndarray) -> None:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path(path).write_text("\n".join(lines) + "\n")


def write_all() -> None:
    write_data()
    command("partition --parts 2 --method ldg --dataset classes.npz --out two")
    command("partition --parts 2 --method ldg --dataset typed --out two-typed")
    command("data build events.csv --src source --dst target --time time --out built")
    for run, flags in RUNS.items():
        command("train", flags, SMALL, "--epochs 2 --run-dir", run)
        out = f"--out {run}.predicted.csv"
        command("predict --no-progress --run-dir", run, ASKED.get(run, ""), out)
        shutil.copytree(run, "third")
        command("train --resume --no-progress --epochs 3 --run-dir third")
        shutil.move(Path("third", "metrics.jsonl"), f"{run}.jsonl")
        shutil.rmtree("third")
    command("export --run-dir classes --with-graph --batch-sizes 4 --out artifact")
    runs = {run: ASKED.get(run, "") for run in RUNS}
    Path("runs.json").write_text(json.dumps({"folder": os.getcwd(), "runs": runs}))


if __name__ == "__main__":
    archive = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_all()
        with tarfile.open(archive, "w:xz") as file:
            file.add(".", arcname=".")
