"""One process of the benchmark of models that see time: jgs's models.

The setting's `model` is `tgat`; `cutoff`, which is GraphSAGE under the same cutoffs, so that it
draws the same edges and does not see how old they are; or `untimed`, which is GraphSAGE on the
graph of the training events, drawn uniformly, with the events of a batch left out. Nodes have
learned rows. Batches come in the order of time, each event with a uniform target in place of
its own.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import worker
from benchmarks.typed_quality_data import Best, mrr
from jgs import Graph, keep_freed_memory
from jgs.models import TGAT, GraphSAGE, MLPDecoder, PairModel, binary_cross_entropy
from jgs.sampling import Links, Loader, Neighbors
from jgs.train.loop.step import count_pairs, init_state, make_optimizer, make_train_step

_COPIES = 64  # a batch of 200 messages has up to 10,781 others between their ends


def open_graph(data: dict, timed: bool) -> Graph:
    """The graph of all events with their times, or of the training events without."""
    end = None if timed else int(data["ends"][0])
    src, dst, when = (np.tile(data[name][:end], 2) for name in ("src", "dst", "time"))
    half = src.size // 2
    src, dst = np.r_[src[:half], dst[half:]], np.r_[dst[:half], src[half:]]
    num_nodes = int(data["num_nodes"])
    if timed:
        return Graph.from_edges(src, dst, num_nodes, edge_time=when)
    return Graph.from_edges(src, dst, num_nodes).sorted()  # where a pair's edges are found soon


def uniform_target(first: int, end: int) -> Any:
    """The stage that gives each item a uniform node from `first` to `end - 1` as a negative."""

    def stage(key, graph, items):
        shape = (items["src"].shape[0], 1)
        return items | {"negatives": jax.random.randint(key, shape, first, end, jnp.int64)}

    return stage


def make(setting: dict, num_nodes: int) -> PairModel:
    width, rngs = setting["hidden"], nnx.Rngs(setting["seed"])
    options = {"dropout": setting["dropout"], "rngs": rngs}
    sizes = (width, width, width, len(setting["fanouts"]))
    if setting["model"] == "tgat":
        own = {name: setting[name] for name in ("heads", "time_width", "time_unit")}
        own |= {"attention_dropout": setting["dropout"]}
        encoder = TGAT(*sizes, **own, **options)
    else:
        encoder = GraphSAGE(*sizes, **options)
    decoder = MLPDecoder(width, combine="concat", rngs=rngs)
    return PairModel(encoder, decoder, num_nodes, width, rngs=rngs)


def train(setting: dict) -> dict:
    with np.load(setting["data"]) as file:
        data = dict(file)
    timed = setting["model"] != "untimed"
    graph, model = open_graph(data, timed), make(setting, int(data["num_nodes"]))
    columns = model.encoder.edge_columns if setting["model"] == "tgat" else ()
    sampler = Neighbors(tuple(setting["fanouts"]), latest=timed, edges=columns)
    names = ("src", "dst", "time") if timed else ("src", "dst")
    key = jax.random.fold_in(jax.random.key(1), setting["seed"])

    def loader(places: np.ndarray, size: int, number: int, *stages: Any, **more: Any) -> Loader:
        items = {name: data[name][places] for name in names} | more
        own = {"key": jax.random.fold_in(key, number), "shuffle": False}
        return Loader(graph, items, size, sampler, before=stages, **own)

    training = loader(
        np.arange(data["ends"][0]),
        setting["batch_size"],
        0,
        uniform_target(*data["targets"].tolist()),
        Links(copies=_COPIES),
    )
    judged = {
        of: loader(
            data[of],
            setting["eval_batch"],
            number,
            Links(exclude=False),
            negatives=data[f"{of}_others"],
        )
        for number, of in enumerate(("val", "test"), 1)
    }
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(setting["lr"])
    state = init_state(params, optimizer)
    step = make_train_step(graphdef, optimizer, loss=_loss, count=count_pairs)

    @jax.jit
    def scores(params, batch):
        return nnx.merge(graphdef, params)(batch, _nothing(batch))

    def reached(of: str) -> float:
        positive, negative = [], []
        for batch in judged[of]:
            found = scores(state.params, batch)
            real = np.asarray(found.mask)
            positive.append(np.asarray(found.positive)[real])
            negative.append(np.asarray(found.negative)[real])
        return mrr(np.concatenate(positive), np.concatenate(negative))

    best, spent = Best(setting["patience"]), []
    for epoch in range(setting["epochs"]):
        batches = iter(training)
        for _ in range(len(training)):
            began = time.perf_counter()
            batch = next(batches)
            state = jax.block_until_ready(step(state, key, batch, _nothing(batch), None))
            spent.append(time.perf_counter() - began)
        next(batches, None)  # ends the epoch
        val = reached("val")
        if not best.add(epoch, val, reached("test") if val > best.val else None):
            break
    found = {"mrr": best.test, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


def _nothing(batch: Any) -> jax.Array:
    """The features of nodes without features."""
    return jnp.zeros((batch.nodes.shape[0], 0))


def _loss(outputs: Any, batch: Any, labels: Any) -> jax.Array:
    return binary_cross_entropy(outputs)


def prepare(task: dict):
    keep_freed_memory()
    return train


if __name__ == "__main__":
    worker.main(prepare)
