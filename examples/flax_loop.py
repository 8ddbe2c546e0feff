"""Your own Flax loop: jgs samples and aggregates; the optimiser, loss and loop are yours.

python examples/flax_loop.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import GraphSAGE, read_inputs
from jgs.sampling import Loader


@nnx.jit
def train_step(model, optimizer, key, batch, features, labels):
    def loss_of(model):
        x = read_inputs(features, batch)  # the first layer, straight from the feature store
        logits = model(batch, x, key=key)
        targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        # The last batch of an epoch is padded: only real seeds count.
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main(epochs: int = 3) -> float:
    data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
    features, labels = jgs.to_device(data.features), jnp.asarray(data.labels)
    model = GraphSAGE(features.shape[1], 64, data.num_classes, num_layers=2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    key = jax.random.key(1)
    with Loader(
        data.graph,
        data.train_idx,
        256,
        (10, 10),
        key=jax.random.key(0),
        relabel_inputs=False,
    ) as loader:
        for epoch in range(epochs):
            losses = []
            for step, batch in enumerate(loader):
                step_key = jax.random.fold_in(key, epoch * len(loader) + step)
                args = (model, optimizer, step_key, batch, features, labels)
                losses.append(train_step(*args))
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    return float(np.mean(losses))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
