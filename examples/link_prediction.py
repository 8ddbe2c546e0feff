"""Link prediction in your own loop, with a decoder of your own.

    python examples/link_prediction.py [EPOCHS]

The stage `Links` makes the seeds of a batch of edges: their ends, and another target for each,
to which the source has no edge. It leaves the edges, their reverses and parallel ones out of
every hop, so no message passes along what is to be predicted. On USAir the AUC of the held-out
tenth is 0.966 after 60 epochs, the mean of seeds 0 and 1.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import Decoder, GraphSAGE, PairModel, binary_cross_entropy
from jgs.sampling import Links, Loader, Neighbors, has_edge
from jgs.train import auc, exact_inference


class BiasedDot(Decoder):
    """A dot product, and the target's bias, the last column of its row."""

    def __call__(self, src, dst, relation=None):
        return (src[..., :-1] * dst[..., :-1]).sum(-1) + dst[..., -1]


@nnx.jit
def train_step(model, optimizer, batch, x, key):
    gradients = nnx.grad(lambda model: binary_cross_entropy(model(batch, x, key=key)))(model)
    optimizer.update(model, gradients)


def positions(graph):
    """Features of nodes that have none: eigenvectors of the adjacency, and degrees."""
    degree = np.maximum(np.asarray(graph.degrees()), 1)
    matrix = graph.to_scipy().toarray() / np.sqrt(degree * degree[:, None])
    values, vectors = np.linalg.eigh(matrix)
    scaled = vectors[:, -32:] * values[-32:] * np.sqrt(graph.num_nodes)
    return jnp.asarray(np.c_[scaled, np.log(degree)], jnp.float32)


def held_out_auc(pairs, num_nodes, seed, epochs):
    """The AUC of a tenth of the pairs among as many pairs that no edge joins."""
    rng = np.random.default_rng(seed)
    held, train = np.split(rng.permutation(pairs), [len(pairs) // 10])
    graph = jgs.Graph.from_edges(*train.T, num_nodes, symmetric=True)
    whole = jgs.Graph.from_edges(*pairs.T, num_nodes, symmetric=True)
    rngs, key = nnx.Rngs(seed), jax.random.key(seed)
    features = positions(graph)
    encoder = GraphSAGE(33, 64, 65, num_layers=2, dropout=0.3, rngs=rngs)
    model = PairModel(encoder, BiasedDot(), rngs=rngs)
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2, weight_decay=0.1), wrt=nnx.Param)
    items, stage = {"src": train[:, 0], "dst": train[:, 1]}, Links(sides="dst", filtered=True)
    loader = Loader(graph, items, 512, Neighbors((15, 15)), before=stage, key=key)
    for epoch in range(epochs):
        for step, batch in enumerate(loader, epoch * len(loader)):
            x = batch.gather(features)
            train_step(model, optimizer, batch, x, jax.random.fold_in(key, step))
    infer = exact_inference(encoder, graph, features)  # messages of training edges alone
    rows = jnp.asarray(infer(nnx.state(encoder), np.arange(num_nodes)))
    absent = rng.integers(0, num_nodes, (20 * len(held), 2))
    absent = absent[(absent[:, 0] != absent[:, 1]) & ~np.asarray(has_edge(whole, *absent.T))]
    src, dst = np.concatenate([held, absent[: len(held)]]).T
    scores = BiasedDot()(rows[src], rows[dst]) + rows[src, -1]  # both biases, of any pair
    return auc(np.asarray(scores), np.arange(len(src)) < len(held))


if __name__ == "__main__":  # 10 communities, in which most edges are
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 300, (2, 2000))
    ends[1] = np.where(rng.random(2000) < 0.8, ends[0] // 30 * 30 + ends[1] % 30, ends[1])
    pairs = np.unique(np.sort(ends.T[ends[0] != ends[1]], axis=1), axis=0)
    found = held_out_auc(pairs, 300, 0, int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    print(f"AUC of held-out links: {found:.4f}")
