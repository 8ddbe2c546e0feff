"""An Equinox model on jgs's blocks: `jgs.ops` are functions of arrays and need no framework.

python examples/equinox_model.py [EPOCHS]
"""

import sys
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jgs
from jgs.sampling import Loader


class Layer(eqx.Module):
    """GraphSAGE's layer: linear maps of a node's own row and of its neighbours' mean, added."""

    own: eqx.nn.Linear
    neighbors: eqx.nn.Linear

    def __init__(self, width_in: int, width_out: int, key: jax.Array):
        first, second = jax.random.split(key)
        self.own = eqx.nn.Linear(width_in, width_out, key=first)
        self.neighbors = eqx.nn.Linear(width_in, width_out, use_bias=False, key=second)

    def __call__(self, block: jgs.Block, x: jax.Array) -> jax.Array:
        targets, mean = x[: block.target_capacity], jgs.ops.aggregate(block, x, "mean")
        return jax.vmap(self.own)(targets) + jax.vmap(self.neighbors)(mean)


class Model(eqx.Module):
    layers: list[Layer]

    def __init__(self, widths: tuple[int, ...], key: jax.Array):
        keys = jax.random.split(key, len(widths) - 1)
        ends = zip(pairwise(widths), keys, strict=True)
        self.layers = [Layer(a, b, own) for (a, b), own in ends]

    def __call__(self, batch: jgs.MiniBatch, x: jax.Array) -> jax.Array:
        for layer, block in zip(self.layers[:-1], batch.blocks[:-1], strict=True):
            x = jax.nn.relu(layer(block, x))
        return batch.of_seeds(self.layers[-1](batch.blocks[-1], x))


def main(epochs: int = 3) -> float:
    data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
    features, labels = jgs.to_device(data.features), jnp.asarray(data.labels)
    model = Model((features.shape[1], 64, data.num_classes), jax.random.key(1))
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def train_step(model, state, batch, features, labels):
        def loss_of(model):
            logits = model(batch, batch.gather(features))
            targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

        loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, loss

    with Loader(data.graph, data.train_idx, 256, (10, 10), key=jax.random.key(0)) as loader:
        for epoch in range(epochs):
            losses = []
            for batch in loader:
                model, state, loss = train_step(model, state, batch, features, labels)
                losses.append(loss)
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    return float(np.mean(losses))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
