"""Your own loop on many ranks: jgs draws batches and features; optimiser, loss, loop are yours.

python examples/ranks_loop.py [EPOCHS]
mpiexec -n 2 python examples/ranks_loop.py [EPOCHS]
"""

import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.dist import OWN, SAME, RankParts, Watchdog, open_parts, rank_loader
from jgs.models import GraphSAGE
from jgs.partition import write_parts


def make_step(comm, graphdef, optimizer):
    def step(params, opt_state, key, batch, x, labels):
        def loss_of(params):
            logits = nnx.merge(graphdef, params)(batch, x, key=jax.random.wrap_key_data(key))
            targets = labels.at[batch.seeds].get(mode="fill", fill_value=0)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            return jnp.sum(jnp.where(batch.seed_mask, losses, 0))

        loss, gradients = jax.value_and_grad(loss_of)(params)
        mine = (loss, gradients, jnp.sum(batch.seed_mask, dtype=jnp.float32))
        buffer, unravel = jax.flatten_util.ravel_pytree(mine)
        loss, gradients, count = unravel(comm.all_reduce(buffer))  # over all ranks' seeds
        gradients = jax.tree.map(lambda g: g / count, gradients)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss / count

    # Batches and features are each rank's own, all else is the same on every rank.
    return comm.program(step, (SAME, SAME, SAME, OWN, OWN, SAME), SAME)


def main(epochs: int = 3) -> float:
    comm = jgs.dist.connect()  # before anything else uses JAX
    with tempfile.TemporaryDirectory() as folder:
        data = jgs.data.load("synthetic", num_nodes=10_000, num_edges=200_000)
        owner = jgs.dist.partition_nodes(data.graph, 2, "ldg", train_idx=data.train_idx)
        write_parts(f"{folder}/parts", data, owner, 2, method="ldg")
        return train(comm, open_parts(f"{folder}/parts"), epochs)


def train(comm, parts, epochs: int) -> float:
    ranks = RankParts(comm, parts)
    width = parts.manifest["features"]["shape"][1]
    model = GraphSAGE(width, 64, parts.num_classes, num_layers=2, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = optax.adam(1e-2)
    state = comm.same((params, optimizer.init(params)))
    step = make_step(comm, graphdef, optimizer)
    labels = comm.same(jnp.asarray(parts.labels))
    batch_size = 256 // comm.size
    with (
        Watchdog(comm) as watchdog,  # an error on one rank ends the others too
        rank_loader(comm, ranks, batch_size, (10, 10), key=jax.random.key(0)) as loader,
    ):
        for epoch in range(epochs):
            losses = []
            for batch, x in loader:
                watchdog.step = number = epoch * len(loader) + len(losses)
                key = jax.random.key_data(jax.random.fold_in(jax.random.key(1), number))
                *state, loss = step(*state, comm.same(key), batch, x, labels)
                losses.append(float(loss))
            watchdog.step = None  # outside the steps, which it times
            if comm.rank == 0:
                print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    return float(np.mean(losses))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
