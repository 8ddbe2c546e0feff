import dataclasses
import itertools

import numpy as np
import scipy.sparse

import jgs.data
from jgs import Graph
from jgs.data.plain import Plain
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.train.loop import open_data as module
from jgs.train.loop.open_data import changed_parts, fingerprint, fingerprint_plain


def synthetic(**options):
    return jgs.data.load("synthetic", num_nodes=200, num_edges=1000, **options)


def changed(data, **fields):
    before, after = fingerprint(data), fingerprint(dataclasses.replace(data, **fields))
    return [part for part in before if before[part] != after[part]]


def test_each_change_is_noticed_and_named():
    data = synthetic()
    assert fingerprint(data) == fingerprint(synthetic())
    indptr, indices = np.array(data.graph.indptr), np.array(data.graph.indices)
    weight = np.ones(indices.size, np.float32)
    other = indices.copy()
    other[7] = (other[7] + 1) % 200
    labels = data.labels.copy()
    labels[3] = (labels[3] + 1) % data.num_classes
    features = np.array(data.features)
    features[5, 1] += 1
    assert changed(data, graph=Graph(indptr, other)) == ["graph"]
    assert changed(data, graph=Graph(indptr, indices, weight)) == ["edge weights"]
    columns = [{name: weight * by} for name, by in (("cost", 1), ("cost", 2), ("price", 2))]
    made = [data.graph._with(edge_columns=each) for each in columns]
    for one, other in itertools.pairwise([data.graph, *made]):
        assert changed(dataclasses.replace(data, graph=one), graph=other) == ["edge columns"]
    saved, found = (fingerprint(dataclasses.replace(data, graph=each)) for each in made[:2])
    assert changed_parts(saved, found) == ["edge columns"]
    assert not changed_parts({k: v for k, v in saved.items() if "columns" not in k}, found)
    assert changed(data, labels=labels) == ["labels"]
    assert changed(data, num_classes=data.num_classes + 1) == ["labels"]
    assert changed(data, features=features) == ["features"]
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(features))
    assert changed(data, features=sparse) == ["features"]
    assert changed(data, val_idx=data.val_idx[::-1]) == ["splits"]


def test_types_are_noticed():
    def typed(papers=3, relation="writes", edges=((3, 0), (4, 1))):
        return Graph.from_relations(
            {"paper": papers, "author": 8 - papers},
            {("author", relation, "paper"): np.array(edges).T - [[papers], [0]]},
        )

    whole, data = typed(), synthetic()
    for other in (typed(papers=2), typed(relation="reviews")):
        assert np.array_equal(whole.indices, other.indices)
        assert changed(dataclasses.replace(data, graph=whole), graph=other) == ["types"]
        plain = [fingerprint_plain(Plain("x", g, None, None, None)) for g in (whole, other)]
        assert [part for part in plain[0] if plain[0][part] != plain[1][part]] == ["types"]


def test_large_arrays_are_sampled_from_end_to_end(monkeypatch):
    monkeypatch.setattr(module, "_WHOLE", 32768)
    data = synthetic()
    read = sum(piece.nbytes for piece in module._pieces(data.features))
    assert 0 < read <= 32768 < data.features.nbytes
    for row in (0, 199):
        features = np.array(data.features)
        features[row] += 1
        assert changed(data, features=features) == ["features"]
