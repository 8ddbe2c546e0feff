"""Orbax saves model, optimiser and loader in one call, and training goes on from there.

python examples/orbax_grain.py

The loader is an iterator of Grain here: pip install 'jgs[grain]'.
"""

import itertools
import tempfile

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from orbax.checkpoint.experimental import v1 as ocp

import jgs
from jgs.models import GraphSAGE, read_inputs
from jgs.sampling import Loader, Neighbors, grain_iterator

data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
features, labels = jgs.to_device(data.features), jnp.asarray(data.labels)


@nnx.jit
def train_step(model, optimizer, key, batch, features, labels):
    def loss_of(model):
        logits = model(batch, read_inputs(features, batch), key=key)
        targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def start():
    model = GraphSAGE(features.shape[1], 64, data.num_classes, num_layers=2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    sampler = Neighbors((10, 10), relabel_inputs=False)
    loader = Loader(data.graph, data.train_idx, 256, sampler, key=jax.random.key(0))
    return model, optimizer, grain_iterator(loader, num_epochs=4)


def train(model, optimizer, batches) -> list[float]:
    losses = []
    for batch in batches:
        key = jax.random.fold_in(jax.random.key(1), optimizer.step[...])
        loss = train_step(model, optimizer, key, batch, features, labels)
        losses.append(float(loss))
    return losses


def restore(path, model, optimizer, batches):
    ocp.load_checkpointables(path, {"dataset": batches})
    batches.start_prefetch()  # the next batches are drawn while the parameters are read
    state = nnx.state((model, optimizer))
    found = ocp.load_checkpointables(path, {"arrays": nnx.to_pure_dict(state)})
    nnx.replace_by_pure_dict(state, found["arrays"])
    nnx.update((model, optimizer), state)


def main() -> None:
    run = start()
    with tempfile.TemporaryDirectory() as folder:
        train(*run[:2], itertools.islice(run[2], 10))
        arrays = nnx.to_pure_dict(nnx.state(run[:2]))
        ocp.save_checkpointables(f"{folder}/10", {"arrays": arrays, "dataset": run[2]})
        losses = train(*run)
        again = start()
        restore(f"{folder}/10", *again)
    assert train(*again) == losses
    print(f"{len(losses)} steps after the checkpoint were the same to the bit")


if __name__ == "__main__":
    main()
