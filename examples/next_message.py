"""Who is written to next? Links by time in your own loop, with TGAT.

    python examples/next_message.py [EPOCHS]

Each message is seen at its own time: its sample, and those of its negatives, have what was
before it alone. The test is the last tenth of the messages, each among 20 other nodes.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import TGAT, BilinearDecoder, PairModel, binary_cross_entropy
from jgs.sampling import Links, Loader, Neighbors, event_negatives
from jgs.train import mrr, ranks

N = 80


def messages(num=3000):
    """Four in five messages answer the last one that their sender got."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, num))
    answers, last = rng.random(num) < 0.8, {}
    for i, node in enumerate(src.tolist()):
        dst[i] = last.get(node, dst[i]) if answers[i] else dst[i]
        last[int(dst[i])] = node
    kept = src != dst
    return {"src": src[kept], "dst": dst[kept], "time": 60 * np.arange(num)[kept]}


@nnx.jit
def train_step(model, optimizer, batch, x):
    gradients = nnx.grad(lambda model: binary_cross_entropy(model(batch, x)))(model)
    optimizer.update(model, gradients)


@nnx.jit
def scores_of(model, batch, x):
    return model(batch, x)


def main(epochs):
    events = messages()
    cut = len(events["src"]) * 9 // 10
    train = {name: column[:cut] for name, column in events.items()}
    test = {name: column[cut:] for name, column in events.items()}
    graph = jgs.Graph.from_edges(events["src"], events["dst"], N, edge_time=events["time"])
    rngs, key = nnx.Rngs(0), jax.random.key(0)
    encoder = TGAT(N, 32, 32, num_layers=1, time_unit=3600.0, dropout=0.0, rngs=rngs)
    model = PairModel(encoder, BilinearDecoder(32, rngs=rngs), rngs=rngs)
    features = jnp.eye(N)  # nodes without features are told apart by these
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    sampler = Neighbors((2,), latest=True, edges=encoder.edge_columns)
    options = {"sampler": sampler, "key": key}
    loader = Loader(graph, train, 50, before=Links(5, sides="dst"), **options)
    for _ in range(epochs):
        for batch in loader:
            train_step(model, optimizer, batch, batch.gather(features))
    test["negatives"] = event_negatives(key, events, test, np.arange(N), 20)
    judged = Loader(graph, test, 100, before=Links(), shuffle=False, **options)
    found = []
    for batch in judged:
        scores = scores_of(model, batch, batch.gather(features))
        place = ranks(scores.positive, scores.negative, scores.negative_mask)
        found.append(place[np.asarray(scores.mask)])
    print(f"MRR of the next message among 21: {mrr(np.concatenate(found)):.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
