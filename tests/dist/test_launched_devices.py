"""`python -m jgs.train` as two processes that draw on their hosts and train on devices."""

import jax
import numpy as np
import orbax.checkpoint as ocp
import programs
from ranks import finish, result
from small_ranks import FLAGS

from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

FOUR = {"XLA_FLAGS": programs.quickly(devices=4)}
EPOCHS = 2


def parameters(run_dir):
    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        every = reader.restore(last.resolve() / checkpoint.ARRAYS)
    return jax.tree.leaves(every["best_params"])


def test_processes_with_devices_end_as_one_process(start, parts, tmp_path):
    """Two processes train on devices; one process goes on, in vanilla mode."""
    more = ["--batch-size", 16, "--epochs", EPOCHS, "--comm", "none"]
    whole, two = ([*FLAGS, "--partition", parts, "--run-dir", tmp_path / n] for n in "ab")
    assert main(list(map(str, [*whole, *more]))) == 0
    devices = [["--device", each] for each in ("cpu:1,2", "cpu:3,1")]
    own = {"each": devices, "variables": [FOUR] * 2}
    ended, printed = result(start("jax", 2, *two, "--batch-size", 8, "--epochs", 1, **own))
    assert ended["epochs"] == 1
    # A share that were lost or drawn twice would show in the first epoch's loss.
    losses = [folder.read_metrics(tmp_path / run, 1)[0]["train_loss"] for run in "ab"]
    assert abs(losses[0] - losses[1]) < 1e-4
    assert "training on 2 x cpu\n" in printed
    rest = [*two, *more, "--device", "cpu:1,2", "--mode", "vanilla", "--resume"]
    assert main(list(map(str, rest))) == 0
    for a, b in zip(parameters(tmp_path / "b"), parameters(tmp_path / "a"), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_what_two_processes_cannot_do_is_said_at_once(start, parts, tmp_path):
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run", "--batch-size", 8]
    uneven = {"each": [["--device", "cpu:1"], ["--device", "cpu"]], "variables": [FOUR] * 2}
    statuses, out, err = finish(start("jax", 2, *flags, **uneven))
    assert statuses == [2, 2]
    assert out == ""
    assert "train on as many devices, of one kind, or all where they draw" in err
