"""`python -m jgs.train` as two processes that draw on their hosts and train on devices."""

import os
from unittest import mock

import numpy as np
from launched import FLAGS, finish, result

from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
EPOCHS = 2


def parameters(run_dir):
    import jax
    import orbax.checkpoint as ocp

    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        every = reader.restore(last.resolve() / checkpoint.ARRAYS)
    return jax.tree.leaves(every["best_params"])


def test_processes_with_devices_end_as_one_process(start, parts, tmp_path):
    """Two processes train on a device each, or on two; one process goes on."""
    more = ["--batch-size", 16, "--epochs", EPOCHS, "--comm", "none"]

    def flags(name):
        return ["--partition", parts, *FLAGS, "--run-dir", tmp_path / name]

    assert main(list(map(str, [*flags("whole"), *more]))) == 0
    for name, here, there, said, then in (
        ("one", "cpu:1", "cpu:2", "training on cpu\n", ()),
        ("two", "cpu:1,2", "cpu:3,1", "training on 2 x cpu\n", ("--device", "cpu:1,2")),
    ):
        devices = {"each": [["--device", here], ["--device", there]], "variables": [FOUR] * 2}
        two = start("jax", 2, *flags(name), "--batch-size", 8, "--epochs", 1, **devices)
        ended, printed = result(two)
        assert ended["epochs"] == 1
        # A share that were lost or drawn twice would show in the first epoch's loss.
        losses = [
            folder.read_metrics(tmp_path / run, 1)[0]["train_loss"] for run in (name, "whole")
        ]
        assert abs(losses[0] - losses[1]) < 1e-4
        assert said in printed
        # The topology is split, too.
        rest = [*flags(name), *more, *then, "--mode", "vanilla", "--resume"]
        assert main(list(map(str, rest))) == 0
        for a, b in zip(
            parameters(tmp_path / name), parameters(tmp_path / "whole"), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=2e-3)


def test_what_two_processes_cannot_do_is_said_at_once(start, parts, tmp_path):
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run", "--batch-size", 8]
    uneven = {"each": [["--device", "cpu:1"], ["--device", "cpu"]], "variables": [FOUR] * 2}
    statuses, out, err = finish(start("jax", 2, *flags, **uneven))
    assert statuses == [2, 2]
    assert out == ""
    assert "train on as many devices, of one kind, or all where they draw" in err


def test_ranks_under_mpi_train_on_their_hosts(start, parts, tmp_path):
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run", "--batch-size", 8]
    with mock.patch.dict(os.environ, FOUR):
        statuses, _, err = finish(start("mpi", 2, *flags, "--device", "cpu:1"))
    assert set(statuses) == {2}
    assert "a device's number must be one of 0" in err or "must meet by --comm jax" in err
