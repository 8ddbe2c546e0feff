"""`--sampler context --model relgt`, by the command: learned, judged, resumed and predicted."""

import numpy as np
import pytest
from refusals import command_refused, refused
from small_data import communities, papers, small, typed_moments
from small_runs import result, resumed, trainer

import jgs
from jgs.export import export_run
from jgs.graph import Graph
from jgs.predict.__main__ import main as predict
from jgs.report import write_report
from jgs.train.__main__ import main
from jgs.train.evaluation.link_metrics import LINK_METRICS
from jgs.train.tasks.task import open_job

train = trainer("""
    --sampler context --context-size 8 --fanouts 4 2 --model relgt --hidden 16 --batch-size 20
    --epochs 4 --layers 1 --lr 1e-2 --dropout 0 --no-progress
""")


def test_labels_at_moments_are_learned_and_predicted(saved, tmp_path):
    more = "--context-size 3 --fanouts 1 --latest --batch-size 60 --epochs 5"
    judged = train(saved(typed_moments), tmp_path / "run", more)["test_accuracy"]
    assert judged > 0.95  # the last event tells
    run, table = jgs.open_run(tmp_path / "run"), typed_moments().label_table
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


def test_a_resumed_run_has_the_same_bits(learned, tmp_path):
    resumed(learned, tmp_path / "run", 2)


def test_what_contexts_do_not_have_is_refused(learned, tmp_path, capsys):
    argv = ["--run-dir", str(learned), "--out", str(tmp_path / "a.npy"), "--fanouts", "3"]
    command_refused(capsys, "--fanouts must be for a run of another task", predict, argv)
    run = jgs.open_run(learned)
    refused("explanations of nodes", run.explain, 3)
    refused("that reads no contexts*relgt", export_run, run, tmp_path / "exported")
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
