"""`python -m jgs.partition` on the graph of `benchmarks.partition_large`, memory-mapped.

`benchmarks.partition_large` starts it with the graph's folder, the method, the number of parts
and the folder to write.
"""

import sys
from pathlib import Path

import numpy as np

import jgs.data
from jgs import Graph
from jgs.data import Dataset
from jgs.partition.__main__ import main


def load(*_, **__):
    folder = Path(sys.argv[1])
    graph = Graph.open(folder / "graph", verify=False)
    names = ("features", "labels", "train_idx", "val_idx", "test_idx")
    rows, labels, *ids = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
    splits = dict(zip(("train", "val", "test"), ids, strict=True))
    return Dataset.from_arrays(graph, rows, labels, splits, name="rmat", check_values=False)


if __name__ == "__main__":
    jgs.data.load = load
    _, _, method, num_parts, out = sys.argv
    flags = ["--dataset", "rmat", "--method", method, "--parts", num_parts, "--out", out]
    sys.exit(main(flags))
