"""A jraphx model on jgs's batches: the layers of jraphx take a block's `edge_index()`.

python examples/jraphx_model.py [EPOCHS]
"""

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jraphx.nn import SAGEConv

import jgs
from jgs.sampling import Loader


class Model(nnx.Module):
    def __init__(self, widths: tuple[int, ...], rngs: nnx.Rngs):
        self.layers = nnx.List([SAGEConv(a, b, rngs=rngs) for a, b in pairwise(widths)])

    def __call__(self, batch: jgs.MiniBatch, x: jax.Array) -> jax.Array:
        for layer, (conv, block) in enumerate(zip(self.layers, batch.blocks, strict=True)):
            # The targets are the first sources. Padding's edges lead to no row and are dropped.
            targets = x[: block.target_capacity]
            x = conv((x, targets), block.edge_index())
            x = jax.nn.relu(x) if layer + 1 < len(self.layers) else x
        return batch.of_seeds(x)


@nnx.jit
def train_step(model, optimizer, batch, features, labels):
    def loss_of(model):
        logits = model(batch, batch.gather(features))
        targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main(epochs: int = 3) -> float:
    data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
    features, labels = jgs.to_device(data.features), jnp.asarray(data.labels)
    model = Model((features.shape[1], 64, data.num_classes), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    with Loader(data.graph, data.train_idx, 256, (10, 10), key=jax.random.key(0)) as loader:
        for epoch in range(epochs):
            steps = [train_step(model, optimizer, b, features, labels) for b in loader]
            print(f"epoch {epoch}: loss {np.mean(steps):.3f}")
    return float(np.mean(steps))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
