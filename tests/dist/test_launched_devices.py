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


def test_processes_with_a_device_each_end_as_one_process(start, parts, tmp_path):
    """Two processes train on devices 1 and 2, and one process goes on where they are."""
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run"]
    devices = {"each": [["--device", "cpu:1"], ["--device", "cpu:2"]], "variables": [FOUR] * 2}
    two = start("jax", 2, *flags, "--batch-size", 8, "--epochs", 1, **devices)
    ended, said = result(two)
    assert ended["epochs"] == 1
    assert "training on cpu" in said
    more = ["--batch-size", 16, "--epochs", EPOCHS]
    whole = [*flags[:-1], tmp_path / "whole", *more, "--comm", "none"]
    assert main(list(map(str, whole))) == 0
    assert main(list(map(str, [*flags, *more, "--comm", "none", "--resume"]))) == 0
    mine, theirs = parameters(tmp_path / "run"), parameters(tmp_path / "whole")
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_what_two_processes_cannot_do_is_said_at_once(start, parts, tmp_path):
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run", "--batch-size", 8]
    several = start("jax", 2, *flags, "--device", "cpu:1,2", variables=[FOUR] * 2)
    statuses, out, err = finish(several)
    assert statuses == [2, 2]
    assert out == ""
    assert "several processes must each train on one device" in err
    uneven = {"each": [["--device", "cpu:1"], ["--device", "cpu"]], "variables": [FOUR] * 2}
    statuses, _, err = finish(start("jax", 2, *flags, **uneven))
    assert statuses == [2, 2]
    assert "train on devices of one kind, or all where they draw" in err


def test_ranks_under_mpi_train_on_their_hosts(start, parts, tmp_path):
    flags = ["--partition", parts, *FLAGS, "--run-dir", tmp_path / "run", "--batch-size", 8]
    with mock.patch.dict(os.environ, FOUR):
        statuses, _, err = finish(start("mpi", 2, *flags, "--device", "cpu:1"))
    assert set(statuses) == {2}
    assert "a device's number must be one of 0" in err or "must meet by --comm jax" in err
