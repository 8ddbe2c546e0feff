"""Predictions, embeddings and explanations for the nodes of a type, by their ids in it."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from refusals import command_refused, refused
from trained import predicted, untrained

import jgs
from jgs.models import MODELS
from jgs.partition.__main__ import main as partition
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train

COUNTS = {"author": 30, "paper": 50, "venue": 4}
RNG = np.random.default_rng(0)
RELATIONS = {
    ("author", "writes", "paper"): (RNG.integers(0, 30, 150), RNG.integers(0, 50, 150)),
    ("paper", "cites", "paper"): RNG.integers(0, 50, (2, 120)),
    ("venue", "prints", "paper"): (np.arange(50) % 4, np.arange(50)),
}
GRAPH = jgs.Graph.from_relations(COUNTS, RELATIONS, both_ways=True)
FEATURES = RNG.normal(size=(84, 5)).astype(np.float32)

SMALL = "--fanouts 3 3 --hidden 8 --batch-size 10 --epochs 1 --no-progress"


@pytest.fixture(scope="module")
def run():
    return untrained(MODELS["sage"](5, 8, 3, 2, rngs=nnx.Rngs(0)), 5, 3)


def test_nodes_of_a_type_have_their_own_ids(run):
    of = {"graph": GRAPH, "features": jnp.asarray(FEATURES)}
    every = run.logits(**of)
    np.testing.assert_array_equal(
        run.logits([49, 0, 7], node_type="paper", **of), every[[79, 30, 37]]
    )
    np.testing.assert_array_equal(run.logits(node_type="venue", **of), every[80:])
    assert run.embed(node_type="author", **of).shape == (30, 8)
    best = run.predict([3, 1], node_type="paper", **of).prediction
    np.testing.assert_array_equal(best, every[[33, 31]].argmax(1))
    sampled = run.logits([4], node_type="paper", fanouts=(-1, -1), **of)
    np.testing.assert_allclose(sampled, every[[34]], rtol=1e-4, atol=1e-5)
    untyped = {"graph": jgs.Graph.from_edges([0], [1], 84), "features": of["features"]}
    for asked, more, says in (
        ([50], of, "from 0 to 49; got 50"),
        ([0], untyped, "graph with node types"),
        ([0], of | {"node_type": "editor"}, "author, paper, venue"),
    ):
        refused(says, run.logits, asked, **{"node_type": "paper"} | more)


def test_explanations_name_types_and_relations(run):
    of = {"graph": GRAPH, "features": jnp.asarray(FEATURES)}
    found = run.explain(7, node_type="paper", fanouts=(-1, -1), **of)
    assert (found.node, found.nodes[0]) == (37, 37)
    assert "node=paper 7" in repr(found)
    edges, nodes = found.edge_table(), found.node_table()
    names = {(name, a, b): i for i, (a, name, b) in enumerate(GRAPH.schema.relations)}
    first = {"author": 0, "paper": 30, "venue": 80}
    ends = zip(edges["src_type"], edges["src_id"], edges["src"], strict=True)
    assert all(first[kind] + place == node for kind, place, node in ends)
    triples = zip(edges["relation"], edges["src_type"], edges["dst_type"], strict=True)
    numbers = [names[tuple(map(str, triple))] for triple in triples]
    np.testing.assert_array_equal(numbers, np.asarray(GRAPH.edge_type)[found.edge_id])
    assert set(numbers) >= {0, 1, 2}
    assert (nodes["type"][0], nodes["id"][0]) == ("paper", 7)
    np.testing.assert_allclose(nodes["value"], found.features.sum(1))
    untyped = jgs.Graph(GRAPH.indptr, GRAPH.indices)
    plain = run.explain(37, **(of | {"graph": untyped}))
    assert list(plain.edge_table()) == ["src", "dst", "hop", "edge_id", "value"]
    assert "node=37" in repr(plain)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    arrays = {f"num_{name}": np.array(count) for name, count in COUNTS.items()}
    for (a, _, b), ends in RELATIONS.items():
        arrays[f"{a}_{b}"] = np.stack(ends)
    arrays |= {"train_idx": np.arange(30), "val_idx": np.arange(30, 40)}
    arrays |= {"test_idx": np.arange(40, 50), "paper_labels": RNG.integers(0, 3, 50)}
    np.savez(folder / "typed.npz", **arrays, paper_features=FEATURES[:50])
    return folder / "typed.npz"


def test_the_command(archive, tmp_path, capsys):
    """Files have ids in the type, also where parts have other ids of the graph."""
    parts, run_dir = str(tmp_path / "parts"), str(tmp_path / "run")
    argv = ["--dataset", str(archive), "--parts", "2", "--method", "ldg", "--out", parts]
    assert partition(argv) == 0
    assert train(["--partition", parts, *SMALL.split(), "--run-dir", run_dir]) == 0
    run, out = jgs.open_run(tmp_path / "run"), tmp_path / "out.npy"
    every = run.predict().prediction
    start = run.schema.nodes("paper").start
    got = predicted(run.run_dir, out, "--node-type", "paper")
    np.testing.assert_array_equal(got["node"], np.arange(50))
    np.testing.assert_array_equal(got["prediction"], every[start : start + 50])
    got = predicted(run.run_dir, out, "--node-type", "paper", "--split", "test")
    np.testing.assert_array_equal(got["node"], np.arange(40, 50))
    (tmp_path / "ids.txt").write_text("3\n0\n")
    asked = "--nodes", tmp_path / "ids.txt"
    got = predicted(run.run_dir, out, "--node-type", "venue", "--embed", *asked)
    assert got["node"].tolist() == [3, 0]
    venues = run.schema.nodes("venue").start + np.array([3, 0])
    np.testing.assert_array_equal(got["embedding"], run.embed(venues))
    np.testing.assert_array_equal(got["embedding"], run.embed([3, 0], node_type="venue"))
    (tmp_path / "ids.txt").write_text("4\n")
    for kind, says in (("venue", "from 0 to 3"), ("editor", "author, paper, venue")):
        argv = ["--run-dir", run.run_dir, "--out", out, "--node-type", kind, *asked]
        command_refused(capsys, says, predict, list(map(str, argv)))


def test_links_and_their_targets_by_type(archive, tmp_path):
    """`--top-k` for sources of a type gives targets by their ids in their own type."""
    flags = [*SMALL.split(), "--task", "links", "--relation", "author_paper", "--run-dir"]
    assert train(["--dataset", str(archive), *flags, str(tmp_path / "run")]) == 0
    run, out = jgs.open_run(tmp_path / "run"), tmp_path / "out.npy"
    authors = run.schema.nodes("author")
    got = predicted(run.run_dir, out, "--node-type", "author", "--top-k", 3)
    best, _ = run.recommend(np.array(authors), 3)
    assert got["source"].tolist() == np.repeat(np.arange(30), 3).tolist()
    untold = predicted(run.run_dir, out, "--top-k", 3)  # authors too, by ids of the graph
    np.testing.assert_array_equal(untold["source"], got["source"] + authors.start)
    np.testing.assert_array_equal(untold["target"], best.reshape(-1))
    papers = run.schema.nodes("paper")
    np.testing.assert_array_equal(got["target"], best.reshape(-1) - papers.start)
    np.testing.assert_array_equal(run.embed([2], node_type="paper"), run.embed([papers[2]]))
