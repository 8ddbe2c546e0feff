"""Runs of models of typed graphs: on one machine, on devices, resumed."""

import jax
import numpy as np
import pytest
from small_data import papers, thirds
from small_runs import comm_of, metrics, result, resumed, trainer

import jgs
from jgs import InputError
from jgs.data import Dataset
from jgs.models import RSAGE
from jgs.train.config import Config
from jgs.train.loop.model import make_sampler, shape_of_types, types_of
from jgs.train.loop.open_data import open_data

OWN_MODEL = "test_typed_run:Own"
train = trainer("""
    --model rgcn --fanouts *=3 4 --hidden 8 --batch-size 20 --epochs 3 --lr 0.03
    --lr-schedule cosine --no-progress --checkpoint-every 2 --keep 9
""")


class Own(RSAGE):
    """With the arguments of `RSAGE`."""


def papers_alone():
    """Authors and venues without features."""
    whole, paper = papers(), {"paper": np.arange(90) % 2}
    features = {"paper": whole.features.table("paper")}
    return Dataset.from_arrays(whole.graph, features, paper, thirds(90), name="papers")


def config(**given):
    return Config(**{"model": OWN_MODEL, "batch_size": 20, "fanouts": (4, 3), **given})


def test_batches_have_the_rows_of_each_type(saved):
    settings = config(dataset=str(saved(papers, 1, True)), prefetch=0)
    data, sampler = open_data(settings), make_sampler(settings)
    assert data.types.widths == (40, 3, 0)
    assert data.sparse
    states = {sampler: data.state_of(sampler, None)}
    with data.loader(sampler, jax.random.key(0), None, states) as batches:
        batch, x = next(iter(batches))
    assert all(block.edge_type is not None for block in batch.blocks)
    mine, table = x.tables[1], data.features[0].tables[1]
    assert mine.unsafe_buffer_pointer() == table.unsafe_buffer_pointer()  # no copy
    # A checkpoint remembers the types.
    assert types_of(shape_of_types(data.types)) == data.types
    assert types_of(shape_of_types(None)) is None
    # A sampler that reads features knows no types.
    settings = config(dataset=settings.dataset, sampler="asgcn", sizes=(9, 9), fanouts=(10, 10))
    with pytest.raises(InputError, match=r"in one matrix for all nodes.*--sampler asgcn"):
        open_data(settings).state_of(make_sampler(settings), None)


def test_ranks_know_the_same_types(parted):
    settings = config(partition=str(parted(2, papers, 1, True)), batch_size=10)
    alone, ranks = open_data(settings), open_data(settings, comm_of(2))
    assert ranks.types.widths == alone.types.widths == (40, 3, 0)
    assert ranks.types.scales == alone.types.scales
    assert ranks.types.scales[0] == (2.0,)


def test_one_matrix_for_all_nodes_is_given_by_type(tmp_path):
    """To a model of the user's own."""
    matrix = np.random.default_rng(0).standard_normal((155, 4)).astype(np.float32)
    labels = {"paper": np.arange(90) % 3}
    Dataset.from_arrays(papers().graph, matrix, labels, thirds(90)).save(tmp_path / "one")
    assert open_data(config(dataset=str(tmp_path / "one"))).types.widths == (4, 4, 4)
    flags = ("--fanouts 3 --epochs 1 --model", OWN_MODEL)
    train(tmp_path / "one", tmp_path / "run", *flags)


def test_a_model_that_knows_no_types_reads_one_matrix(saved, parted, tmp_path):
    """The features of papers alone: those of others are 0."""
    train(saved(papers_alone), tmp_path / "run", "--model sage --fanouts 3 --epochs 1")
    data = open_data(config(partition=str(parted(2, papers_alone)), model="sage"))
    matrix = np.concatenate([np.asarray(part) for part in data.features[0]])
    rows = np.asarray(papers_alone().features.table("paper"))
    assert sorted(map(tuple, matrix[matrix.any(axis=1)])) == sorted(map(tuple, rows))


@pytest.fixture(scope="module")
def whole(saved, tmp_path_factory):
    """The folder of a run on the whole graph that was not interrupted."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    train(saved(papers), run_dir)
    return run_dir


def test_a_run_learns_and_answers_by_type(whole):
    run, rows = jgs.open_run(whole), metrics(whole)
    assert rows[-1]["train_loss"] < rows[0]["train_loss"] - 0.1
    logits = run.logits(node_type="paper")
    assert logits.shape == (90, 3)
    right = np.mean(logits[70:].argmax(1) == np.arange(70, 90) % 3)
    assert right == pytest.approx(result(whole)["test_accuracy"])
    np.testing.assert_array_equal(run.logits([3, 1], node_type="paper"), logits[[3, 1]])
    # Sampled evaluation over all neighbours reads the learned rows of venues too.
    sampled = run.logits([7, 2], node_type="paper", fanouts=(-1, -1))
    np.testing.assert_allclose(sampled, logits[[7, 2]], rtol=1e-4, atol=1e-5)
    assert run.embed(node_type="venue").shape == (5, 8)


def test_features_of_another_unit_are_learned_alike(saved, whole, tmp_path):
    """Small ones do not drown beside learned rows, and an opened run knows the unit."""
    train(saved(papers, 128), tmp_path / "run")
    for mine, theirs in zip(metrics(tmp_path / "run"), metrics(whole), strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
    run = jgs.open_run(tmp_path / "run")
    np.testing.assert_allclose(run.logits(), jgs.open_run(whole).logits(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("step", [2, 5])
def test_a_run_is_resumed_to_the_same_bits(whole, tmp_path, step):
    """Of three steps in an epoch. Learned rows have the rate of the step of the run."""
    resumed(whole, tmp_path / "run", step)


def test_another_graph_of_the_same_nodes_is_evaluated(whole):
    run, data = jgs.open_run(whole), papers()
    found = run.logits([70, 3], graph=data.graph, features=data.features)
    np.testing.assert_array_equal(found, run.logits([70, 3]))
