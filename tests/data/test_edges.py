import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jgs import InputError
from jgs.data.building import plan
from jgs.data.edges import build_graph, simple_symmetric_graph


def rows(graph):
    return np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])


def expected_rows(src, dst, num_nodes, symmetric):
    pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
    if symmetric:
        pairs = {(u, v) for u, v in pairs if u != v}
        pairs |= {(v, u) for u, v in pairs}
    return [sorted(u for u, v in pairs if v == node) for node in range(num_nodes)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 300), st.booleans())
def test_equal_to_the_definition_whatever_the_runs(
    tmp_path_factory, seed, nodes, edges, symmetric
):
    patch = pytest.MonkeyPatch()
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, nodes, (2, edges))
    expected = expected_rows(src, dst, nodes, symmetric)
    for run in (7, 64, 1 << 20):
        patch.setattr(plan, "sizes_of", lambda *_, run=run: plan.Sizes(run, run, 9))
        chunks = zip(np.array_split(src, 5), np.array_split(dst, 5), strict=True)
        folder = tmp_path_factory.mktemp("edges")
        graph = build_graph(chunks, nodes, folder, symmetric=symmetric, what="it")
        assert [r.tolist() for r in rows(graph)] == expected
    patch.undo()
    if symmetric:
        assert [r.tolist() for r in rows(simple_symmetric_graph(src, dst, nodes))] == expected


def test_many_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "sizes_of", lambda *_: plan.Sizes(2048, 2048, 30))
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 500, (2, 60_000))
    dst[:20_000] = 3  # a hub with more edges than a run
    chunks = zip(np.array_split(src, 50), np.array_split(dst, 50), strict=True)
    graph = build_graph(chunks, 500, tmp_path, symmetric=False, what="it")
    order = np.lexsort((src, dst))
    np.testing.assert_array_equal(graph.indices, src[order])
    np.testing.assert_array_equal(np.diff(graph.indptr), np.bincount(dst, minlength=500))


@pytest.mark.parametrize("wrong", [-1, 5, 2**33])
def test_ids_out_of_range(tmp_path, wrong):
    ids = np.array([0, wrong])
    for src, dst in [(ids, ids * 0), (ids * 0, ids)]:
        with pytest.raises(InputError, match=rf"\[0, 5\); got {wrong}"):
            build_graph([(src, dst)], 5, tmp_path, symmetric=True, what="it")
