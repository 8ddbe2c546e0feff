"""Will a customer buy again within 30 days? Labels of nodes at moments, in your own loop: a
typed graph of customers and products, and a table of (customer, time, label). Each label is
predicted from what was bought before its own time. The test is the latest part of the table.

    python examples/labels_at_a_time.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.data import LabelTable
from jgs.graph import TypedFeatures
from jgs.models import TemporalRSAGE
from jgs.sampling import Loader, Neighbors
from jgs.train import auc

CUSTOMERS, PRODUCTS, DAYS = 300, 40, 720


def make_data():
    """Customers buy about every 5 days, but some not at all in a quarter of a year. There is a
    row for each customer on every 30th day."""
    rng = np.random.default_rng(0)
    active = rng.random((CUSTOMERS, DAYS // 90)).repeat(90, axis=1) < 0.5
    customer, day = np.nonzero(bought := (rng.random(active.shape) < 0.2) & active)
    edges = {("product", "bought_by", "customer"): (day % PRODUCTS, customer)}
    counts, times = {"customer": CUSTOMERS, "product": PRODUCTS}, dict.fromkeys(edges, day)
    graph = jgs.Graph.from_relations(counts, edges, edge_time=times, both_ways=True)
    given = {name: np.ones((count, 1), np.float32) for name, count in counts.items()}
    nodes, moments = np.divmod(np.arange(CUSTOMERS * 20), 20)
    moments = 90 + 30 * moments
    again = [bought[node, at : at + 30].any() for node, at in zip(nodes, moments, strict=True)]
    table = LabelTable.from_arrays(nodes, moments, np.array(again, int))
    return graph, TypedFeatures.from_dict(graph.schema, given), table


@nnx.jit
def train_step(model, optimizer, batch, x):
    def loss_of(model):
        losses = optax.sigmoid_binary_cross_entropy(model(batch, x)[:, 0], batch.items["label"])
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    optimizer.update(model, nnx.grad(loss_of)(model))


@nnx.jit
def predict(model, batch, x):
    return model(batch, x)[:, 0]


def main(epochs: int = 4) -> float:
    """Returns the AUC of the test's rows."""
    graph, features, table = make_data()
    features = jgs.to_device(features)  # where JAX trains
    own = {"schema": graph.schema, "reduce": "sum", "time_unit": 30.0, "rngs": nnx.Rngs(0)}
    model = TemporalRSAGE(features.widths, 32, 1, 2, **own)
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    columns = {"nodes": table.nodes, "time": table.time, "label": table.labels}
    train, test = ({k: v[table.split == i] for k, v in columns.items()} for i in (0, 2))
    sampler = Neighbors(({"*": 5}, {"*": 5}), latest=True, edges=model.edge_columns)
    own = {"batch_size": 300, "sampler": sampler, "key": jax.random.key(0)}
    with Loader(graph, train, by_time=1000, **own) as loader:
        for _ in range(epochs):
            for batch in loader:
                train_step(model, optimizer, batch, batch.gather(features))
    with Loader(graph, test, shuffle=False, **own) as loader:
        rows = [predict(model, b, b.gather(features)) for b in loader]
    found = auc(np.concatenate(rows)[: test["label"].size], test["label"] == 1)
    print(f"AUC of {test['label'].size} rows, of the latest times: {found:.3f}")
    return found


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
