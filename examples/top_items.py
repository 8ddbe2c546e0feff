"""What each user will buy next: GraphSAGE on users and items, and exact lists of the best.

    python examples/top_items.py [EPOCHS]

The stage `Links` draws one set of items for all users of a batch, none that a user has bought,
and leaves the purchases to predict out of all neighbourhoods. The loss is a softmax over these
items, corrected for how they were drawn. `top_k` goes through all items in bounded memory.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import DotDecoder, GraphSAGE, link_scores, sampled_softmax, top_k
from jgs.sampling import Links, Loader, Neighbors
from jgs.train import ndcg, recall

USERS, ITEMS, BOUGHT, TASTES, WIDTH = 500, 1000, 12, 20, 32
LINKS = Links(256, "degree", sides="dst", shared=True, filtered=True, types=("user", "item"))


class Recommender(nnx.Module):
    def __init__(self, num_nodes, rngs):
        self.table = nnx.Param(0.1 * jax.random.normal(rngs.params(), (num_nodes, WIDTH)))
        options = {"dropout": 0.0, "rngs": rngs}
        self.gnn = GraphSAGE(WIDTH, 64, WIDTH, num_layers=2, **options)


@nnx.jit
def train_step(model, optimizer, batch):
    def loss_of(model):
        x = jnp.take(model.table[...], batch.nodes, axis=0, mode="clip")
        scores = link_scores(DotDecoder(), model.gnn(batch, x), batch.items)
        return sampled_softmax(scores)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def purchases():
    """Users, and the items that they buy, the last of them held out. Users like items of one
    taste: four in five of their purchases."""
    rng = np.random.default_rng(0)
    taste = rng.integers(0, TASTES, (USERS, 1))
    liked = rng.integers(0, ITEMS // TASTES, (USERS, BOUGHT)) * TASTES + taste
    bought = np.where(rng.random(liked.shape) < 0.8, liked, rng.integers(0, ITEMS, liked.shape))
    return np.repeat(np.arange(USERS), BOUGHT - 1), bought[:, :-1].ravel(), bought[:, -1:]


def main(epochs: int = 6) -> tuple[float, float]:
    """Returns Recall@20 (by chance 0.02) and NDCG@20 of the held-out purchases."""
    user, item, held_out = purchases()
    edges = {("user", "buys", "item"): (user, item)}
    graph = jgs.Graph.from_relations({"user": USERS, "item": ITEMS}, edges, both_ways=True)
    users, items = (np.array(graph.schema.nodes(name)) for name in ("user", "item"))
    model = Recommender(graph.num_nodes, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    events = {"src": users[user], "dst": items[item]}
    options = {"before": LINKS, "key": jax.random.key(0)}
    loader = Loader(graph, events, 512, Neighbors((10, 10)), **options)
    for epoch in range(epochs):
        loss = np.mean([train_step(model, optimizer, batch) for batch in loader])
        print(f"epoch {epoch + 1}: loss {loss:.3f}")
    infer = jgs.train.exact_inference(model.gnn, graph, np.asarray(model.table[...]))
    rows = infer(nnx.state(model.gnn), np.arange(graph.num_nodes))
    best, _ = top_k(DotDecoder(), rows, users, items, 20, known=graph)
    found = recall(best, list(items[held_out])), ndcg(best, list(items[held_out]))
    print(f"Recall@20 {found[0]:.3f}, NDCG@20 {found[1]:.3f}")
    return found


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
