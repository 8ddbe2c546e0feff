"""Which orders come late? A transformer over contexts, in your own loop. An order names a
product, a product its maker, a maker its harbour, and storms there in the week before make it
late. They are four keys away. GraphSAGE of two hops sees the maker at most.

python examples/contexts.py [EPOCHS]
"""

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.graph import TypedFeatures
from jgs.models import RelGT
from jgs.sampling import Context, Loader, Neighbors
from jgs.train import auc

COUNTS, DAYS = {"order": 4000, "product": 300, "maker": 80, "harbour": 40, "storm": 1500}, 400


def make_data():
    """The graph, the features, and the orders: a storm in the week before makes them late."""
    rng, harbour, keys = np.random.default_rng(0), np.arange(COUNTS["order"]), {}
    for of, name in pairwise([*COUNTS][:4]):  # each row names one of the next table
        keys[name, "of", of] = rng.integers(0, COUNTS[name], COUNTS[of]), np.arange(COUNTS[of])
        harbour = keys[name, "of", of][0][harbour]
    day, storm = np.sort(rng.integers(30, DAYS, COUNTS["order"])), np.arange(COUNTS["storm"])
    place, struck = (rng.integers(0, most, storm.size) for most in (COUNTS["harbour"], DAYS))
    keys["storm", "hits", "harbour"] = storm, place
    always = {key: np.full(len(of), np.iinfo(np.int64).min) for key, (of, _) in keys.items()}
    times = always | {("storm", "hits", "harbour"): struck}
    graph = jgs.Graph.from_relations(COUNTS, keys, edge_time=times)
    storms = np.zeros((COUNTS["harbour"], DAYS + 7), bool)
    for after in range(1, 8):
        storms[place, struck + after] = True
    rows = {name: np.ones((count, 1), np.float32) for name, count in COUNTS.items()}
    late = storms[harbour, day].astype(np.float32)
    items = {"nodes": np.arange(day.size), "time": day, "label": late}
    return graph, TypedFeatures.from_dict(graph.schema, rows), items


@nnx.jit
def train_step(model, optimizer, batch, x):
    def loss_of(model):
        losses = optax.sigmoid_binary_cross_entropy(model(batch, x)[:, 0], batch.items["label"])
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    optimizer.update(model, nnx.grad(loss_of)(model))


predict = nnx.jit(lambda model, batch, x: model(batch, x)[:, 0])


def main(epochs: int = 6) -> float:
    """Returns the AUC of the latest fifth of the orders."""
    graph, features, items = make_data()
    own = {"schema": graph.schema, "time_unit": 7.0, "dropout": 0.0, "rngs": nnx.Rngs(0)}
    model = RelGT(features.widths, 32, 1, 2, **own)
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    early, late = (jax.tree.map(lambda a, i=i: np.split(a, [3200])[i], items) for i in (0, 1))
    sampler = Context(12, Neighbors(({"*": 8},) * 4, latest=True))  # 4 keys, 12 tokens
    own = {"batch_size": 200, "sampler": sampler, "key": jax.random.key(0)}
    with Loader(graph, early, **own) as loader:
        for _ in range(epochs):
            for batch in loader:
                train_step(model, optimizer, batch, batch.gather(features))
    with Loader(graph, late, shuffle=False, **own) as loader:
        rows = [predict(model, batch, batch.gather(features)) for batch in loader]
    found = auc(np.concatenate(rows), late["label"] == 1)
    print(f"AUC of the latest {late['label'].size} orders: {found:.3f}")
    return found


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
