"""The benchmarks of typed graphs, without their peers: the graph, the splits and the measures
that both sides share, and jgs's side on small data."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import embeddings, graph, typed, typed_graph, typed_quality, typed_quality_jgs
from benchmarks import typed_quality_data as quality

SIZE = graph.Size(10, 9_001)
NUM_RELATIONS = 5


@pytest.fixture(params=[1 << 24, 2_000], ids=["at once", "in parts"])
def drawn(request, monkeypatch):
    """The plain graph, and the typed graph's sources and relations."""
    monkeypatch.setattr(typed_graph, "_PART", request.param)
    indptr, indices = graph.rmat(SIZE)
    return indptr, indices, *typed_graph.typed(indptr, indices, NUM_RELATIONS)


def test_relations_belong_to_the_ends_of_edges(drawn):
    indptr, indices, sources, types = drawn
    target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    relation = typed_graph.relation_of(indices, target, NUM_RELATIONS)
    order = np.lexsort((indices, relation, target))
    np.testing.assert_array_equal(sources, indices[order])
    np.testing.assert_array_equal(types, relation[order])
    # Pairs of nodes are spread evenly over the relations.
    pairs = np.unique(target.astype(np.int64) << 32 | indices)
    count = np.bincount(
        typed_graph.relation_of(pairs & (2**32 - 1), pairs >> 32, NUM_RELATIONS)
    )
    expected = pairs.size / NUM_RELATIONS
    chi_square = ((count - expected) ** 2 / expected).sum()
    assert chi_square < 18.5, count  # 0.1 % of 4 degrees of freedom
    mixed = 3 << 32 | 7  # splitmix64's finalizer
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    expected = ((mixed ^ mixed >> 31) >> 33) % 40
    assert typed_graph.relation_of(np.array([3]), np.array([7]), 40) == [expected]


def test_the_graph_by_relation_has_the_same_edges(drawn):
    indptr, _, sources, types = drawn
    target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    rows, split = typed_graph.by_relation(indptr, sources, types, NUM_RELATIONS)
    ends = np.concatenate([[0], np.cumsum(rows[:, -1])])
    for relation in range(NUM_RELATIONS):
        own = types == relation
        found = split[ends[relation] : ends[relation + 1]]
        np.testing.assert_array_equal(found, sources[own])
        np.testing.assert_array_equal(
            np.repeat(np.arange(indptr.size - 1), np.diff(rows[relation])), target[own]
        )


def acm(folder: Path) -> Path:
    """A small `acm.npz`: papers of 3 classes, told by words, authors and subjects."""
    rng, papers = np.random.default_rng(0), 90
    labels = np.arange(papers) % 3
    author = rng.integers(0, 10, papers * 2) * 3 + np.repeat(labels, 2)
    written = np.unique(np.stack([np.repeat(np.arange(papers), 2), author]), axis=1)
    words = np.sort(rng.integers(0, 4, (papers, 1)) * 3 + labels[:, None], axis=1)
    np.savez(
        folder / "acm.npz",
        num_paper=papers,
        num_author=30,
        num_subject=6,
        paper_author=written.astype(np.int32),
        paper_subject=np.stack([np.arange(papers), labels * 2]).astype(np.int32),
        paper_feature_indptr=np.arange(papers + 1),
        paper_feature_indices=words.ravel().astype(np.int32),
        paper_feature_values=np.full(papers, 0.5, np.float32),
        paper_feature_shape=np.array([papers, 12]),
        paper_labels=labels.astype(np.int32),
        train_idx=np.arange(30, dtype=np.int32),
        val_idx=np.arange(30, 60, dtype=np.int32),
        test_idx=np.arange(60, 90, dtype=np.int32),
    )
    return folder


def test_embeddings_beside_features(tmp_path):
    """Embeddings and features tell papers' classes, on the public and on random splits."""
    flags = "--epochs 2 --dim 8 --walk-length 20 --window 3 --lr 0.5"
    run = embeddings.Run("acm", "metapath", flags, "random embeddings macro_f1", 0)
    found = embeddings.trained(run, str(acm(tmp_path)), 0)
    assert found["speed"] > 0
    for split in ("public", "random"):
        for part in ("features", "embeddings", "both"):
            assert found[f"{split} {part} macro_f1"] > 0.8, (split, part)


def test_held_out_links(tmp_path):
    data = quality.read(str(acm(tmp_path)))
    src, dst = data.edges[quality.RELATION]
    split = quality.hold_out(data, 7, seed=1)
    parts = {
        name: set(
            zip(split[f"{name}_src"].tolist(), split[f"{name}_dst"].tolist(), strict=True)
        )
        for name in ("train", "val", "test")
    }
    every = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert set.union(*parts.values()) == every
    assert sum(map(len, parts.values())) == len(every)
    assert len(parts["val"]) == len(parts["test"]) == len(every) // 10
    for name in ("val", "test"):
        others = split[f"{name}_others"]
        assert others.shape == (len(every) // 10, 7)
        pairs = np.stack(np.broadcast_arrays(split[f"{name}_src"][:, None], others), axis=-1)
        assert not every & set(map(tuple, pairs.reshape(-1, 2).tolist()))
        assert len(np.unique(others)) > 15  # of 30 authors
    again, other = (quality.hold_out(data, 7, seed)["val_others"] for seed in (1, 2))
    np.testing.assert_array_equal(again, split["val_others"])
    assert not np.array_equal(other, again)


def test_the_measures():
    labels, predicted = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 0])
    # Class 0: 2 of 4 predicted and 2 of 3 found; class 1: 1 of 2 and 1 of 2; class 2: none.
    macro, micro = quality.f1(predicted, labels)
    assert macro == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)
    assert micro == pytest.approx(3 / 6)
    # Ranks 1, 3 and, equal to one of three and below another, 2.5.
    positive = np.array([9.0, 1.0, 5.0])
    negative = np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 0.0], [5.0, 6.0, 1.0]])
    assert quality.mrr(positive, negative) == pytest.approx((1 + 1 / 3 + 1 / 2.5) / 3)


def test_training_stops_when_it_gets_no_better():
    best = quality.Best(patience=2)
    going = [best.add(i, val, f"test {i}") for i, val in enumerate([0.1, 0.5, 0.5, 0.4])]
    assert going == [True, True, True, False]
    assert (best.epoch, best.val, best.test) == (1, 0.5, "test 1")


@pytest.mark.parametrize("setting", typed_quality.SETTINGS["nodes"], ids=lambda s: s["name"])
def test_jgs_classifies_papers(tmp_path, setting):
    given = {"root": str(acm(tmp_path)), "seed": 0, "epochs": 25, "hidden": 16}
    found = typed_quality_jgs.classify(setting | given)
    assert found["macro"] > 0.8
    assert found["micro"] > 0.8


@pytest.mark.parametrize("setting", typed_quality.SETTINGS["links"], ids=lambda s: s["name"])
def test_jgs_predicts_links(tmp_path, setting):
    root = str(acm(tmp_path))
    np.savez(tmp_path / "split.npz", **quality.hold_out(quality.read(root), 20, seed=0))
    given = {"root": root, "seed": 0, "epochs": 15, "hidden": 16, "batch_size": 64}
    found = typed_quality_jgs.link(setting | given | {"split": str(tmp_path / "split.npz")})
    assert 0.25 < found["mrr"] <= 1  # by chance about 0.17: the mean of 1 / rank among 21


def test_the_tables():
    name = typed.SETTINGS["sampling"][0]["name"]
    own = {"ms": [2.0, 1.0, 9.0], "nodes": 10.0, "edges": 1000.0}
    runs = {
        (name, "jgs, typed"): [own],
        (name, "jgs, untyped"): [own | {"edges": 1200.0}],
        (name, "DGL, hetero"): [own | {"ms": [8.0]}, own | {"ms": [7.0], "edges": 1002.0}],
        (name, "GraphBolt"): [own | {"ms": [3.0], "edges": 900.0}],
    }
    rows = [line.split("|")[2:-1] for line in typed.table("sampling", runs)[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["jgs, typed", "2.0", "1.00", "2000.0", "10 / 1,000"],
        ["jgs, untyped", "2.0", "1.00", "1666.7", "10 / 1,200 (+20% edges)"],
        ["DGL, hetero", "7.5", "3.75", "7492.5", "10 / 1,001"],
        ["GraphBolt", "3.0", "1.50", "3333.3", "10 / 900 (-10% edges)"],
    ]
    parts = {"parts": {"sampling": [1.0], "features": [2.0], "computing": [4.0]}}
    step = typed.table("step", {("rgcn", "DGL, hetero"): [own | parts]})
    assert step[2:] == ["| rgcn | DGL, hetero | 2.0 |  | 1.0 + 2.0 + 4.0 |"]
    found = {"macro": 0.5, "micro": 0.6, "epoch": 3, "step_ms": 2.0}
    lines = typed_quality.table({("nodes", "rgcn", "jgs"): [found, found | {"macro": 0.7}]})
    assert lines[2:] == [
        "| nodes | rgcn | jgs | 2 | macro-F1 0.6000 ± 0.1414, micro-F1 0.6000 ± 0.0000 | 3, 3 "
        "| 2.0 |"
    ]


def test_the_peers_programs_import_no_jgs():
    folder = Path(typed.__file__).parent
    files = [*folder.glob("typed_*dgl.py"), folder / "typed_graphbolt.py"]
    files += [folder / "typed_quality_data.py"]
    assert len(files) == 7
    for file in files:
        assert not re.search(r"^(import|from) jgs", file.read_text(), re.MULTILINE), file
