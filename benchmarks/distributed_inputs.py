"""What the distributed benchmark reads, made once in the cache.

It is the graph, its training nodes, and its parts by jgs and by DistDGL; and the graph of
communities with its parts.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import graph, inputs
from benchmarks.__main__ import environment

_REPOSITORY = Path(__file__).parents[1]
NUM_FEATURES, NUM_CLASSES = 100, 47


class Setting(NamedTuple):
    """Fields: the graph's size; the number of training nodes, a multiple of `batch` and of the
    number of ranks; the seeds of each rank's batch."""

    size: graph.Size
    num_train: int
    batch: int


FULL = Setting(graph.QUICK, 40_000, 1000)  # 8 million directed edges
QUICK = Setting(graph.Size(14, 200_000), 4_000, 100)


class Communities(NamedTuple):
    """A graph of planted communities (`jgs.data.load("synthetic")`), whose cuts differ.

    Fields: the numbers of nodes and of directed edges; the number of communities; the
    probability that an edge is drawn within one.
    """

    num_nodes: int
    num_edges: int
    num_communities: int
    homophily: float

    @property
    def name(self) -> str:
        return f"communities-{'-'.join(map(str, self))}"


COMMUNITIES = Communities(1 << 17, 20 << 17, 64, 0.9)
FEW_COMMUNITIES = Communities(1 << 13, 20 << 13, 16, 0.9)


def folder(cache: Path, setting: Setting) -> Path:
    """The folder of the inputs made of the graph. The training nodes are its `train.npy`."""
    place = cache / f"{setting.size.name}-distributed"
    place.mkdir(parents=True, exist_ok=True)
    graph.cached(cache, setting.size)
    if not (place / "train.npy").is_file():
        nodes = np.load(inputs.seeds(cache, setting.size))
        np.save(place / "train.npy", np.sort(nodes[: setting.num_train]))
    return place


def features(cache: Path, setting: Setting) -> Path:
    return inputs.features(cache, setting.size, NUM_FEATURES, NUM_CLASSES)


def parts_jgs(cache: Path, setting: Setting, num_parts: int) -> Path:
    """The folder of parts by METIS, written as `python -m jgs.partition` writes them."""
    place = folder(cache, setting) / f"jgs-{num_parts}"
    if (place / "manifest.json").is_file():
        return place
    import jgs
    from jgs.data import Dataset
    from jgs.graph import as_device
    from jgs.partition.folder import write_parts
    from jgs.partition.nodes import partition_nodes

    whole = jgs.Graph.open(graph.cached(cache, setting.size), verify=False)
    whole = jgs.Graph(whole.indptr, whole.indices)  # without the weights
    read = features(cache, setting)
    x, labels = (np.load(read / f"{name}.npy") for name in ("features", "labels"))
    nodes = np.load(inputs.seeds(cache, setting.size))[setting.num_train :]
    splits = {
        "train_idx": np.load(place.parent / "train.npy"),
        "val_idx": np.sort(nodes[: setting.batch]),
        "test_idx": np.sort(nodes[setting.batch : 2 * setting.batch]),
    }
    data = Dataset("rmat", whole, as_device(x), labels, NUM_CLASSES, **splits)
    assignment = partition_nodes(whole, num_parts, "metis", **splits)
    write_parts(place, data, assignment, num_parts, method="metis")
    return place


def parts_of_communities(cache: Path, graph: Communities, method: str, num_parts: int) -> Path:
    """The folder of parts of the graph, made by one of the `jgs.partition` methods. A fifth of
    the nodes is for training."""
    place = cache / graph.name / f"{method}-{num_parts}"
    if (place / "manifest.json").is_file():
        return place
    import jgs
    from jgs.partition.folder import write_parts
    from jgs.partition.nodes import partition_nodes

    data = jgs.data.load(
        "synthetic",
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_features=NUM_FEATURES,
        num_classes=graph.num_communities,
        homophily=graph.homophily,
    )
    names = ("train_idx", "val_idx", "test_idx")
    splits = {name: getattr(data, name) for name in names}
    assignment = partition_nodes(data.graph, num_parts, method, **splits)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_parts(place, data, assignment, num_parts, method=method)
    return place


def parts_dgl(cache: Path, setting: Setting, num_parts: int, python: Path) -> Path:
    """The folder of DistDGL's parts, by METIS with its balance options.

    Raises `CalledProcessError`.
    """
    place = folder(cache, setting) / f"dgl-{num_parts}"
    done = place / "done"
    if not done.is_file():
        task = {
            "graph": str(graph.cached(cache, setting.size)),
            "features": str(features(cache, setting)),
            "train": str(place.parent / "train.npy"),
            "parts": num_parts,
            "out": str(place),
        }
        subprocess.run(
            [python, "-m", "benchmarks.parts_dgl", json.dumps(task)],
            cwd=_REPOSITORY,
            env=environment(os.cpu_count() or 1, False, peer=True),
            check=True,
            capture_output=True,
        )
        done.touch()
    return place
