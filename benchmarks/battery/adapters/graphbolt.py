"""GraphBolt under trial, by the draws of its graph, hop by hop as its samplers make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch
from dgl.graphbolt.internal import compact_csc_format

from benchmarks.battery.library import NotOffered


class Adapter:
    def __init__(self, folder: Path, disk: bool):
        if disk:
            raise NotOffered("graphs are in memory")
        arrays = {file.stem: torch.from_numpy(np.load(file)) for file in folder.glob("*.npy")}
        self.typed, num_nodes = "kind" in arrays, len(arrays["indptr"]) - 1
        columns = {gb.ORIGINAL_EDGE_ID: torch.arange(len(arrays["indices"]))}
        columns |= {name: arrays[name] for name in ("weight", "time") if name in arrays}
        kinds: dict[str, Any] = {}
        if self.typed:
            kinds = {"node_type_offset": torch.tensor([0, num_nodes])}
            kinds |= {"type_per_edge": arrays["kind"].long(), "node_type_to_id": {"node": 0}}
            kinds["edge_type_to_id"] = {f"node:r{i}:node": i for i in range(3)}
        self.graph = gb.fused_csc_sampling_graph(
            arrays["indptr"], arrays["indices"].long(), edge_attributes=columns, **kinds
        )

    @staticmethod
    def versions() -> dict[str, str]:
        return {"GraphBolt": dgl.__version__, "torch": torch.__version__}

    @staticmethod
    def seed(key: tuple[int, int]) -> None:
        if key[1] == 0:
            gb.seed(key[0])
            torch.manual_seed(key[0])

    def draw(self, key: Any, seeds: Any, fanouts: Any, law: str = "uniform", **how: Any) -> Any:
        if law not in ("uniform", "weight", "labor") or how.pop("padding", 0):
            raise NotOffered("")
        self.seed(key)
        excluded = how.pop("excluded", None)
        nodes = torch.from_numpy(np.ascontiguousarray(seeds))
        asked: Any = {"replace": how.get("replace", False)}
        asked["probs_name"] = "weight" if law == "weight" else None
        if (cutoffs := how.get("cutoffs")) is not None:
            if self.typed or excluded is not None:
                raise NotOffered("")
            return self.timed(nodes, torch.from_numpy(cutoffs), fanouts, asked)
        draw = (
            self.graph.sample_layer_neighbors if law == "labor" else self.graph.sample_neighbors
        )
        hops = []
        for fanout in fanouts:
            asked["fanouts"] = torch.tensor(fanout if self.typed else [fanout])
            hop = draw({"node": nodes} if self.typed else nodes, **asked)
            old = nodes
            nodes, csc = gb.unique_and_compact_csc_formats(
                hop.sampled_csc, {"node": old} if self.typed else old
            )
            ids = hop.original_edge_ids
            if excluded is not None:
                ids = self.left(csc, old, nodes, ids, excluded)
            if self.typed:
                nodes, ids = nodes["node"], torch.cat(list(ids.values()))
            hops.append(ids.numpy())
        return hops

    def timed(self, nodes: Any, until: Any, fanouts: Any, asked: Any) -> Any:
        hops = []
        for fanout in fanouts:
            hop = self.graph.temporal_sample_neighbors(
                nodes, until, torch.tensor([fanout]), edge_timestamp_attr_name="time", **asked
            )
            numbers = hop.sampled_csc.indptr.diff()
            pair = hop.original_edge_ids, torch.repeat_interleave(until, numbers)
            nodes, _, until = compact_csc_format(hop.sampled_csc, nodes, until)
            hops.append(torch.stack(pair, dim=1).numpy())
        return hops

    def left(self, csc: Any, columns: Any, rows: Any, ids: Any, excluded: Any) -> Any:
        """The edges that `exclude_edges` leaves, which names edges by their ends."""
        if self.typed:
            raise NotOffered("")
        edges, graph = torch.from_numpy(excluded), self.graph
        targets = torch.searchsorted(graph.csc_indptr, edges, right=True) - 1
        found = gb.SampledSubgraphImpl(
            csc,
            original_column_node_ids=columns,
            original_row_node_ids=rows,
            original_edge_ids=ids,
        )
        return found.exclude_edges((graph.indices[edges], targets)).original_edge_ids

    def negatives(self, key: Any, sources: Any, number: int) -> Any:
        """As its `UniformNegativeSampler` draws them."""
        self.seed(key)
        pairs = torch.from_numpy(np.stack([sources, sources], axis=1))
        draw = self.graph.sample_negative_edges_uniform_2
        return draw(None, pairs, number)[len(pairs) :].numpy()
