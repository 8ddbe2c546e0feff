"""Pictures have every node and edge, and errors say what a picture cannot show."""

import jax
import matplotlib
import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from refusals import refused

import jgs
from jgs.predict import Explanation
from jgs.sampling import Shadow, Subgraph, Walk, sample_neighbors

matplotlib.use("Agg")
GRAPH = jgs.Graph.from_edges([1, 2, 3, 4, 4, 0, 5, 5], [0, 0, 1, 2, 3, 4, 5, 0], 7)
KEY = jax.random.key(0)


def drawn(ax):
    """The number of arrows, and the places of the nodes."""
    arrows = [p for p in ax.patches if isinstance(p, FancyArrowPatch)]
    return len(arrows), np.asarray(ax.collections[-1].get_offsets())


@pytest.mark.parametrize("relabel", [True, False])
def test_a_batch_ring_by_ring(relabel):
    batch = sample_neighbors(KEY, GRAPH, np.array([0, 6]), (-1, -1), relabel_inputs=relabel)
    ax = jgs.viz.neighborhood(batch)
    num_arrows, places = drawn(ax)
    # Into 0 from 1, 2, 5; into 1, 2 from 3, 4; the loop of 5 is a ring around it.
    assert num_arrows == 5
    assert len(np.unique(places.round(6), axis=0)) == 7
    radius = np.linalg.norm(places, axis=1).round(6)
    np.testing.assert_array_equal(radius, [1, 2, 2, 3, 3, 2, 1])
    assert sorted(text.get_text() for text in ax.texts) == list("0123456")
    assert len(ax.collections[0].get_offsets()) == 1
    matplotlib.pyplot.close(ax.figure)


def test_square_batches_and_explanations():
    figure, axes = matplotlib.pyplot.subplots(1, 3)
    seeds = np.array([0, 4], np.int32)
    for ax, sampler in zip(axes, (Subgraph(2), Shadow.ppr(3)), strict=False):
        batch = sampler.sample(KEY, GRAPH, sampler.init(GRAPH), seeds, None)
        assert jgs.viz.neighborhood(batch, ax=ax) is ax
        assert len(drawn(ax)[1]) >= 2
    one, pairs = np.ones((3, 2), np.float32), np.array([[1, 0], [2, 0], [1, 0]])
    found = Explanation(
        0, 1, 0.5, np.arange(3), one, *pairs.T, np.array([0, 0, 1]), np.arange(3), one[:, 0]
    )
    num_arrows, places = drawn(jgs.viz.neighborhood(found, ax=axes[2], labels=False))
    assert num_arrows == 2  # 1 -> 0, drawn once for two hops
    np.testing.assert_array_equal(places[0], [0, 0])
    widths = sorted(p.get_linewidth() for p in axes[2].patches)
    assert widths[0] < widths[1]
    assert not axes[2].texts
    figure.canvas.draw()
    matplotlib.pyplot.close(figure)


def test_what_is_not_drawn():
    keys = jax.random.split(KEY, 2)
    several = sample_neighbors(keys, GRAPH, np.array([[0, 1], [2, 3]]), (2,))
    batch = sample_neighbors(KEY, GRAPH, np.arange(6), (-1,))
    for what, options, said in (
        (several, {}, "a super-batch of 2"),
        (batch, {"most": 3}, "at most 3 edges; got 8"),
        (GRAPH, {}, "a MiniBatch or an Explanation; got a Graph"),
        (Walk(2).sample(KEY, GRAPH, (), [0, 1]), {}, "an Explanation; got a Walks"),
    ):
        refused(said, jgs.viz.neighborhood, what, **options)


RELATIONS = {
    ("author", "writes", "paper"): ([0, 1, 1], [0, 0, 1]),
    ("paper", "cites", "paper"): ([1, 1], [0, 0]),
    ("paper", "extends", "paper"): ([1], [0]),
}


def test_types_have_markers_colors_and_line_styles():
    """A legend names them; ids are those in the type; relations need the column `type`."""
    graph = jgs.Graph.from_relations({"author": 2, "paper": 2}, RELATIONS)
    for columns in ((), ("type",)):
        batch = sample_neighbors(KEY, graph, np.array([2]), (-1, -1), edges=columns)
        ax = jgs.viz.neighborhood(batch)
        arrows = [p for p in ax.patches if isinstance(p, FancyArrowPatch)]
        styles = [p.get_linestyle() for p in arrows]
        texts = [text.get_text() for text in ax.get_legend().get_texts()]
        assert texts[:3] == ["author", "paper", "writes"]
        assert sorted(text.get_text() for text in ax.texts) == ["0", "0", "1", "1"]
        if columns:
            assert texts[3:] == ["cites", "extends"]
            assert len(styles) == 5  # the two citations are one
            assert len({p.get_connectionstyle().rad for p in arrows}) == 2
            assert len(set(map(str, styles))) == 3
        else:
            assert (texts[3:], len(styles)) == ([], 4)
        authors, papers = ax.collections[-2:]
        assert (len(authors.get_offsets()), len(papers.get_offsets())) == (2, 2)
        ax.figure.canvas.draw()
        colors = [np.unique(c.get_facecolors(), axis=0) for c in (authors, papers)]
        assert len(np.unique(np.concatenate(colors), axis=0)) == 2
        matplotlib.pyplot.close(ax.figure)
    one, edges = np.ones((4, 2), np.float32), np.array([[0, 1, 3], [2, 3, 2]])
    found = Explanation(
        *(2, 1, 0.5, np.array([2, 3, 0, 1]), one, *edges, np.array([0, 1, 0]), np.arange(3)),
        *(one[:3, 0], graph.schema, np.array([0, 0, 2], np.int16)),
    )
    ax = jgs.viz.neighborhood(found)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["author", "paper", "writes", "extends"]
    matplotlib.pyplot.close(ax.figure)
