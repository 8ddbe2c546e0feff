"""Items that go together: PinSAGE on a bipartite graph of users and items. An item's neighbours
are the items that walks over users visit most. A user is the mean of the bought items.

python examples/recommender.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import GraphSAGE
from jgs.sampling import PinSage, plan_capacity

USERS, ITEMS, BOUGHT, TASTES, WIDTH = 500, 1000, 12, 20, 64
SAMPLER = PinSage((10, 5), num_walks=50, length=3, relations=("buys", "rev_buys"))


def embed(model, key, graph, features, items, capacity=None):
    batch = SAMPLER.sample(key, graph, (), items, capacity)
    rows = model(batch, batch.gather(features))
    return rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)


@nnx.jit(static_argnames="capacity")
def train_step(model, optimizer, key, graph, features, items, capacity):
    def loss_of(model):  # two items of one user are alike, items of different users are not
        one, other = jnp.split(embed(model, key, graph, features, items, capacity), 2)
        logits, own = 10 * one @ other.T, jnp.arange(USERS)
        return optax.softmax_cross_entropy_with_integer_labels(logits, own).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main(epochs: int = 30) -> float:
    """Returns the share of held-out purchases that are among 20 recommended items."""
    rng, key, items = np.random.default_rng(0), jax.random.key(0), np.arange(ITEMS)
    own = (
        rng.integers(0, TASTES, (USERS, 1)),
        rng.integers(0, ITEMS // TASTES, (USERS, BOUGHT)),
    )
    liked = rng.permutation(ITEMS).reshape(TASTES, -1)[own]  # four in five purchases
    bought = np.where(rng.random(liked.shape) < 0.8, liked, rng.integers(0, ITEMS, liked.shape))
    held_out, bought = bought[:, -1:], bought[:, :-1]
    edges = {
        ("user", "buys", "item"): (np.repeat(np.arange(USERS), BOUGHT - 1), bought.ravel())
    }
    graph = jgs.Graph.from_relations({"item": ITEMS, "user": USERS}, edges, both_ways=True)
    features = jax.random.normal(key, (graph.num_nodes, WIDTH))
    model = GraphSAGE(WIDTH, 64, 32, num_layers=2, dropout=0.0, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    room = plan_capacity(graph, 2 * USERS, SAMPLER, seeds=items, distinct=False)
    for step in range(10 * epochs):
        pairs = rng.permuted(bought, axis=1)[:, :2].T.ravel()
        draw = jax.random.fold_in(key, step)
        loss = train_step(model, optimizer, draw, graph, features, pairs, room)
    rows = np.asarray(embed(model, key, graph, features, items))
    score = rows[bought].mean(axis=1) @ rows.T
    np.put_along_axis(score, bought, -np.inf, axis=1)
    hits = np.mean((np.argsort(-score, axis=1)[:, :20] == held_out).any(axis=1))
    print(f"loss {loss:.2f}; {hits:.0%} of what was held out is recommended")
    return hits


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
