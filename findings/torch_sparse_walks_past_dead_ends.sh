#!/usr/bin/env bash
# One would guess: a random walk that comes to a node without out-edges stays there, as with
# `torch_cluster.random_walk`, or ends, as with DGL's -1. So a walk never joins two nodes that no
# edge joins, and PyG's `GraphSAINTRandomWalkSampler` draws nodes that lie on one path.
#
# What happens: `torch_sparse.SparseTensor.random_walk` takes the next entry of the matrix, whose
# row is that of another node. From 0 -> 1 and 2 <-> 3 a walk goes 0, 1, 3, 2, without a word.
# GraphSAINT's sampler, which walks so, puts 0, 1 and 3 into one subgraph. A citation graph, where
# many papers cite none that is in the graph, has many such ends.
#
# Seen on 2026-11-29, torch-sparse 0.6.18, torch 2.13.0, PyG 2.8.1, Python 3.11, without pyg-lib:
#   walks from 0: [(0, 1, 3, 2)] subgraphs: [(0, 1, 3), (1, 2, 3), (2, 3)]
#
# What jgs does: a walk ends at such a node and has `num_nodes` in its remaining places, and
# `Saint("walk")` has no node of these (docs/from_pyg.md says the difference).
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
from torch_geometric.loader import GraphSAINTRandomWalkSampler

print("torch-sparse", torch_sparse.__version__, "torch", torch.__version__, end=" ")
print("PyG", torch_geometric.__version__)
edges = torch.tensor([[0, 2, 3], [1, 3, 2]])
matrix = torch_sparse.SparseTensor(row=edges[0], col=edges[1], sparse_sizes=(4, 4))
walks = sorted({tuple(walk) for walk in matrix.random_walk(torch.zeros(99).long(), 3).tolist()})
torch.manual_seed(0)
data = Data(edge_index=edges, x=torch.arange(4), num_nodes=4)
loader = GraphSAINTRandomWalkSampler(data, 1, walk_length=2, num_steps=99)
subgraphs = sorted({tuple(sorted(batch.x.tolist())) for batch in loader})
print("walks from 0:", walks, "subgraphs:", subgraphs)
assert walks == [(0, 1, 3, 2)], "changed: a walk ends or stays where there is no edge"
assert (0, 1, 3) in subgraphs, "changed: the sampler's walks do not jump"
PROGRAM
