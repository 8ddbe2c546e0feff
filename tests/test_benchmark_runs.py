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
    embeddings,
    graph,
    harmed,
    link_quality,
    papers_graph,
    planted_labels,
    subgraph_runs,
    time,
    time_graph,
    time_jgs,
    time_quality,
    time_quality_data,
    time_quality_jgs,
    two_steps,
    typed_quality,
    typed_quality_jgs,
)
from benchmarks import typed_quality_data as quality
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
        same_bits(two(jax.random.key_data(key), seeds), expected)


def test_embeddings_beside_features(tmp_path):
    """Embeddings and features tell papers' classes, on the public and on random splits."""
    flags = "--epochs 2 --dim 8 --walk-length 20 --window 3 --lr 0.5"
    run = embeddings.Run("acm", "metapath", flags, "random embeddings macro_f1", 0)
    found = embeddings.trained(run, str(acm(tmp_path)), 0)
    assert found["speed"] > 0
    for split in ("public", "random"):
        for part in ("features", "embeddings", "both"):
            assert found[f"{split} {part} macro_f1"] > 0.8, (split, part)


@pytest.mark.parametrize("setting", typed_quality.SETTINGS["links"], ids=lambda s: s["name"])
def test_jgs_predicts_links(tmp_path, setting):
    root = str(acm(tmp_path))
    np.savez(tmp_path / "split.npz", **quality.hold_out(quality.read(root), 20, seed=0))
    given = {"root": root, "seed": 0, "epochs": 15, "hidden": 16, "batch_size": 64}
    found = typed_quality_jgs.link(setting | given | {"split": str(tmp_path / "split.npz")})
    assert 0.25 < found["mrr"] <= 1  # by chance about 0.17: the mean of 1 / rank among 21


def test_a_model_of_messages_trains_and_is_judged(tmp_path):
    rng, path, model = np.random.default_rng(1), tmp_path / "data.npz", "tgat"
    pairs, times = rng.integers(0, 300, (2, 400), np.int32), rng.integers(1000, 1100, 400)
    np.savez(tmp_path / "log.npz", num_nodes=300, edge_index=pairs, edge_time=times)
    time_quality_data.write(path, time_quality_data.messages(tmp_path / "log.npz"), 20)
    small = {"hidden": 4, "time_width": 4, "fanouts": (2, 2), "epochs": 2, "eval_batch": 10}
    setting = time_quality.SETTINGS["messages"] | small
    setting |= {"data": str(path), "model": model, "seed": 0, "batch_size": 50}
    found = time_quality_jgs.train(setting)
    assert 0.01 < found["mrr"] < 0.5  # chance gives 0.05
    assert found["epoch"] in (0, 1)
    side = next(name for name, of in time_quality.SIDES.items() if of[1].get("model") == model)
    (line,) = time_quality.table({("messages", side): [found]})[2:]
    assert f"| messages | {side} | 1 | {found['mrr']:.4f} |" in line


def test_a_run_learns_planted_labels(tmp_path):
    planted_labels.write(tmp_path / "planted", planted_labels.planted(2000))
    flags = f"--dataset {tmp_path / 'planted'} --hidden 32 --batch-size 50 --norm layer"
    flags += " --dropout 0 --fanouts 10 10 --lr 2e-2 --epochs 4 --prefetch 0"
    with subgraph_runs.begun(flags) as run:
        before = subgraph_runs.test_f1(*run)
        epochs = list(subgraph_runs.trained(*run, lambda: 0.0))
        found = subgraph_runs.test_f1(*run)
        assert 100 * run[1].result(None)["test_accuracy"] == pytest.approx(found.micro)
    assert len(epochs) == 4
    assert before.micro + 20 < found.micro
    assert abs(max(epoch.accuracy for epoch in epochs) - found.micro) < 10


def test_links_are_judged(tmp_path):
    """80 nodes in a ring, each linked to the next 4."""
    src = np.repeat(np.arange(80), 4)
    dst = (src + np.tile(np.arange(1, 5), 80)) % 80
    both = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])])
    np.savez(tmp_path / "usair.npz", num_nodes=80, edge_index=both.astype(np.int32))
    [(_, one)] = link_quality.turn("usair", 0, str(tmp_path), python=None, epochs=2)
    assert 0 <= one.metrics["auc"] <= 1


def test_the_graphs_are_symmetric_without_self_loops(tmp_path):
    papers = jgs.Graph.open(papers_graph.cached(tmp_path, papers_graph.Size(14)))
    for made, most in (
        (jgs.Graph(*graph.rmat(SIZE)), 2 * SIZE.num_undirected),
        (papers, papers_graph.DEGREE << 14),
    ):
        source, target = made.edge_index()
        assert not (target == source).any()
        there, back = ((a << 14) + b for a, b in ((target, source), (source, target)))
        np.testing.assert_array_equal(there, np.sort(back))
        assert 0.97 * most < made.num_edges <= most
