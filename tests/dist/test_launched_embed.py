"""`python -m jgs.train --task embed` on two ranks: it learns what one rank learns, and resumes
bit for bit."""

import shutil

import jax
import numpy as np
import pytest
from launched import result

from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.train.__main__ import main
from jgs.train.flags import parse
from jgs.train.loop import checkpoint, folder
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

FLAGS = """
    --task embed --sampler node2vec --p 0.5 --q 2 --dim 4 --walk-length 6 --num-walks 2
    --window 2 --shared-negatives 3 --lr 0.2 --epochs 2 --checkpoint-every 6 --keep 99
    --no-progress --watchdog 8
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A graph of 50 nodes, the last without an edge, and no labels."""
    src, dst = np.random.default_rng(0).integers(49, size=(2, 150))
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    edges = np.stack([np.r_[src, dst], np.r_[dst, src]])
    np.savez(path, edge_index=edges, num_nodes=50)
    return path


def embeddings(run_dir):
    return np.load(run_dir / "embeddings.npy")


@pytest.mark.parametrize("kind", ["mpi", "jax"])
def test_two_ranks_learn_what_one_does(start, data, tmp_path, kind):
    flags = [*FLAGS.split(), "--dataset", data, "--run-dir"]
    told, err = result(start(kind, 2, *flags, tmp_path / "two", "--batch-size", 5))
    assert "accuracy" not in told
    assert "epoch 2/2" in err
    assert main([*map(str, flags), str(tmp_path / "one"), "--batch-size", "10"]) == 0
    one, two = embeddings(tmp_path / "one"), embeddings(tmp_path / "two")
    assert np.abs(two - one).max() <= 1e-5 * np.abs(one).max()
    assert np.abs(one).min(axis=0).max() > 0  # the isolated node has a row as well
    # As if it was killed after the seventh of 20 steps.
    for name in ("again", "alone"):
        shutil.copytree(tmp_path / "two", tmp_path / name)
        for path in checkpoint.checkpoints(tmp_path / name / folder.CHECKPOINTS):
            if int(path.name.split("-")[1]) > 7:
                shutil.rmtree(path)
        (tmp_path / name / "embeddings.npy").unlink()
    again = ("--resume", "--run-dir", tmp_path / "again", "--no-progress")
    _, err = result(start(kind, 2, *again))
    assert "resuming after 0 epochs and 6 steps" in err
    np.testing.assert_array_equal(embeddings(tmp_path / "again"), two)
    assert main(["--resume", "--run-dir", str(tmp_path / "alone")]) == 0
    assert np.abs(embeddings(tmp_path / "alone") - one).max() <= 1e-5 * np.abs(one).max()


@pytest.mark.parametrize("causal", [False, True])
def test_three_and_four_ranks_learn_what_one_does(data, tmp_path, causal):
    """Devices of this process. 50 nodes are no multiple of 3, of 4, or of a step's walks."""
    found = {}
    if causal:
        edges = np.load(data)["edge_index"]
        data, time = tmp_path / "events.npz", np.arange(edges.shape[1]) // 2 % 40
        np.savez(data, edge_index=edges, num_nodes=50, edge_time=time)
    for ranks in (1, 3, 4):
        flags = [*FLAGS.split(), "--dataset", data, "--run-dir", tmp_path / str(ranks)]
        flags += ["--causal"] * causal + [
            "--batch-size",
            12 // ranks,
            "--epochs",
            1,
            "--checkpoint-every",
            0,
        ]
        comm = Mesh(jax.devices()[:ranks]) if ranks > 1 else Alone()
        config = folder.configure(parse(list(map(str, flags))))
        loop.run(config, lambda config, comm=comm: open_job(config, comm))
        found[ranks] = embeddings(tmp_path / str(ranks))
        assert np.abs(found[ranks] - found[1]).max() <= 1e-5 * np.abs(found[1]).max()
    assert np.abs(found[1]).min(axis=0).max() > 0
