"""Benchmarks run on small data, without their peers. Nothing is timed."""

import json
import pkgutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from forks import quick_python, ran

import jgs
from benchmarks import (
    graph,
    harmed,
    time,
    time_graph,
    time_jgs,
    two_steps,
    typed_quality,
    typed_quality_jgs,
)
from jgs.sampling import Neighbors
from jgs.sampling.capacity import GraphShape

pytestmark = pytest.mark.slow
SIZE = graph.Size(10, 9_001)


def acm(folder: Path) -> Path:
    """A small `acm.npz`: papers of 3 classes, told by words, authors and subjects."""
    rng, papers = np.random.default_rng(0), 90
    labels = np.arange(papers) % 3
    author = rng.integers(0, 10, papers * 2) * 3 + np.repeat(labels, 2)
    written = np.unique(np.stack([np.repeat(np.arange(papers), 2), author]), axis=1)
    words = np.sort(rng.integers(0, 4, (papers, 1)) * 3 + labels[:, None], axis=1)
    subjects, values = np.stack([np.arange(papers), labels * 2]), np.full(papers, 0.5)
    arrays = {"num_paper": papers, "num_author": 30, "num_subject": 6, "paper_author": written}
    arrays |= {"paper_subject": subjects, "paper_labels": labels}
    of = {"indptr": np.arange(papers + 1), "indices": words.ravel(), "shape": [papers, 12]}
    arrays |= {f"paper_feature_{name}": array for name, array in of.items()}
    arrays |= zip(("train_idx", "val_idx", "test_idx"), np.split(np.arange(90), 3), strict=True)
    arrays = {name: np.asarray(array, np.int32) for name, array in arrays.items()}
    np.savez(folder / "acm.npz", **arrays, paper_feature_values=values.astype(np.float32))
    return folder


@pytest.mark.parametrize("setting", typed_quality.SETTINGS["nodes"], ids=lambda s: s["name"])
def test_jgs_classifies_papers(tmp_path, setting):
    given = {"root": str(acm(tmp_path)), "seed": 0, "epochs": 25, "hidden": 16}
    found = typed_quality_jgs.classify(setting | given)
    assert found["macro"] > 0.8
    assert found["micro"] > 0.8


def test_all_phases_of_a_huge_graph(tmp_path):
    result = tmp_path / "result.json"
    flags = "--nodes 2e4 --edges 2e5 --features 16 --steps 6 --batch-size 64 --fanouts 4 3"
    flags += f" --hidden 8 --feature-memory 1 --folder {tmp_path} --json {result}"
    root = Path(graph.__file__).parents[1]
    said = ran(quick_python(), "-m", "benchmarks.huge", *flags.split(), cwd=root)
    phases = json.loads(said)["phases"]
    assert list(phases) == ["build", "partition", "features", "train", "plan"]
    train, plan = phases["train"]["result"], phases["plan"]["result"]
    assert train["steps"] == 6
    assert train["disk_rows"] / 6 == pytest.approx(plan["disk_rows"], rel=0.1)


def test_every_way_to_draw_before_cutoffs_is_lawful(tmp_path):
    np.save(tmp_path / "seeds.npy", np.random.default_rng(0).permutation(1 << SIZE.scale))
    folder = str(time_graph.cached(tmp_path, SIZE))
    made = jgs.Graph.open(folder)  # which checks that times ascend
    setting = {"batch": 64, "iterations": 2, "fanouts": (3, 2), "order": "random"}
    setting |= {"name": "s", "graph": folder, "seeds": str(tmp_path / "seeds.npy")}
    runs = {
        ("s", f"jgs, {way}"): [time_jgs.measure(made, way, setting)] for way in time_jgs.WAYS
    }
    assert time.unlawful(runs, {"s": time.first_hop(folder, setting)}) == []


def test_a_fault_happens_at_its_moment(monkeypatch):
    acted = []
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    at = harmed.At("colorsys", "rgb_to_hsv", 2, lambda: acted.append(1))
    monkeypatch.setattr(sys, "meta_path", [at, *sys.meta_path])
    import colorsys

    found = [(colorsys.rgb_to_hsv(0, 0, i), len(acted)) for i in range(3)]
    assert [seen for _, seen in found] == [0, 1, 1]
    assert found[1][0][2] == 1
    for module, function, _ in (*harmed.MOMENTS.values(), harmed._WRITING):
        pkgutil.resolve_name(f"{module}:{function}")


def test_two_steps_draw_the_sample_of_the_fused_kernel(tmp_path, make_graph, same_bits):
    """With padding at the start, between seeds, and at the end."""
    if not two_steps.register(tmp_path):
        pytest.skip("no C++ compiler, or no kernels")
    graph, key = make_graph(300, 2500).unweighted(), jax.random.key(3)
    seeds = np.random.default_rng(1).permutation(300)[:20].astype(np.int32)
    seeds[[0, 7, 18, 19]] = 300
    for fanouts, replace in (((15, 10, 5), False), ((4, -1, 2), False), ((4, 3), True)):
        sampler = Neighbors(fanouts, replace)
        capacity = sampler.bound(GraphShape.of(graph), seeds.size, True)
        two = two_steps.TwoSteps(graph, seeds.size, sampler, capacity)
        expected = sampler.sample(key, graph, (), seeds, capacity)
        assert not expected.overflow
        same_bits(two(jax.random.key_data(key), seeds, 0), expected)
