"""Nodes without features: every node's input row is learned, in your own Flax loop.

A table of rows is pulled from and pushed to as on many ranks (`jgs.dist.rows.embedding`);
`Alone()` is the communicator of one. Adam touches only the rows that a batch read.

python examples/node_embeddings.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.devices import host_device
from jgs.dist import Alone, ShardedEmbedding
from jgs.models import GraphSAGE
from jgs.sampling import Loader

WIDTH = 64


def loss_of(model, x, batch, labels, key):
    logits = model(batch, x, key=key)
    targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)


@nnx.jit
def train_step(model, optimizer, x, batch, labels, key):
    both = nnx.value_and_grad(loss_of, argnums=(0, 1))  # of the model and of the rows
    loss, (gradients, grad_x) = both(model, x, batch, labels, key)
    optimizer.update(model, gradients)
    return loss, grad_x


@nnx.jit
def num_right(model, x, batch, labels):
    logits = model(batch, x)
    targets = labels.at[batch.seeds].get(mode="fill", fill_value=-1)
    return jnp.sum(jnp.argmax(logits, axis=-1) == targets)


def main(epochs: int = 5, learn_rows: bool = True) -> float:
    """Trains, and returns the accuracy on the test nodes."""
    data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
    labels, num_nodes = jnp.asarray(data.labels), data.graph.num_nodes  # no features
    owned = [0, num_nodes]  # one rank owns all nodes
    table = ShardedEmbedding(Alone(), owned, WIDTH, jax.random.key(2), optax.adam(1e-2))
    model = GraphSAGE(WIDTH, 64, data.num_classes, num_layers=2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    key = jax.random.key(1)
    here = {"device": host_device()}  # the rows are learned there
    with Loader(data.graph, data.train_idx, 256, (10, 10), key=key, **here) as loader:
        for epoch in range(epochs):
            losses = []
            for step, batch in enumerate(loader):
                step_key = jax.random.fold_in(key, epoch * len(loader) + step)
                x, token = table.pull(batch.nodes)
                loss, grad_x = train_step(model, optimizer, x, batch, labels, step_key)
                if learn_rows:
                    table.push(token, grad_x)
                losses.append(loss)
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    with Loader(data.graph, data.test_idx, 256, (10, 10), key=key, **here) as loader:
        right = sum(
            num_right(model, table.pull(batch.nodes)[0], batch, labels) for batch in loader
        )
    accuracy = float(right) / data.test_idx.size
    print(f"test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
