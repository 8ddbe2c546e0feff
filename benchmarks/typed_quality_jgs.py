"""One process of the benchmark of typed graphs' quality: jgs's models on `acm`.

The settings are those of `typed_quality_dgl.py`. Nodes are classified in one batch of all
training papers with all of their neighbours, which is what the whole graph gives them. Learned
rows are the model's own.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks import typed_quality_data as quality
from benchmarks import worker
from jgs import keep_freed_memory
from jgs.graph import Graph, MiniBatch, TypedFeatures
from jgs.models import (
    HGT,
    RGCN,
    RSAGE,
    DistMult,
    DotDecoder,
    PairModel,
    binary_cross_entropy,
)
from jgs.ops import gather
from jgs.sampling import Links, Loader, Neighbors
from jgs.train.loop.step import count_pairs, init_state, make_optimizer, make_train_step

MODELS = {"rgcn": RGCN, "rsage": RSAGE, "hgt": HGT}
_FEATURED = "paper"


def open_graph(data: quality.Acm) -> tuple[Graph, TypedFeatures]:
    graph = Graph.from_relations(data.num_nodes, data.edges, both_ways=True)
    assert graph.schema is not None
    return graph, TypedFeatures.from_dict(graph.schema, {_FEATURED: data.features})


def make(setting: dict, features: TypedFeatures, graph: Graph, out: int, rngs: nnx.Rngs) -> Any:
    options = {"heads": setting["heads"]} if setting["model"] == "hgt" else {}
    return MODELS[setting["model"]](
        in_features=features.widths,
        hidden_features=setting["hidden"],
        out_features=out,
        num_layers=2,
        schema=graph.schema,
        scales=features.scales(),
        dropout=setting["dropout"],
        rngs=rngs,
        **options,
    )


def whole(graph: Graph, nodes: np.ndarray) -> MiniBatch:
    """The batch of these nodes with all of their neighbours."""
    sampler = Neighbors((-1, -1), edges=("type",))
    own = {"key": jax.random.key(0), "shuffle": False, "prefetch": 0}
    return next(iter(Loader(graph, nodes, len(nodes), sampler, **own)))


def infer(graphdef: nnx.GraphDef) -> Any:
    """The jitted `rows(params, batch, features)` of the model, without dropout."""

    @jax.jit
    def rows(params, batch, features):
        return nnx.merge(graphdef, params)(batch, gather(features, batch.nodes))

    return rows


def classify(setting: dict) -> dict:
    data = quality.read(setting["root"])
    graph, features = open_graph(data)
    papers = graph.schema.nodes(_FEATURED)
    labels = np.full(graph.num_nodes, -1, np.int32)
    labels[papers.start : papers.stop] = data.labels
    model = make(
        setting, features, graph, int(data.labels.max()) + 1, nnx.Rngs(setting["seed"])
    )
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(setting["lr"], setting["weight_decay"])
    state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
    rows, key = infer(graphdef), jax.random.fold_in(jax.random.key(1), setting["seed"])
    training = whole(graph, papers.start + data.splits["train"])
    judged = np.concatenate([data.splits["val"], data.splits["test"]])
    held, num_val = whole(graph, papers.start + judged), len(data.splits["val"])
    x = gather(features, training.nodes)
    best, spent = quality.Best(setting["patience"]), []
    for epoch in range(setting["epochs"]):
        began = time.perf_counter()
        state = jax.block_until_ready(step(state, key, training, x, labels))
        spent.append(time.perf_counter() - began)
        classes = np.asarray(rows(state.params, held, features)).argmax(1)
        parts = np.split(np.arange(len(judged)), [num_val])
        val, test = (quality.f1(classes[some], data.labels[judged[some]]) for some in parts)
        if not best.add(epoch, val[0], test):
            break
    macro, micro = best.test
    found = {"macro": macro, "micro": micro, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


def link(setting: dict) -> dict:
    data, split = quality.read(setting["root"]), dict(np.load(setting["split"]))
    data.edges[quality.RELATION] = split["train_src"], split["train_dst"]
    graph, features = open_graph(data)
    source, target = (graph.schema.nodes(quality.RELATION[end]).start for end in (0, 2))
    rngs, hidden = nnx.Rngs(setting["seed"]), setting["hidden"]
    distmult = setting["decoder"] == "distmult"
    decoder = DistMult(hidden, 1, rngs=rngs) if distmult else DotDecoder()
    encoder = make(setting, features, graph, hidden, rngs)
    graphdef, params = nnx.split(PairModel(encoder, decoder, rngs=rngs))
    optimizer = make_optimizer(setting["lr"])
    state = init_state(params, optimizer)
    step = make_train_step(graphdef, optimizer, loss=_link_loss, count=count_pairs)
    items = {"src": source + split["train_src"], "dst": target + split["train_dst"]}
    key = jax.random.fold_in(jax.random.key(1), setting["seed"])
    loader = Loader(
        graph,
        items | {"relation": np.zeros(len(items["src"]), np.int32)},
        setting["batch_size"],
        Neighbors(tuple({"*": k} for k in setting["fanouts"]), edges=("type",)),
        before=Links(sides="dst"),
        key=jax.random.fold_in(jax.random.key(2), setting["seed"]),
        prefetch=0,
    )
    everything = whole(graph, np.arange(graph.num_nodes))

    @jax.jit
    def scores(params, batch, features, src, dst):
        model = nnx.merge(graphdef, params)
        h = model.encoder(batch, gather(features, batch.nodes))
        return model.decoder(h[src], h[dst], 0)

    def reached(of: str) -> float:
        src, dst, others = (split[f"{of}_{end}"] for end in ("src", "dst", "others"))
        src, dst, others = source + src, target + dst, target + others
        own = state.params, everything, features
        positive, negative = scores(*own, src, dst), scores(*own, src[:, None], others)
        return quality.mrr(np.asarray(positive), np.asarray(negative))

    read = jax.jit(lambda features, nodes: gather(features, nodes))
    best, spent = quality.Best(), []
    for epoch in range(setting["epochs"]):
        batches = iter(loader)
        for _ in range(len(loader)):
            began = time.perf_counter()
            batch = next(batches)
            x = read(features, batch.nodes)
            state = jax.block_until_ready(step(state, key, batch, x, None))
            spent.append(time.perf_counter() - began)
        next(batches, None)  # ends the epoch
        best.add(epoch, reached("val"), reached("test"))
    found = {"mrr": best.test, "val": best.val, "epoch": best.epoch}
    return {"name": setting["name"], "step_ms": 1e3 * float(np.median(spent))} | found


def _link_loss(outputs: Any, batch: MiniBatch, labels: Any) -> jax.Array:
    return binary_cross_entropy(outputs)


def prepare(task: dict):
    keep_freed_memory()
    return lambda setting: {"nodes": classify, "links": link}[setting["part"]](setting)


if __name__ == "__main__":
    worker.main(prepare)
