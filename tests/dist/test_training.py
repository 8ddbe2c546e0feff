"""Communicators of each kind, and N ranks with batch B against one with batch N * B."""

import pickle
from pathlib import Path

import check_training
import numpy as np
import pytest
from cases import cases
from ranks import run_ranks
from small_ranks import make_parts, ranks_of

from jgs.dist.communicators.comm import Alone


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Features of less than a page are copied."""
    return make_parts(tmp_path_factory.mktemp("parts") / "parts", num_features=16)


@pytest.fixture(scope="module")
def alone(parts):
    return check_training.train(Alone(), str(parts), "hybrid", "none")


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


def check(results, want, mode):
    assert merged(results) == merged([want])
    hops = len(check_training.FANOUTS)
    for result in results:
        assert result["rounds"] == (2 if mode.startswith("hybrid") else 2 * hops)
        assert set(result["reductions"]) == {1}
        assert result["accuracy"] == want["accuracy"]
        assert result["outside"] == []  # features and split topology stay in their files
        for mine, whole in zip(result["params"], want["params"], strict=True):
            assert np.abs(mine - whole).max() <= 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize("mode", ["hybrid-none", "hybrid-degree", "vanilla-planned"])
def test_devices_draw_and_learn_what_one_rank_does(parts, alone, mode):
    check([check_training.train(ranks_of(4), str(parts), *mode.split("-"))], alone, mode)


@pytest.mark.parametrize("kind", ["mpi", "jax"])
def test_two_processes_draw_and_learn_what_one_rank_does(parts, alone, tmp_path, kind):
    modes = ["hybrid-planned", "vanilla-none"]
    run_ranks(Path(check_training.__file__), kind, 2, parts, tmp_path, *modes, timeout=300)
    for mode in modes:
        files = sorted(tmp_path.glob(f"{mode}-*.pickle"))
        assert len(files) == 2
        results = [pickle.loads(file.read_bytes()) for file in files]
        check(results, alone, mode)
        memory = {k: sum(r["memory"][k] for r in results) for k in results[0]["memory"]}
        assert memory["Private_Dirty"] == 0  # the ranks share one copy
        if mode.startswith("hybrid"):
            graph = sum(f.stat().st_size for f in Path(parts, "graph").iterdir()) >> 10
            assert memory["Rss"] - memory["Pss"] > 0.8 * graph > 0


@cases(
    "kind, n",
    ("mpi", 2),
    ("jax", 2),
    ("devices", 4),
    pytest.param("mpi", 3, marks=pytest.mark.slow),
)
def test_collectives(kind, n):
    output = run_ranks(Path(__file__).with_name("check_comm.py"), kind, n, n)
    assert output.count("is content") == (1 if kind == "devices" else n)
