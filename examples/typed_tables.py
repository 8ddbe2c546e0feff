"""Classify the users of three CSV tables: users, items, and who bought what. Each table has
columns of its own. What a user is shows in the kinds of items that the user buys.

python examples/typed_tables.py [EPOCHS]
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import RGCN
from jgs.sampling import Loader, Neighbors

USERS, ITEMS, BOUGHT, KINDS = 2000, 300, 6, np.array(["cook", "gardener", "runner"])


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    group, kind = rng.integers(0, 3, USERS), np.arange(ITEMS) % 3
    any_item = rng.integers(0, ITEMS, (USERS, BOUGHT))
    own_kind = any_item - any_item % 3 + group[:, None]
    bought = np.where(rng.random(any_item.shape) < 0.4, own_kind, any_item)
    age = np.where(rng.random(USERS) < 0.1, "", rng.integers(18, 80, USERS))
    split = rng.choice(["train", "val", "test"], USERS, p=[0.6, 0.2, 0.2])
    price = rng.lognormal(size=ITEMS).round(2)
    for name, header, columns in (
        ("nodes_user", "id,age,label,split", (np.arange(USERS), age, KINDS[group], split)),
        ("nodes_item", "id,price,kind", (np.arange(ITEMS), price, KINDS[kind])),
        ("edges_user_buys_item", "src,dst", (np.arange(USERS).repeat(BOUGHT), bought.ravel())),
    ):
        rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")


@nnx.jit
def train_step(model, optimizer, batch, features, labels):
    def loss_of(model):
        own = labels.at[batch.seeds].get(mode="fill", fill_value=0)
        logits = model(batch, batch.gather(features))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, own)
        return jnp.sum(jnp.where(batch.seed_mask, losses, 0)) / jnp.sum(batch.seed_mask)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main(epochs: int = 10) -> float:
    """Returns the accuracy on the test users."""
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        data = jgs.data.load(folder)
    features = jgs.to_device(data.features)  # where JAX trains
    widths, schema, labels = data.features.widths, data.graph.schema, jnp.asarray(data.labels)
    print("relations", *schema.relations, "\nfeatures", widths)
    own = {"schema": schema, "scales": data.features.scales()}
    model = RGCN(widths, 32, data.num_classes, 2, **own, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    sampler, key = Neighbors((10, 10), edges=("type",)), jax.random.key(0)
    with Loader(data.graph, data.train_idx, 200, sampler, key=key) as loader:
        for _ in range(epochs):
            for batch in loader:
                loss = train_step(model, optimizer, batch, features, labels)
    test = sampler.sample(key, data.graph, sampler.init(data.graph), data.test_idx, None)
    test = jgs.to_device(test)
    found = np.argmax(model(test, test.gather(features)), axis=-1)
    accuracy = float(np.mean(found[: data.test_idx.size] == data.labels[data.test_idx]))
    print(f"loss {loss:.3f}; {accuracy:.0%} of the test users are classified rightly")
    return accuracy


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
