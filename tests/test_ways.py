"""A way through the rooms of jgs does not go back and forth: at most 8 returns (`ways`)."""

import jax
import numpy as np
import pytest
from trained import of_data
from ways import returns, shown, way_of

import jgs
from jgs.data.plain import load_plain
from jgs.sampling import Loader
from jgs.train.flags import parse
from jgs.train.loop.folder import configure

MOST = 8
FLAGS = "--data-options num_nodes=200 num_edges=1000 --hidden 4 --fanouts 2 2 --batch-size 20"


def at_most(way, most=MOST):
    assert returns(way) <= most, f"{returns(way)} returns\n{shown(way)}"


@pytest.fixture
def csv(tmp_path):
    rows = ((i % 7, i % 5, i, i % 3) for i in range(35))
    lines = ("{},{},{},{}\n".format(*row) for row in rows)
    (tmp_path / "edges.csv").write_text("src,dst,time,label\n" + "".join(lines))
    return tmp_path / "edges.csv"


def test_a_csv_to_its_graph(csv):
    data, way = way_of(lambda: load_plain(csv, csv.parent))
    assert data.graph.num_edges == 35
    at_most(way)
    graph, way = way_of(lambda: jgs.Graph.from_table(csv))
    assert graph.num_edges == 35
    at_most(way)


def test_items_of_a_loader():
    """Those of an epoch, in the caller's thread."""
    src, dst = np.random.default_rng(0).integers(0, 20, (2, 100))
    graph, key = jgs.Graph.from_edges(src, dst, 20), jax.random.key(0)
    loader = Loader(graph, np.arange(20), 5, (2, 2), key=key, prefetch=0)
    batches, way = way_of(lambda: list(loader))
    assert len(batches) == 4
    at_most(way)


def test_arguments_of_train():
    flags = "--task links --dataset cora --sampler labor --decoder mlp --epochs 3 --hidden 8"
    config, way = way_of(lambda: configure(parse(flags.split())))
    assert (config.sampler, config.hidden) == ("labor", 8)
    at_most(way)


def test_a_prediction():
    """By an opened run, whose data the first prediction has read."""
    run = of_data(FLAGS)
    run.predict([0])
    found, way = way_of(lambda: run.predict(np.arange(20)))
    assert len(found.prediction) == 20
    at_most(way)


def test_a_way_that_goes_back_and_forth_is_seen(csv):
    """The walk counts the rooms that are left and come back to, each call once."""

    def often():
        for _ in range(2):
            jgs.data.load("synthetic", num_nodes=50, num_edges=100)
            jgs.Graph.from_edges([0], [1], 2)

    _, way = way_of(often)
    rooms = {call.room for call in way}
    assert {"data", "graph"} <= rooms
    assert len(way) == len(set(way))
    assert returns(way) >= returns(way[:-1]) > 0
    assert returns(way[:1]) == 0
