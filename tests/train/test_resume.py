"""A run of any sampler, schedule or average goes on from a checkpoint to the same bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases, rarely
from small_data import small
from small_runs import arrays, measured, metrics, resumed, train

import jgs
from jgs.train.loop import checkpoint, folder, progress

# Checkpoints after the steps 5, 8, 13 and 16, of 8 in an epoch.
TWO_EPOCHS = "--epochs 2 --checkpoint-every 5 --keep 9"


@pytest.mark.parametrize("step", [5, 8])
def test_within_an_epoch_and_between_two(whole, tmp_path, step):
    resumed(whole, tmp_path / "run", step)


OTHERS = [
    "labor --importance 1 --period 4 --layer-dependency",
    "pinsage --fanouts 4 --walks 20 4 --restart 0.3",
    "frontier --budget 60 --frontier-size 9 --norm-error 0.3 --layers 2 --fanouts 10 10 "
    "--model gcn --concat",  # the default fanouts: none given
    "shadow --fanouts 4 3 --disjoint --layers 1",
]


@cases("sampler", *rarely(OTHERS, 1, 3))
def test_other_samplers(tmp_path, sampler):
    assert train(tmp_path / "whole", TWO_EPOCHS, "--sampler", sampler) == 0
    resumed(tmp_path / "whole", tmp_path / "run", 13)


LEARNERS = [
    # Histories of both layers, each with two ages.
    ("vrgcn --fanouts 2 2 --state-age 2", 2, (400,), 2 * (1 + 2)),
    # The weights W of 8 features, and Adam's two moments.
    ("pass --fanouts 3", 2, (8, 128), 3),
    ("asgcn --sizes 40 --fanouts 10 10", 1, (8,), 3),
]


@cases("sampler, rank, shape, number", *rarely(LEARNERS, 1))
def test_samplers_that_learn(tmp_path, sampler, rank, shape, number):
    assert train(tmp_path / "whole", TWO_EPOCHS, "--hidden 9 --sampler", sampler) == 0
    every = [a for a in arrays(tmp_path / "whole") if a.ndim == rank]
    own = [a for a in every if a.shape[: len(shape)] == shape]
    assert len(own) == number
    assert all(state.any() for state in own)
    resumed(tmp_path / "whole", tmp_path / "run", 13)


SCHEDULES = [
    ("--fanout-schedule 1:4,3 2:4,2", 1),
    ("--fanout-schedule plateau:4,3 --plateau-fraction 0.9 --plateau-epochs 1", 2),
]


@cases("schedule, switch", *rarely(SCHEDULES, 0))
def test_across_a_switch_of_fanouts(whole, tmp_path, capsys, schedule, switch):
    """At the switch and after it."""
    grown = tmp_path / "whole"
    assert train(grown, schedule, "--checkpoint-every 5 --keep 9") == 0
    assert f"from epoch {switch + 1} on: Neighbors(fanouts=(4, 3)" in capsys.readouterr().err
    assert metrics(grown)[:switch] == metrics(whole)[:switch]
    assert metrics(grown)[switch] != metrics(whole)[switch]
    for step in (8 * switch, 8 * switch + 5):
        resumed(grown, tmp_path / f"{step}", step)


def tensorboard(run_dir):
    """{name: [(epoch, number)]} as TensorBoard reads the events."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = accumulator.EventAccumulator(
        str(run_dir / progress.TENSORBOARD), {accumulator.TENSORS: 0}
    )
    reader.Reload()
    return {
        name: [(e.step, float(e.tensor_proto.float_val[0])) for e in reader.Tensors(name)]
        for name in reader.Tags()["tensors"]
    }


def test_rates_gradients_averages_metric_and_log(tmp_path):
    """Accumulation goes on from one epoch to the next."""
    flags = """--average ema --average-decay 0.7 --accumulate 3 --clip-norm 0.5
        --precision bfloat16 --label-smoothing 0.1 --lr-schedule warmup_cosine --model gat
        --heads 2 --fanouts 3 --metric auc --log tensorboard"""
    assert train(tmp_path / "whole", TWO_EPOCHS, flags) == 0
    resumed(tmp_path / "whole", tmp_path / "run", 13)
    assert folder.read_metrics(tmp_path / "run", 1)[0]["metric"] == "AUC"
    is_judged_by_its_average(tmp_path / "run")
    for name in ("whole", "run"):
        rows, seen = folder.read_metrics(tmp_path / name, 9), tensorboard(tmp_path / name)
        for column in ("train_loss", "val_accuracy", "seeds_per_second"):
            want = [(row["epoch"], pytest.approx(row[column], rel=1e-6)) for row in rows]
            assert seen[column] == want


def test_an_average_of_epochs(tmp_path):
    flags = """--average swa --average-from 1 --accumulate 3 --sampler subgraph
        --extra-nodes 60 --layers 1 --fanouts 10 10 --checkpoint-every 5 --keep 9"""
    assert train(tmp_path / "whole", flags) == 0
    resumed(tmp_path / "whole", tmp_path / "run", 21)  # the first epoch is in the average
    is_judged_by_its_average(tmp_path / "run")


def is_judged_by_its_average(run_dir):
    """The average is what is judged and predicted with, and no copy of the last parameters."""
    state = checkpoint.read(run_dir / folder.CHECKPOINTS)[0]["state"]
    run = jgs.open_run(run_dir, params="last", progress=False)
    trees = run.last_params, state["opt_state"]["average"], state["params"]
    for own, average, plain in zip(*map(jax.tree.leaves, trees), strict=True):
        assert own.dtype == jnp.float32
        np.testing.assert_array_equal(own, average)
        assert own.size < 5 or not np.array_equal(average, plain)
    assert all(np.asarray(a).dtype != jnp.bfloat16 for a in arrays(run_dir))
    nodes, value = run.split("val"), run.metrics["val_accuracy"][-1]
    found = measured(run.config.metric or "accuracy", run.logits(nodes), small().labels[nodes])
    assert found == pytest.approx(value)
