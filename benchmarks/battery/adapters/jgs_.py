"""jgs under trial. Its ranks are devices of one process."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jgs
from jgs.data import Dataset
from jgs.dist import Mesh, RankParts, open_parts, rank_loader, write_parts
from jgs.graph.schema import Schema
from jgs.sampling import Labor, Ladies, Links, Loader, Neighbors, Node2Vec, Seeds, Shadow, Walk

jitted = cache(jax.jit)
RELATIONS = tuple(("node", f"r{i}", "node") for i in range(3))
call = cache(lambda sampler: jax.jit(partial(sampler.sample, capacity=None)))


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        mode: Any = "r" if disk else None
        arrays = {f.stem: np.load(f, mmap_mode=mode) for f in folder.glob("*.npy")}
        more: Any = {"edge_time": arrays.get("time"), "edge_type": arrays.get("kind")}
        if "kind" in arrays:
            more["schema"] = Schema((("node", arrays["indptr"].size - 1),), RELATIONS)
        self.graph = jgs.Graph(*map(arrays.get, ("indptr", "indices", "weight")), **more)
        self.end = self.graph.num_nodes
        self.state = cache(lambda sampler: sampler.init(self.graph))

    @staticmethod
    def versions() -> dict[str, str]:
        return {name: version(name) for name in ("jgs", "jax")}

    def sample(self, sampler: Any, key: Any, seeds: Any) -> Any:
        made = call(sampler)(as_key(key), self.graph, self.state(sampler), seeds)
        assert not getattr(made, "overflow", False)
        return jax.device_get(made)

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        cutoffs, excluded = (how.pop(name, None) for name in ("cutoffs", "excluded"))
        pad = (0, how.pop("padding", 0))
        hops = [{f"r{i}": n for i, n in enumerate(k)} if np.ndim(k) else k for k in fanouts]
        how["edges"] = ("id",) if cutoffs is None else ("id", "time", "elapsed")
        if law != "labor":
            how |= {"weighted": law == "weight", "latest": law == "latest"}
        sampler: Any = (Labor if law == "labor" else Neighbors)(hops, **how)
        seeds = np.pad(seeds, pad, constant_values=self.end)
        cutoffs = None if cutoffs is None else np.pad(cutoffs, pad)
        return edges_of(self.sample(sampler, key, Seeds(seeds, cutoffs, excluded)))

    def walk(self, key: Any, roots: Any, length: int, p: float = 1, q: float = 1) -> Any:
        walker: Any = Walk(length) if p == q == 1 else Node2Vec(length, p, q)
        nodes = self.sample(walker, key, roots).nodes.astype(np.int64)
        return np.where(nodes == self.end, -1, nodes)

    def negatives(self, key: Any, sources: Any, number: int) -> Any:
        """Of a pair of each source and one that it is joined to, with another target."""
        graph, links = self.graph, Links(number, sides="dst", filtered=True)
        joined = np.asarray(graph.indices)[np.asarray(graph.indptr)[sources]]
        items = {"src": sources, "dst": joined}
        seeds, found = jax.device_get(jitted(links)(as_key(key), graph, items))
        source, nth = np.nonzero(found["negative_mask"])
        return np.stack([sources[source], seeds.nodes[found["negative_rows"][source, nth]]], 1)

    def subgraph(self, key: Any, seeds: Any, fanouts: Any) -> Any:
        return ends_of(self.sample(Shadow(tuple(fanouts)), key, seeds), 0)

    def layer(self, key: Any, seeds: Any, size: int) -> Any:
        return np.unique(ends_of(self.sample(Ladies((size,)), key, seeds), 0)[:, 0])

    def epoch(self, key: Any, seeds: Any, batch: int, start: int) -> Any:
        of = self.graph, seeds, batch, Neighbors((3,), edge_ids=True)
        with Loader(*of, key=as_key(key)) as first, Loader(*of, key=as_key(key)) as second:
            for _ in range(start):
                next(iter(first))
            second.load_state_dict(first.state_dict())
            return [edges_of(jax.device_get(one))[0] for one in second]

    def ranks(self, key: Any, seeds: Any, number: int, mode: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            none = np.zeros((self.end, 1), np.float32), np.zeros(self.end, np.int32)
            data = Dataset.from_arrays(self.graph, *none, {"train": seeds})
            write_parts(folder, data, np.arange(self.end) % 6, 6, method="random")
            comm, size = Mesh(jax.devices()[:number]), len(seeds) // number
            of = comm, RankParts(comm, open_parts(folder)), size, (5, 3)
            with rank_loader(*of, key=as_key(key), mode=mode) as batches:
                batch = jax.device_get(next(iter(batches))[0])
        each = [jax.tree.map(lambda array, r=rank: array[r], batch) for rank in range(number)]
        hops = ([ends_of(one, block) for one in each] for block in (1, 0))
        return [np.unique(np.concatenate(hop), axis=0) for hop in hops]


def ends_of(batch: Any, number: int) -> np.ndarray:
    """The pairs of nodes `[n, 2]` that the edges of a block join."""
    block = batch.blocks[number]
    targets = np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr))
    return batch.nodes[np.stack([block.indices[: targets.size], targets], axis=1)]


def as_key(key: tuple[int, int]) -> Any:
    made = jax.random.key(np.uint32(key[0]), impl="threefry2x32")
    return jax.random.fold_in(made, key[1]) if key[1] else made


def edges_of(batch: Any) -> list[np.ndarray]:
    """The edges of each hop, with their cutoffs if they have times."""
    found = []
    for block in batch.blocks[::-1]:
        edges = block.edge_id
        if block.edge_time is not None:
            until = block.edge_time + block.edge_columns["elapsed"].astype(np.int64)
            edges = np.stack([edges, until], axis=1)
        found.append(edges[: block.num_edges])
    return found
