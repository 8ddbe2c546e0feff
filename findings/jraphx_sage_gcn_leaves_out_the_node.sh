#!/usr/bin/env bash
# One would guess: SAGEConv(aggr="gcn") of JraphX, the layers of PyG in Flax NNX, is the GCN aggregator of
# the GraphSAGE paper (Hamilton et al. 2017, section 3.3), as DGL's SAGEConv(aggregator_type="gcn") is: the
# mean over a node and its neighbours.
#
# What happens: it is the sum over the neighbours alone. The node's own row is in no term, so a node without
# neighbours is the bias whatever its features are, and a hub's row grows with its degree. The source says
# that self-loops are there "by default in GCN", but none are added.
#
# Seen on 2026-12-01, jraphx 0.1.0, flax 0.12.8, jax 0.10.2, Python 3.11. Rows 1, 10 and 100, edges 1->0 and
# 2->0, weight 1, no bias:
#   jraphx: 110.0 0.0 0.0
#   the paper: 37.0 10.0 100.0
#   jraphx, with self-loops added and divided by degree + 1: 37.0 10.0 100.0
#
# What jgs does: its `SAGEConv` has no such aggregator; `GCNConv` counts the node itself.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jraphx==0.1.0 jax==0.10.2 jaxlib==0.10.2 flax==0.12.8
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PROGRAM'
from importlib.metadata import version

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jraphx.nn.conv import SAGEConv

print("jraphx", version("jraphx"), "flax", flax.__version__, "jax", jax.__version__)
rows, edges = np.float32([[1], [10], [100]]), np.array([[1, 2], [0, 0]])
layer = SAGEConv(1, 1, aggr="gcn", bias=False, rngs=nnx.Rngs(0))
layer.lin.kernel[...] = jnp.ones((1, 1))
loops = np.concatenate([edges, [np.arange(3)] * 2], axis=1)
degrees = np.bincount(loops[1])


def numbers(values):
    return np.asarray(values).reshape(-1).round(3).tolist()


found = numbers(layer(jnp.array(rows), jnp.array(edges)))
paper = numbers([rows[loops[0, loops[1] == node]].mean() for node in range(3)])
mended = numbers(layer(jnp.array(rows), jnp.array(loops)).reshape(-1) / degrees)
print("jraphx:", *found)
print("the paper:", *paper)
print("jraphx, with self-loops added and divided by degree + 1:", *mended)
assert mended == paper == [37, 10, 100]
assert found == [110, 0, 0], "changed: the node itself, or the mean"
PROGRAM
