"""N ranks with batch B against one rank that has all N parts and batch N * B."""

import functools
import pickle
import re
from pathlib import Path

import check_training
import jax
import numpy as np
import pytest
from ranks import run_ranks

from jgs.data.parts import open_parts
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.__main__ import main as partition

SCRIPT = Path(__file__).with_name("check_training.py")
ALL = ["hybrid-none", "hybrid-degree", "hybrid-planned", "vanilla-none", "vanilla-planned"]
FEW = ["hybrid-planned", "vanilla-none"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Makes parts of a small data set: `parts(number, method)`."""

    @functools.cache
    def make(number, method):
        folder = tmp_path_factory.mktemp("parts") / "parts"
        options = ["num_nodes=600", "num_edges=4000", "num_features=16"]
        argv = ["--dataset", "synthetic", "--data-options", *options]
        argv += ["--parts", str(number), "--method", method, "--out", str(folder)]
        assert partition(argv) == 0
        return folder

    return make


@pytest.fixture(scope="module")
def typed_parts(tmp_path_factory):
    """Four parts of a graph of 60 users and 140 items."""
    folder, rng = tmp_path_factory.mktemp("typed"), np.random.default_rng(0)
    np.savez(
        folder / "shop.npz",
        num_user=60,
        num_item=140,
        user_item=rng.integers(0, 60, (2, 400)),
        item_item=rng.integers(0, 140, (2, 300)),
        item_labels=rng.integers(0, 3, 140),
        item_features=rng.random((140, 5), np.float32),
        train_idx=np.arange(60),
        val_idx=np.arange(60, 100),
        test_idx=np.arange(100, 140),
    )
    argv = ["--dataset", str(folder / "shop.npz"), "--method", "random", "--parts", "4"]
    assert partition([*argv, "--out", str(folder / "parts")]) == 0
    return folder / "parts"


@functools.cache
def alone(folder):
    return check_training.train(Alone(), str(folder), "hybrid", "none", check_training.SEEDS)


def merged(results):
    """What all ranks drew in each step. A node draws the same on whichever rank it is drawn."""
    steps = []
    for step in range(3):
        found = {}
        for result in results:
            for of_rank in result["drawn"][step]:
                for at, row in of_rank.items():
                    assert found.setdefault(at, row) == row
        steps.append(found)
    return steps


def test_one_rank_draws_the_same_in_vanilla_mode(parts):
    folder = parts(2, "metis")
    got = check_training.train(Alone(), str(folder), "vanilla", "none", check_training.SEEDS)
    assert merged([got]) == merged([alone(folder)])
    for mine, whole in zip(got["params"], alone(folder)["params"], strict=True):
        np.testing.assert_array_equal(mine, whole)


def test_ranks_draw_neighbors_of_each_type_as_one_does(typed_parts):
    schema = open_parts(typed_parts).schema
    kinds, hetgnn = set(), {"sampler": "hetgnn", "walks": (30, 4)}
    got, want = (
        check_training.train(comm, str(typed_parts), "hybrid", "none", seeds, **hetgnn)
        for comm, seeds in ((Mesh(jax.devices()[:4]), 3), (Alone(), 12))
    )
    assert merged([got]) == merged([want])
    for mine, whole in zip(got["params"], want["params"], strict=True):
        assert np.abs(mine - whole).max() <= 1e-5 * np.abs(whole).max()
    for (hop, _), row in merged([want])[0].items():
        types = schema.numbers(np.array(row, int))
        assert np.bincount(types, minlength=2).max() <= check_training.FANOUTS[hop]
        kinds |= set(types.tolist())
    assert kinds == {0, 1}


@pytest.mark.parametrize(
    ("kind", "n", "num_parts", "method", "modes"),
    [
        ("mpi", 2, 2, "metis", ALL),
        ("mpi", 3, 3, "random", FEW),
        ("mpi", 4, 4, "ldg", FEW),
        ("jax", 2, 4, "ldg", FEW),  # two parts for each rank
        ("devices", 4, 4, "ldg", ALL),
    ],
)
def test_ranks_draw_and_learn_what_one_does(parts, tmp_path, kind, n, num_parts, method, modes):
    folder = parts(num_parts, method)
    want = alone(folder)
    run_ranks(SCRIPT, kind, n, folder, tmp_path, *modes, timeout=300)
    for mode in modes:
        files = sorted(tmp_path.glob(f"{mode}-*.pickle"))
        assert len(files) == (1 if kind == "devices" else n)
        results = [pickle.loads(file.read_bytes()) for file in files]
        assert merged(results) == merged([want])
        hops = len(check_training.FANOUTS)
        memory = {k: sum(r["memory"][k] for r in results) for k in results[0]["memory"]}
        assert memory["Private_Dirty"] == 0  # the ranks share one copy
        if mode.startswith("hybrid") and kind != "devices":
            graph = sum(f.stat().st_size for f in Path(folder, "graph").iterdir()) >> 10
            assert memory["Rss"] - memory["Pss"] > 0.8 * (n - 1) * graph > 0
        for result in results:
            assert result["rounds"] == (2 if mode.startswith("hybrid") else 2 * hops)
            assert set(result["reductions"]) == {1}
            if kind != "mpi":  # one all_reduce and no other collective
                assert len(re.findall(r" all-reduce(-start)?\(", result["hlo"])) == 1
                assert not re.search(r" (all-to-all|all-gather|permute)\(", result["hlo"])
            assert result["accuracy"] == want["accuracy"]
            assert result["outside"] == []  # features and split topology stay in their files
            for mine, whole in zip(result["params"], want["params"], strict=True):
                assert np.abs(mine - whole).max() <= 1e-5 * np.abs(whole).max()
