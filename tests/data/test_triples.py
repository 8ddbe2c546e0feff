import gzip

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.formats import triples
from jgs.data.plain import load_plain

TRAIN = "b\tlikes it\ta\nc\t/is/a\ta\n\nb\t/is/a\tc\na\tlikes it\tb\n"
VALID = "d\t/is/a\ta\n"
TEST = "7\tlikes it\t07\r\n"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "kg"
    place.mkdir()
    (place / "train.txt").write_text(TRAIN)
    (place / "valid.txt").write_text(VALID)
    (place / "test.txt.gz").write_bytes(gzip.compress(TEST.encode()))
    return place


def found(data, relation):
    graph = data.graph
    at = np.flatnonzero(np.asarray(graph.edge_type) == graph.schema.relation(relation))
    row = np.repeat(np.arange(graph.num_nodes), np.asarray(graph.degrees()))[at]
    heads = data.node_ids[np.asarray(graph.indices)[at]].tolist()
    splits = graph.edge_columns["split"][at].tolist()
    return sorted(zip(heads, data.node_ids[row].tolist(), splits, strict=True))


def test_triples(folder, monkeypatch):
    pieces = triples.line_chunks
    for size in (1 << 24, 12):  # whole, and a line or two at a time
        monkeypatch.setattr(triples, "line_chunks", lambda path, n=size: pieces(path, n))
        data = load_plain(folder, "")
        assert data.name == "kg"
        assert data.node_ids.values.tolist() == ["07", "7", "a", "b", "c", "d"]
        schema = data.graph.schema
        assert schema.node_types == (("entity", 6),)
        names = ["/is/a", "likes it", "rev_/is/a", "rev_likes it"]
        assert [name for _, name, _ in schema.relations] == names
        is_a = [("b", "c", 0), ("c", "a", 0), ("d", "a", 1)]
        likes = [("7", "07", 2), ("a", "b", 0), ("b", "a", 0)]
        assert found(data, "/is/a") == is_a
        assert found(data, "likes it") == likes
        assert found(data, "rev_likes it") == sorted((b, a, split) for a, b, split in likes)
    assert load_plain(folder, "", both_ways=False).graph.num_edges == 6
    with pytest.raises(InputError, match="which has triples"):
        load(folder)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("train.txt", TRAIN + "a\tb\n", "with tabs between; got 'a b' in line 6"),
        ("train.txt", TRAIN + "a\tlikes\tb\tc\n", "got 'a likes b c' in line 6"),
        ("train.txt", "a\t\tb\n", "in line 1"),
        ("valid.txt", "a b c\na b\n", "with white space between; got 'a b' in line 2"),
        ("test.txt.gz", "", "test.txt.gz must have triples"),
        ("val.txt", VALID, "must hold one file of the val split; got valid.txt, val.txt"),
    ],
)
def test_bad_lines_are_named(file, text, says, folder):
    (folder / file).write_text(text)
    with pytest.raises(InputError) as caught:
        load_plain(folder, "")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_bytes(folder):
    (folder / "train.txt").write_bytes(b"a\tb\tc\na\t\xff\tc\n")
    with pytest.raises(InputError, match="UTF-8; got other bytes in line 2"):
        load_plain(folder, "")
