"""R-GCN in a loop of one's own: papers with words, authors and venues without features.

python examples/rgcn_loop.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.graph import TypedFeatures
from jgs.models import RGCN
from jgs.ops import gather
from jgs.sampling import Loader, Neighbors

COUNTS = {"paper": 3000, "author": 800, "venue": 12}


def make_data():
    """A paper's words say little of its field; its authors and its venue say more."""
    rng = np.random.default_rng(0)
    field = rng.integers(0, 4, COUNTS["paper"])  # that of an author or a venue is its id mod 4
    papers = np.repeat(np.arange(COUNTS["paper"]), 3)

    def of_field(node_type, share):
        """A node of a type for each of `papers`, a share of them of the paper's own field."""
        node = rng.integers(0, COUNTS[node_type], papers.size)
        return np.where(rng.random(papers.size) < share, node - node % 4 + field[papers], node)

    edges = {
        ("author", "writes", "paper"): (of_field("author", 0.6), papers),
        ("paper", "appears_in", "venue"): (papers[::3], of_field("venue", 0.4)[::3]),
    }
    graph = jgs.Graph.from_relations(COUNTS, edges, both_ways=True)
    words = rng.normal(size=(COUNTS["paper"], 32)).astype(np.float32)
    words[np.arange(COUNTS["paper"]), field] += 1
    return graph, TypedFeatures.from_dict(graph.schema, {"paper": words}), field


def main(epochs: int = 6) -> float:
    """Returns the accuracy on the papers that were not trained on."""
    graph, features, labels = make_data()
    there = jgs.to_device(features)  # where JAX trains
    model = RGCN(features.widths, 32, 4, 2, schema=graph.schema, bases=3, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    fanouts = ({"writes": 5, "rev_appears_in": 1}, {"*": 5})  # a paper's, then all nodes'
    sampler = Neighbors(fanouts, edges=model.edge_columns)
    all_labels = jnp.asarray(labels)  # papers have the first ids

    @nnx.jit
    def train_step(model, optimizer, batch, features, key):
        def loss_of(model):
            logits = model(batch, gather(features, batch.nodes), key=key)
            own = all_labels.at[batch.seeds].get(mode="fill", fill_value=0)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, own)
            return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return loss

    train, test, key = np.arange(1500), np.arange(1500, 3000), jax.random.key(0)
    with Loader(graph, train, 250, sampler, key=key) as loader:
        for epoch in range(epochs):
            for step, batch in enumerate(loader):
                own = jax.random.fold_in(key, epoch * len(loader) + step)
                loss = train_step(model, optimizer, batch, there, own)
            print(f"epoch {epoch + 1}: loss {loss:.3f}")
    infer = jgs.train.exact_inference(model, graph, features)  # over all neighbours
    found = infer(nnx.state(model), test).argmax(axis=1)
    print(f"{np.mean(found == labels[test]):.0%} of {test.size} papers are classified rightly")
    return float(np.mean(found == labels[test]))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
