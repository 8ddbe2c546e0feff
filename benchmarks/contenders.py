"""Who is measured at what: the rows of the report, as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

# What "tuned" means for all contenders: glibc's allocator keeps its memory, in huge pages.
TUNED = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:"
    "glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
)


class Contender(NamedTuple):
    """One way of doing a benchmark.

    Fields:
      name: its name in the report.
      module: the module that its process runs.
      peer: whether it runs in the peers' environment.
      task: the entries that only its own task has.
      settings: the names of the settings that it runs; None means all.
      threads: how many threads it has; None means as many as the run.
    """

    name: str
    module: str
    peer: bool = False
    task: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] | None = None
    threads: int | None = None


class Benchmark(NamedTuple):
    """Fields: its key; its contenders, jgs first; its settings, which the tasks hold."""

    key: str
    contenders: tuple[Contender, ...]
    settings: tuple[dict[str, Any], ...]


def _sample(
    batch: int, *fanouts: int, weighted: bool = False, labor: bool = False, slow: bool = False
) -> dict:
    """A setting of sampling by neighbours or by LABOR-0.

    A slow setting is measured for a quarter of the iterations.
    """
    name = f"B={batch} {fanouts}" + (" by weight" if weighted else "")
    work = {"batch": batch, "fanouts": fanouts, "weighted": weighted, "labor": labor}
    return {"name": name, "slow": slow} | work


UNIFORM = (_sample(1024, 5, 10, 15), _sample(8192, 5, 10, 15), _sample(8192, 15, 10, 5))
WEIGHTED = _sample(1024, 5, 10, 15, weighted=True, slow=True)
ALL_NEIGHBORS = _sample(16, -1, -1, slow=True)


def _walks(name: str, batch: int, walker: str = "walk", slow: bool = False, **options) -> dict:
    """Walks of length 80. A slow setting is measured for a quarter of the iterations."""
    work = {"batch": batch, "walker": walker, "length": 80, "options": options, "slow": slow}
    return {"name": f"{name}, {batch:,} seeds"} | work


def _subgraph(name: str, sampler: str, *fields, batch: int = 1024, slow: bool = False) -> dict:
    """A subgraph by `SAMPLERS[sampler](*fields)`, from `batch` seeds if it takes seeds."""
    work = {"batch": batch, "sampler": sampler, "fields": fields, "slow": slow}
    return {"name": name} | work


def _learned(name: str, sampler: str, *sizes: int, batch: int) -> dict:
    """A sampler that reads features of many nodes. Measured for a quarter of the iterations."""
    work = {"batch": batch, "sampler": sampler, "sizes": sizes, "compact": sampler == "pass"}
    return {"name": f"{name}, {batch} seeds", "slow": True} | work


# DGL cannot draw nodes by the paper's weights. Both sides must find the same subgraphs
# in `SHADOW_ALL`.
SAINT_NODES = _subgraph("SAINT, 6,000 nodes by the paper's weights", "saint", "node", 6000)
SHADOW_ALL = _subgraph("ShaDow (-1,), 64 seeds", "shadow", (-1,), batch=64, slow=True)
SUBGRAPHS = (
    _subgraph("SAINT, 6,000 nodes by degree", "saint", "degree", 6000),
    _subgraph("SAINT, 3,000 walks of length 2", "saint", "walk", 3000, 2),
    _subgraph("SAINT, 4,000 edges", "saint", "edge", 4000, slow=True),
    _subgraph("ShaDow (5, 10), 1,024 seeds", "shadow", (5, 10), slow=True),
    SHADOW_ALL,
)

# About 46,000 targets, 160,000 sources and 470,000 edges on the full graph.
BLOCK = {"name": "block", "batch": 1800, "fanouts": (5, 10, 11), "iterations": 1}

BENCHMARKS = (
    Benchmark(
        "sampling",
        (
            Contender("jgs", "sampling_jgs"),
            Contender(
                "DGL, not fused, int32",
                "sampling_dgl",
                True,
                {"dtype": "int32", "fused": False},
            ),
            Contender(
                "DGL, fused, int64", "sampling_dgl", True, {"dtype": "int64", "fused": True}
            ),
            Contender("GraphBolt", "sampling_graphbolt", True),
            Contender(
                "jgs, 1 thread",
                "sampling_jgs",
                settings=tuple(setting["name"] for setting in UNIFORM),
                threads=1,
            ),
        ),
        (*UNIFORM, WEIGHTED, ALL_NEIGHBORS),
    ),
    Benchmark(
        "links",
        (
            Contender("jgs", "links_jgs", task={"excluded": True}),
            Contender("jgs, nothing excluded", "links_jgs", task={"excluded": False}),
            Contender("DGL", "links_dgl", True, {"dgl": True}),
            Contender("GraphBolt", "links_dgl", True, {"dgl": False}),
        ),
        (_sample(1024, 5, 10, 15) | {"name": "1,024 links (5, 10, 15)"},),
    ),
    Benchmark(
        "labor",
        (
            Contender("jgs", "sampling_jgs"),
            Contender("GraphBolt", "sampling_graphbolt", True),
        ),
        (_sample(1024, 5, 10, 15, labor=True),),
    ),
    Benchmark(
        "layerwise",
        (Contender("jgs", "layerwise_jgs"), Contender("DGL", "layerwise_dgl", True)),
        tuple(
            {"name": f"{sampler} {sizes}", "batch": 512, "sampler": sampler, "sizes": sizes}
            for sampler in ("ladies", "fastgcn")
            for sizes in ((512, 512, 512), (2000, 2000))
        ),
    ),
    Benchmark(
        "learned",
        (Contender("jgs", "learned_jgs"), Contender("DGL", "learned_dgl", True)),
        (
            _learned("AS-GCN 512, 512", "asgcn", 512, 512, batch=512),
            _learned("AS-GCN 128, 128, 128", "asgcn", 128, 128, 128, batch=256),
            _learned("PASS 5, 5", "pass", 5, 5, batch=64),
            _learned("PASS 10, 10", "pass", 10, 10, batch=64),
        ),
    ),
    Benchmark(
        "walks",
        (Contender("jgs", "walks_jgs"), Contender("DGL", "walks_dgl", True)),
        (
            _walks("uniform", 128),
            _walks("uniform", 1024),
            _walks("uniform", 100_000, slow=True),
            _walks("ends with 0.1", 128, stop=0.1),
            _walks("Node2Vec p=2 q=0.5", 1024, "node2vec", p=2, q=0.5),
            _walks("metapath", 1024, "metapath", relations=("high-low", "low-high")),
        ),
    ),
    Benchmark(
        "visits",
        (Contender("jgs", "visits_jgs"), Contender("DGL", "visits_dgl", True)),
        (
            {"name": "PinSAGE, 1,024 seeds", "batch": 1024, "neighbors": 10}
            | {"num_walks": 200, "length": 10, "restart": 0.5},
        ),
    ),
    Benchmark(
        "subgraphs",
        (
            Contender("jgs", "subgraphs_jgs"),
            Contender(
                "DGL",
                "subgraphs_dgl",
                True,
                settings=tuple(setting["name"] for setting in SUBGRAPHS),
            ),
        ),
        (*SUBGRAPHS, SAINT_NODES),
    ),
    Benchmark(
        "aggregation",
        (
            Contender("jgs", "aggregate_jgs", task={"path": "kernel"}),
            Contender("DGL", "aggregate_dgl", True),
            Contender("XLA, padded table", "aggregate_jgs", task={"path": "table"}),
            Contender("XLA, segment_sum", "aggregate_jgs", task={"path": "segment_sum"}),
        ),
        tuple(
            {
                "name": f"{features} features, {'and derivative' if derivative else 'forward'}",
                "features": features,
                "derivative": derivative,
            }
            for features in (100, 256)
            for derivative in (False, True)
        ),
    ),
    Benchmark(
        "attention",
        (
            Contender("jgs", "attention_jgs", task={"path": "kernel"}),
            Contender("DGL", "attention_dgl", True),
            Contender("XLA, segment_sum", "attention_jgs", task={"path": "segment_sum"}),
        ),
        tuple(
            {
                "name": f"{heads} heads of {features}, "
                f"{'and derivative' if derivative else 'forward'}",
                "heads": heads,
                "features": features,
                "derivative": derivative,
            }
            for heads, features in ((4, 64), (8, 8))
            for derivative in (False, True)
        ),
    ),
    Benchmark(
        "step",
        (
            Contender("jgs", "step_jgs"),
            Contender("DGL", "step_dgl", True),
            Contender("jgs, as jgs.train runs", "step_jgs", task={"keep_memory": True}),
        ),
        (
            {
                "name": "GraphSAGE, 100-256-256-47, B=1024 (5, 10, 15), dropout 0.5, Adam",
                "batch": 1024,
                "fanouts": (5, 10, 15),
                "hidden": 256,
                "classes": 47,
                "dropout": 0.5,
                "lr": 3e-3,
            },
        ),
    ),
)
NUM_FEATURES, NUM_CLASSES = 100, 47
