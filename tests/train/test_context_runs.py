"""`--sampler context --model relgt`, by the command: learned, judged, resumed and predicted."""

import numpy as np
import pytest
from refusals import command_refused, refused
from small_data import communities, papers, small, typed_moments
from small_runs import result, resumed, trainer

import jgs
from jgs.graph import Graph
from jgs.predict.__main__ import main as predict
from jgs.predict.explain import context_of
from jgs.report import write_report
from jgs.train.__main__ import main
from jgs.train.evaluation.by_samples import judges_key
from jgs.train.evaluation.link_metrics import LINK_METRICS
from jgs.train.tasks.task import open_job

train = trainer("""
    --sampler context --context-size 8 --fanouts 4 2 --model relgt --hidden 16 --batch-size 20
    --epochs 4 --layers 1 --lr 1e-2 --lr-schedule constant --dropout 0 --no-progress
""")


@pytest.fixture(scope="module")
def at_moments(saved, tmp_path_factory):
    """The folder of a run on `typed_moments`, whose contexts are a user and the last item."""
    run_dir = tmp_path_factory.mktemp("moments") / "run"
    more = "--context-size 3 --fanouts 1 --latest --batch-size 60 --epochs 5"
    train(saved(typed_moments), run_dir, more)
    return run_dir


def test_labels_at_moments_are_learned_and_predicted(at_moments):
    judged = result(at_moments)["test_accuracy"]
    assert judged > 0.95  # the last event tells
    run, table = jgs.open_run(at_moments), typed_moments().label_table
    nodes, time = run.rows("test")
    told = run.predict(nodes, time=time)
    assert (told.prediction == table.labels[table.split == 2]).mean() == pytest.approx(judged)


@pytest.fixture(scope="module")
def learned(saved, tmp_path_factory):
    """The folder of a run on `papers`, whose venues have learned rows."""
    run_dir = tmp_path_factory.mktemp("contexts") / "run"
    train(saved(papers), run_dir, "--checkpoint-every 1 --keep 99 --dropout 0.2")
    return run_dir


def test_contexts_of_nodes_are_learned_and_predicted(learned, tmp_path):
    judged = result(learned)["test_accuracy"]
    assert judged > 0.6  # by chance a third
    run = jgs.open_run(learned)
    nodes, data = run.split("test"), papers()
    told = run.predict(nodes)
    assert (told.prediction == run.labels("test")).mean() == pytest.approx(judged)
    some = run.predict(nodes[[5, 2, 5]])  # whatever else is asked for
    np.testing.assert_allclose(some.probability, told.probability[[5, 2, 5]], rtol=1e-5)
    assert run.embed(nodes[:3]).shape == (3, 16)
    assert run.embed(nodes[:0]).shape == (0, 16)
    mine = run.logits(nodes, graph=data.graph, features=data.features)
    np.testing.assert_allclose(mine, run.logits(nodes), rtol=1e-5)
    bare = Graph.from_relations(
        dict(data.graph.schema.node_types),
        {relation: ([], []) for relation in data.graph.schema.relations},
    )
    assert not np.allclose(mine, run.logits(nodes, graph=bare, features=data.features))
    out = tmp_path / "out.npy"
    assert predict(["--run-dir", str(learned), "--split", "test", "--out", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out)["prediction"], told.prediction)
    assert write_report(learned)["nodes"] == nodes.size


def test_tokens_that_matter_are_told(learned, at_moments):
    run, moment, graph = jgs.open_run(at_moments), 9_000, typed_moments().graph
    (src, dst), time, added = graph.edge_index(), np.asarray(graph.edge_time), []
    for user in (2, 3):
        found = run.explain(user, time=moment, method="integrated", steps=20)
        logits = run.logits([user], time=moment)[0]
        assert found.output == pytest.approx(logits[found.target], rel=1e-4)
        own = np.flatnonzero((dst == user) & (time < moment))
        last = src[own[np.argmax(time[own])]]
        assert (found.src, found.dst, found.nodes.tolist()) == (last, user, [user, last])
        added.append(found.edges[0])
    assert max(added) > 0.2  # it tells the label
    run = jgs.open_run(learned)
    found = run.explain(3, node_type="paper", method="integrated", steps=200)
    assert (found.hop.min(), found.hop.max(), found.features["paper"].shape[1]) == (0, 1, 3)
    ends = np.stack(papers().graph.edge_index())[:, found.edge_id]
    np.testing.assert_array_equal(ends, [found.src, found.dst])
    of = run.source(), {"nodes": np.array([found.node])}, judges_key(run.config)
    batch, x = context_of(run, *of)
    without = float(run.model.masked(batch, x, [np.zeros(8, np.float32)])[0, found.target])
    assert found.edges.sum() == pytest.approx(found.output - without, abs=1e-2)


def test_a_resumed_run_has_the_same_bits(learned, tmp_path):
    resumed(learned, tmp_path / "run", 2)


def test_what_contexts_do_not_have_is_refused(learned, tmp_path, capsys):
    argv = ["--run-dir", str(learned), "--out", str(tmp_path / "a.npy"), "--fanouts", "3"]
    command_refused(capsys, "--fanouts must be for a run of another task", predict, argv)
    run = jgs.open_run(learned)
    refused("fanouts must be for a run whose explanations", run.explain, 3, fanouts=(2, 2))
    refused("time must be for a run whose explanations", run.explain, 3, time=4)
    refused("fanouts must be for a run of nodes without times", run.predict, fanouts=(2,))
    says = "--model relgt must have a sampler of contexts; got --sampler ladies ... context"
    command_refused(capsys, says, main, ["--model", "relgt", "--sampler", "ladies"])


def test_untyped_nodes_have_contexts(saved, tmp_path):
    judged = train(saved(small), tmp_path / "run")
    assert judged["test_accuracy"] > judged["baselines"]["majority_class"]["test_accuracy"]


def test_layers_pass_messages_along_contexts(saved, tmp_path):
    more = "--model rsage --layers 2 --epochs 12 --lr 2e-2"
    found = train(saved(papers), tmp_path / "run", more)
    assert found["test_accuracy"] > 0.5


def test_links_have_contexts_of_both_ends(saved, tmp_path):
    more = "--task links --learned 8 --decoder dot --split random"
    found = train(saved(communities), tmp_path / "run", more)["test_accuracy"]
    assert found > 0.6
    run = jgs.open_run(tmp_path / "run")
    judged = open_job(run.config).judged["test"]
    scores = [
        run.scores(np.stack(ends, axis=1))
        for ends in ((judged.src, judged.dst), (judged.other_src, judged.other_dst))
    ]
    assert LINK_METRICS["auc"].measure(*scores, judged.mask, 0) == pytest.approx(found)
    best, scores = run.recommend([3, 40], 5)
    ends = np.stack([np.repeat([3, 40], 5), best.reshape(-1)], axis=1)
    np.testing.assert_allclose(run.scores(ends), scores.reshape(-1), rtol=1e-4)


def test_cells_are_those_of_the_tables(data_folder, tmp_path):
    more = """--db-task user-churn --model cells --cells 24 --batch-size 60 --epochs 1
        --metric auc --fanouts *=3 *=2"""
    judged = train(data_folder / "shop_db", tmp_path / "run", more)["test_accuracy"]
    run = jgs.open_run(tmp_path / "run")
    assert [name for name, *_ in run.model.columns[0]] == ["age", "city"]
    nodes, time = run.rows("test")
    logits, labels = run.logits(nodes, time=time), run.labels("test")
    assert jgs.train.auc(logits @ [-1, 1], labels == 1) == pytest.approx(judged)


def test_labels_of_edges_have_contexts_of_both_ends(saved, tmp_path):
    more = "--task edges --label label --learned 8 --decoder mlp --epochs 2"
    found = train(saved(communities), tmp_path / "run", more)["test_accuracy"]
    run = jgs.open_run(tmp_path / "run")
    edges = open_job(run.config).targets.test
    logits = run.logits(np.stack([edges["src"], edges["dst"]], axis=1))
    assert (logits.argmax(axis=1) == edges["label"]).mean() == pytest.approx(found)
