#!/usr/bin/env bash
# One would guess: PyG's `GraphSAINTEdgeSampler` draws an edge by the law of the GraphSAINT paper
# (Zeng et al. 2020, section 3.4), in proportion to 1 / deg(u) + 1 / deg(v), as DGL's
# `SAINTSampler("edge")` does: edges of hubs are rare.
#
# What happens: the degrees are inverted twice, so an edge is drawn in proportion to
# deg(u) + deg(v). Edges of hubs are the likeliest, the contrary of what the law is for.
#
# Seen on 2026-11-29, PyG 2.8.1, torch-sparse 0.6.18, torch 2.13.0, Python 3.11. A star of ten
# leaves and one pair of nodes, all edges both ways, one edge a subgraph, 4,000 subgraphs:
#   share of the pair: 0.0168; by the paper 4 / 26 = 0.1538; by the sum of degrees 0.0179
#
# What jgs does: `Saint("edge", n)` has the law of the paper, and a test compares its shares
# (docs/from_pyg.md says the difference).
set -euo pipefail
python=${PYTHON:-python3.11}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
pip=("$folder/env/bin/pip" install --quiet)
"${pip[@]}" torch==2.13.0 numpy scipy "setuptools<80" wheel
export FORCE_ONLY_CPU=1  # torch-sparse is compiled here, which takes some minutes
"${pip[@]}" --no-build-isolation torch-scatter==2.1.2 torch-sparse==0.6.18
"${pip[@]}" torch_geometric==2.8.1
"$folder/env/bin/python" - <<'PROGRAM'
import torch
import torch_geometric
import torch_sparse
from torch_geometric.data import Data
from torch_geometric.loader import GraphSAINTEdgeSampler

print("PyG", torch_geometric.__version__, "torch-sparse", torch_sparse.__version__, end=" ")
print("torch", torch.__version__)
hub, leaves = [0] * 10, list(range(1, 11))
edges = torch.tensor([[*hub, *leaves, 11, 12], [*leaves, *hub, 12, 11]])
data = Data(edge_index=edges, x=torch.arange(13), num_nodes=13)
torch.manual_seed(0)
count = 4000
loader = GraphSAINTEdgeSampler(data, 1, num_steps=count)
share = sum(11 in batch.x.tolist() for batch in loader) / count
paper, degrees = 4 / (4 + 20 * 1.1), 4 / (4 + 20 * 11)
print(f"share of the pair {share:.4f}; by the paper {paper:.4f}, by the degrees {degrees:.4f}")
assert abs(share - degrees) < 0.01, "changed: not in proportion to the sum of the degrees"
PROGRAM
