"""The `repr` of batches, loaders and data sets: one line, with real counts over capacities."""

import jax
import numpy as np

import jgs.data
from jgs.sampling import Loader, Neighbors, sample_neighbors


def test_each_says_what_it_is_in_a_line():
    data = jgs.data.load(
        "synthetic", num_nodes=90, num_edges=400, num_features=5, num_classes=3
    )
    key, seeds = jax.random.key(0), np.array([3, 4, data.graph.num_nodes], np.int32)
    batch = sample_neighbors(key, data.graph, seeds, (2, 2))
    last = batch.blocks[-1]
    told = f"targets=2/3, sources={int(last.num_sources)}/{last.source_capacity}"
    assert repr(last).startswith(f"Block({told}, edges={int(last.num_edges)}/6")
    num = int(batch.blocks[0].num_sources)
    assert repr(batch).startswith(f"MiniBatch(seeds=2/3, nodes={num}/{batch.nodes.size}, edges")
    assert "<td>2/3</td>" in batch._repr_html_()
    several = sample_neighbors(
        jax.random.split(key, 2), data.graph, np.stack([seeds] * 2), (2,)
    )
    assert repr(several).startswith("MiniBatch(batches=2, seeds=≤2/3")
    seen = []
    jax.eval_shape(lambda b: seen.append(repr(b)), batch)
    assert seen[0].startswith("MiniBatch(seeds=?/3, nodes=?/")
    assert repr(jax.tree.map(lambda a: None, batch)) == "MiniBatch(...)"
    splits = "/".join(str(len(getattr(data, f"{s}_idx"))) for s in ("train", "val", "test"))
    edges = data.graph.num_edges
    want = (
        f"'synthetic', nodes=90, edges={edges}, features=5, classes=3, train/val/test={splits}"
    )
    assert repr(data) == f"Dataset({want})"
    assert data.graph._repr_html_().startswith("<table><caption>Graph</caption>")
    sampler = Neighbors((2,))
    with Loader(data.graph, np.arange(20), 8, sampler, key=key) as loader:
        next(iter(loader))
        want = f"seeds=20, batches=3 of 8, epoch=0, step=1, {sampler!r}"
        assert repr(loader) == f"Loader({want})"
