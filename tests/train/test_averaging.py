"""What comes between a gradient and the parameters that are judged: clipping, accumulation,
bfloat16 and averages; and that a run with all of them resumes to the bit."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_runs import arrays, same_run, train

import jgs
from jgs.train.loop import checkpoint, folder, learner
from jgs.train.loop.averaging import averaged, judged
from jgs.train.loop.step import make_optimizer

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([[3.0]])}


def gradients(count):
    rng = np.random.default_rng(0)
    return [
        jax.tree.map(lambda a: 5 * rng.standard_normal(a.shape).astype(np.float32), PARAMS)
        for _ in range(count)
    ]


def stepped(optimizer, given):
    """The parameters after each step, and what is judged then."""
    params, state, found = PARAMS, optimizer.init(PARAMS), []
    for gradient in given:
        updates, state = jax.jit(optimizer.update)(gradient, state, params)
        params = optax.apply_updates(params, updates)
        found.append((params, judged(params, state)))
    return found


def close(one, other):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other
    )


def test_accumulated_gradients_are_those_of_a_larger_batch():
    given = gradients(6)
    means = [jax.tree.map(lambda *g: sum(g) / 3, *given[at : at + 3]) for at in (0, 3)]
    norms = [float(optax.global_norm(mean)) for mean in means]
    limit = min(norms) * 0.7
    clipped = [
        jax.tree.map(lambda g, n=norm: g * min(1, limit / n), mean)
        for mean, norm in zip(means, norms, strict=True)
    ]
    schedule = optax.cosine_decay_schedule(0.1, 2)
    want = stepped(make_optimizer(schedule, 0.3), clipped)
    found = stepped(make_optimizer(schedule, 0.3, limit, 3), given)
    close([found[at][0] for at in (2, 5)], [params for params, _ in want])
    close([found[at][0] for at in (1, 4)], [PARAMS, want[0][0]])


@pytest.mark.parametrize("decay", [None, 0.6])
def test_averages_by_definition(decay):
    """Of the parameters after every second step from the third on."""
    found = stepped(averaged(make_optimizer(0.1), decay, every=2, begin=3), gradients(9))
    mean, number = None, 0
    for step, (params, average) in enumerate(found, 1):
        if step > 3 and step % 2 == 0:
            number += 1
            share = 1 / number if decay is None else max(1 / number, 1 - decay)
            mean = params if number == 1 else jax.tree.map(
                lambda old, new, s=share: old + s * (new - old), mean, params
            )  # fmt: skip
        close(average, params if mean is None else mean)


class Crash(Exception):
    pass


FLAGS = """--clip-norm 0.5 --accumulate 3 --precision bfloat16 --checkpoint-every 2
    --label-smoothing 0.1"""


@pytest.mark.parametrize(
    "average",
    [
        "--average ema --average-decay 0.7 --model gat --heads 2",
        "--average swa --average-from 1",
    ],
)
def test_a_resumed_run_has_the_same_averages(average, tmp_path, capsys, monkeypatch):
    """An epoch has 8 steps, so that accumulation goes on from one to the next."""
    flags = [*FLAGS.split(), *average.split()]
    assert train(tmp_path / "whole", *flags) == 0
    whole = json.loads(capsys.readouterr().out)
    step, calls = learner.ModelLearner.step, []

    def crashing(*inputs):
        calls.append(1)
        if len(calls) == 12:
            raise Crash
        return step(*inputs)

    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", crashing)
        with pytest.raises(Crash):
            train(tmp_path / "cut", *flags)
    assert train(tmp_path / "cut", "--resume") == 0
    assert json.loads(capsys.readouterr().out)["params_sha256"] == whole["params_sha256"]
    same_run(tmp_path / "cut", tmp_path / "whole")
    # The average is what is judged and predicted with, and no copy of the last parameters.
    last = checkpoint.checkpoints(tmp_path / "whole" / folder.CHECKPOINTS)[-1]
    saved, _ = checkpoint.read(last.parent)
    run = jgs.open_run(tmp_path / "whole", params="last", progress=False)
    assert run.metrics["epoch"][-1] == 3
    mean, end = saved["state"]["opt_state"]["average"], saved["state"]["params"]
    own = jax.tree.leaves(run.last_params)
    for leaf, average, plain in zip(own, *map(jax.tree.leaves, (mean, end)), strict=True):
        assert leaf.dtype == jnp.float32
        np.testing.assert_array_equal(leaf, average)
        assert leaf.size < 5 or not np.array_equal(average, plain)
    nodes = run.split("val")
    data = jgs.data.load(run.config.dataset, **run.config.data_arguments())
    right = (run.predict(nodes).prediction == data.labels[nodes]).mean()
    assert right == pytest.approx(run.metrics["val_accuracy"][-1])
    assert all(np.asarray(a).dtype != jnp.bfloat16 for a in arrays(tmp_path / "whole"))
