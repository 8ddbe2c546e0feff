"""Packed integers come back as they were, and a claim that fits no file is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph
from jgs.data import Dataset, load
from jgs.files import storage
from jgs.files.storage import packed, packing_of, unpacked

DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64]


@settings(deadline=None)
@given(st.data())
def test_integers_come_back(data):
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    ends = sorted(data.draw(st.tuples(*[st.integers(least, most)] * 2)))
    step = data.draw(st.integers(1, 1 + (ends[1] - ends[0]) // 3))
    number = data.draw(st.sampled_from([1, 63, 64, 65, 200]))
    places = st.integers(0, (ends[1] - ends[0]) // step)
    chosen = data.draw(st.lists(places, min_size=number, max_size=number))
    array = np.array([ends[0] + step * place for place in chosen], dtype)
    packing = packing_of(array)
    span = int(array.max()) - int(array.min())
    if packing is None:  # no room is gained
        assert span.bit_length() == 8 * dtype.itemsize
        return
    assert packing.bits <= max(span.bit_length(), 1)
    words = packed(array, packing)
    assert words.size == -(-number // 64) * packing.bits
    back = unpacked(words, packing, array.shape, dtype)
    assert back.dtype == dtype
    assert back.ctypes.data % 64 == 0
    np.testing.assert_array_equal(back, array)


def test_the_form_of_the_words():
    """Value `i` has its lowest bit at bit `i * bits`, counted from the least, in steps."""
    array = np.array([10, 30, 20, 50] * 20)
    words = packed(array, packing := packing_of(array))
    assert packing == (10, 10, 3)
    number = sum(int(word) << 64 * i for i, word in enumerate(words))
    assert [number >> 3 * i & 7 for i in range(80)] == [0, 2, 1, 4] * 20


@pytest.mark.parametrize("values", [np.arange(0), np.ones(9), np.array(["a"])])
def test_what_is_not_packed(values):
    assert packing_of(values) is None


@pytest.fixture
def graph():
    rng, number = np.random.default_rng(0), 5_000
    ends = {("user", "buys", "item"): (400, 90), ("item", "bought", "user"): (90, 400)}
    edges = {r: [rng.integers(0, n, number) for n in size] for r, size in ends.items()}
    times = {r: 1_700_000_000 + 60 * rng.integers(0, 1 << 20, number) for r in ends}
    return Graph.from_relations({"user": 400, "item": 90}, edges, edge_time=times)


def test_a_packed_graph_is_the_graph(graph, tmp_path):
    def size(folder):
        return sum(file.stat().st_size for file in (tmp_path / folder).glob("*.npy"))

    graph.save(tmp_path / "plain")
    graph.save(tmp_path / "packed", packed=True)
    graph.save(tmp_path / "least", packed=True, edge_order=False)
    assert size("packed") < 8.5 * graph.num_edges < size("plain") / 2
    assert size("least") < 5.5 * graph.num_edges
    opened = Graph.open(tmp_path / "packed")
    mine, theirs = opened.stored(), graph.stored()
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert mine[name].dtype == array.dtype
        np.testing.assert_array_equal(mine[name], array)
    assert Graph.open(tmp_path / "least").edge_order is None
    assert json.loads((tmp_path / "plain" / "manifest.json").read_text())["version"] == 1


def test_a_packed_data_set_is_the_data_set(graph, tmp_path):
    rng, size = np.random.default_rng(0), graph.num_nodes
    splits = dict(
        zip(("train", "val", "test"), np.split(rng.permutation(size), [9, 20]), strict=True)
    )
    features = rng.random((size, 3), np.float32)
    data = Dataset.from_arrays(graph, features, np.arange(size) % 3, splits, name="d")
    data.save(tmp_path / "d", packed=True)
    opened = load(tmp_path / "d").stored()
    for name, array in data.stored().items():
        assert opened[name].dtype == array.dtype
        np.testing.assert_array_equal(opened[name], array)


@pytest.mark.parametrize(
    ("field", "value"),
    [("bits", 0), ("bits", 40), ("bits", 2.5), ("step", 0), ("other", 1), ("least", None)],
)
def test_packed_facts_are_checked(graph, tmp_path, field, value):
    graph.save(tmp_path / "g", packed=True)
    path = tmp_path / "g" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["arrays"]["indices"]["packed"][field] = value
    path.write_text(json.dumps(manifest))
    refused("must", Graph.open, tmp_path / "g")


@pytest.mark.parametrize("shape", [[2**50], [-1], [-4, -4], [0], [2**70, 0], []])
def test_a_claimed_shape_takes_no_memory(graph, tmp_path, shape):
    graph.save(tmp_path / "g", packed=True)
    path = tmp_path / "g" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["arrays"]["indices"]["shape"] = shape
    path.write_text(json.dumps(manifest))
    refused("must", Graph.open, tmp_path / "g")


def test_a_damaged_word_is_refused(graph, tmp_path):
    graph.save(tmp_path / "g", packed=True)
    path = tmp_path / "g" / "indices.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    refused("checksum", Graph.open, tmp_path / "g")


def test_other_kinds_stay_as_they_were(tmp_path):
    storage.save_arrays(tmp_path / "a", "kind", {"x": np.arange(9), "y": np.ones(3)}, pack=True)
    arrays = storage.open_arrays(tmp_path / "a", "kind")
    np.testing.assert_array_equal(arrays["x"], np.arange(9))
    np.testing.assert_array_equal(arrays["y"], np.ones(3))
    refused("kind", storage.open_arrays, tmp_path / "a", "other")
