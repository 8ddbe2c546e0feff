"""`python -m jgs.data build`: stopped and killed builds go on, bad input is one line."""

import errno
import json
import os
import re
import signal
import subprocess
import tracemalloc

import numpy as np
import pytest
from folders import cases, refused, splits, write
from forks import quick_python

from jgs import Graph
from jgs.data import build, load
from jgs.data.__main__ import main
from jgs.data.building import plan, spreading
from jgs.data.building.work import Work

N, E = 90, 2000
_KILLED = """
import os, signal, sys
from jgs.data.building import plan, spreading
from jgs.data.building.work import Work
plan.sizes_of = lambda *_: plan.Sizes(300, 500, 8)
spreading.KEEP_EVERY = 0
save, part, left = Work.save, sys.argv[1], 4
def killed(self, **changes):
    global left
    left -= part in changes
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, **changes)
Work.save = killed
from jgs.data.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(plan, "sizes_of", lambda *_: plan.Sizes(300, 500, 8))
    monkeypatch.setattr(spreading, "KEEP_EVERY", 0)
    monkeypatch.setattr(plan, "KEEP_EVERY", 0)
    monkeypatch.setattr(plan, "_BYTES", 300)


@pytest.fixture
def shards(tmp_path):
    """Two shards, their edges, features in two parts, and the flags that name them."""
    rng = np.random.default_rng(0)
    pairs, rows = rng.integers(0, N, (E, 2)), rng.random((N, 4), np.float32)
    files = {f"e{at}.bin": part.tobytes() for at, part in enumerate(np.split(pairs, 2))}
    files |= {f"f{at}.npy": part for at, part in enumerate(np.split(rows, 2))}
    paths = [str(write(tmp_path, files) / name) for name in files]
    argv = ["build", *paths[:2], "--out", str(tmp_path / "graph"), "--binary", "int64"]
    return *pairs.T, rows, [*argv, "--features", *paths[2:]]


def check(folder, src, dst, rows, **options):
    data = load(folder)  # verifies the checksums
    wanted = Graph.from_edges(src, dst, N, **options)
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(data.graph, name), getattr(wanted, name))
    np.testing.assert_array_equal(data.features, rows)


@pytest.mark.parametrize("part", ["spread", "sort"])
def test_killed_and_continued(tmp_path, shards, small, capsys, part):
    src, dst, rows, argv = shards
    killed = subprocess.run([quick_python(), "-c", _KILLED, part, *argv])
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "graph").exists()
    assert main(argv) == 0
    said = capsys.readouterr()
    done = r", [1-9][\d,]* sorted" if part == "sort" else ""
    assert re.search(rf"was half built \([1-9][\d,]* edges were read{done}\): going", said.err)
    assert json.loads(said.out)["edges"] == E
    check(tmp_path / "graph", src, dst, rows)
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


@pytest.mark.parametrize("symmetric", [False, True])
def test_stopped_at_every_moment(tmp_path, shards, small, monkeypatch, symmetric):
    """Each call gets one step further than the one before it."""
    src, dst, rows, argv = shards
    save, link, left = Work.save, os.link, 0

    def step(do, *args, **options):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return do(*args, **options)

    monkeypatch.setattr(Work, "save", lambda *args, **changes: step(save, *args, **changes))
    monkeypatch.setattr(os, "link", lambda *args: step(link, *args))
    flags = ["--symmetric"] if symmetric else []
    statuses = []
    while not statuses or statuses[-1] != 0:
        left = 2 + len(statuses) // 10
        statuses.append(main([*argv, *flags]))
        assert (tmp_path / "graph").exists() == (statuses[-1] == 0)
        if len(statuses) > 20:
            left = 10**6
            statuses.append(main([*argv, *flags]))
    assert set(statuses) == {0, 130}
    check(tmp_path / "graph", src, dst, rows, symmetric=symmetric)


def test_a_full_disk_loses_nothing(tmp_path, shards, small, monkeypatch, capsys):
    src, dst, rows, argv = shards
    append = spreading.Buckets.append

    def full(self, stream, indptr, records):
        append(self, stream, indptr, records)
        if self.sizes.sum() > E // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(spreading.Buckets, "append", full)
        assert main(argv) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert re.search(r"No space left.* MiB free .*same command then goes on", said[0])
    assert main(argv) == 0
    assert "going on from there" in capsys.readouterr().err
    check(tmp_path / "graph", src, dst, rows)


def test_one_at_a_time_and_another_begins_anew(tmp_path, shards, small, monkeypatch, capsys):
    src, dst, rows, argv = shards

    def meanwhile(*_):
        assert main(argv) == 2
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Work, "publish", meanwhile)
        with pytest.raises(ZeroDivisionError):
            build(tmp_path / "graph", argv[1:3], binary="int64", features=argv[-2:])
    np.column_stack([src, dst])[:-1].tofile(argv[1])
    (tmp_path / "e1.bin").write_bytes(b"")
    assert main(argv) == 0
    assert "half built of other shards or settings: begun anew" in capsys.readouterr().err
    check(tmp_path / "graph", src[:-1], dst[:-1], rows)


def test_an_earlier_data_set_stays_until_the_end(tmp_path, shards, capsys):
    argv = shards[-1]
    assert main(argv) == 0
    before = (tmp_path / "graph" / "manifest.json").read_bytes()
    assert main([*argv, "--nodes", "3"]) == 2
    assert (tmp_path / "graph" / "manifest.json").read_bytes() == before
    (tmp_path / "graph" / "mine.txt").write_text("mine")
    assert main(argv) == 2
    assert "'mine.txt' in it" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["plain", "symmetric", "weights"])
def test_memory(tmp_path, kind, monkeypatch):
    """A build's arrays stay near its buffers' memory, a fraction of that of all edges."""
    size, buffers = 2_000_000 if kind == "weights" else 6_000_000, 16 << 20
    rng = np.random.default_rng(0)
    fields = [("src", "<i4"), ("dst", "<i4")]
    fields += [("edge_weight", "<f4"), ("edge_time", "<i8")] if kind == "weights" else []
    records = np.zeros(size, fields)
    for name in ("src", "dst"):
        records[name] = rng.integers(0, 200_000, size, np.int32)
    np.save(tmp_path / "edges.npy", records)
    del records
    monkeypatch.setattr(plan, "LEAST_MEMORY", 1)
    options = {"memory": buffers >> 19, "symmetric": kind == "symmetric"}
    tracemalloc.start()
    try:
        build(tmp_path / "graph", tmp_path / "edges.npy", **options)  # nodes are counted
        assert tracemalloc.get_traced_memory()[1] < 1.5 * buffers
    finally:
        tracemalloc.stop()


def test_a_typed_graph(tmp_path, capsys):
    rng, out = np.random.default_rng(0), tmp_path / "graph"
    ends = {("a", "r", "b"): rng.integers(0, 9, (2, 40))}
    ends |= {("b", "s", "b"): rng.integers(0, 9, (2, 30))}
    rows = rng.random((12, 2), np.float32)
    arrays = {"f": rows[:5], "g": rows[5:], "y": np.arange(12) % 3}
    arrays |= {"t": np.arange(4), "v": np.arange(5, 7)}
    arrays |= {name: pair for (_, name, _), pair in ends.items()}
    write(tmp_path, {f"{name}.npy": array for name, array in arrays.items()})
    path = {name: str(tmp_path / f"{name}.npy") for name in arrays}
    flags = ["--features-of", "b", path["f"], "--features-of", "b", path["g"]]
    flags += ["--labels", path["y"], "--labels-of", "b"]
    for one in ends:
        flags += ["--relation", *one, path[one[1]]]
    flags += ["--train", path["t"], "--val", path["v"], "--nodes", "a=9", "b=12"]
    assert main(["build", *flags, "--both-ways", "--edge-order", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["edges"] == 140
    data, wanted = load(out), Graph.from_relations({"a": 9, "b": 12}, ends, both_ways=True)
    assert data.graph.schema == wanted.schema
    for name in ("indptr", "indices", "edge_type", "edge_order"):
        np.testing.assert_array_equal(getattr(data.graph, name), getattr(wanted, name))
    assert splits(data) == [[9, 10, 11, 12], [14, 15], []]
    assert data.labels.tolist() == [-1] * 9 + arrays["y"].tolist()
    assert data.features.tables[0] is None
    np.testing.assert_array_equal(data.features.tables[1], rows)


# -- bad input ---------------------------------------------------------------------------------

PAIRS = np.array([[0, 1], [2, 1], [1, 0]])
FIELDS = [("src", int), ("dst", int), ("edge_weight", float)]
NAN = np.array([(0, 1, 1), (0, 1, np.nan)], FIELDS)


@cases(
    "name, content, flags, says",
    ("a.npy", PAIRS[:2], "", "[2, 2], which may be either. Write two edges as .bin"),
    ("a.npy", [*PAIRS, [2, 91]], "", "dst in *a.npy must be node ids in [0, 9); got 91"),
    ("a.npy", [*PAIRS, [-3, 1]], "", "src in *a.npy must be node ids in [0, 9); got -3"),
    ("a.npy", PAIRS + 2**40, "", "node ids in [0, 9); got 1099511627776 in row 0. "),
    ("a.npy", PAIRS * 1.0, "", "must be int32 or int64 [E, 2] or [2, E]*got float64[3, 2]"),
    ("a.npy", b"\x93NUMPY and nothing else", "", "a.npy must be a whole .npy file"),
    ("a.npy", NAN, "", "float32 numbers and not negative; got nan at edge 1 of *a.npy"),
    ("a.npy", None, "", "a.npy must exist; got no such file"),
    ("a.bin", bytes(15), "", "the integers of *a.bin must be known; got no binary"),
    ("a.bin", bytes(15), "--binary int32", "pairs of int32, 8 bytes each; got 15 bytes"),
    (
        "a.csv",
        "src,dst\n0,1\nbob,2\n",
        "",
        "weights of edges in *a.csv must be numbers; got *'bob'",
    ),
    ("a.csv", "a,b\n0,1\n", "", "a.csv must have a column 'src' and a column 'dst'"),
    ("a.csv", "src,dst\n0,\n", "", "must be node ids, integers from 0; got float64"),
    ("a.csv", "src,dst,x\n0,1,y\n", "", "the edge column 'x' must be numbers; got 'y'"),
    ("a.parquet", b"PAR1 and nothing else", "", "a.parquet must be a whole Parquet file"),
    ("a.txt", "", "", "a shard of edges must end in .npy, .bin, .parquet"),
    ("a.npy", PAIRS, "--memory 3", "memory must be an int, at least 64 MiB; got 3"),
    ("a.npy", PAIRS, "--both-ways", "both_ways, must be for edges by relation"),
    ("a.npy", PAIRS, "--relation a r b f", "by --relation or none; got both"),
    ("a.npy", PAIRS, "--labels no.npy --train no.npy", "no.npy must exist"),
    ("a.npy", PAIRS, "--labels no.npy", "--labels and --train must be given together"),
    ("a.npy", PAIRS, "--classes 7", "--train must be given together; got --classes"),
    ("a.npy", PAIRS, "--labels-of paper", "must be given together; got --labels-of"),
    ("a.npy", PAIRS, "--binary int32", "--binary must be of .bin files; got none among 1"),
    ("a.npy", PAIRS, "--src dst --dst src", "got dst and src for *a.npy without names"),
    ("a.npy", PAIRS, "--nodes x", "--nodes must be a number, or TYPE=NUMBER"),
    ("a.npy", PAIRS, "--nodes a=1 b=2 a=3", "for each node type; got a=1 b=2 a=3"),
    ("a.npy", PAIRS, "--nodes a=1", "num_nodes by type, and both_ways, must be for edges"),
    ("a.npy", PAIRS, f"--nodes {2**31}", "of nodes must be an int in [0, 2147483646]"),
)
def test_bad_input_is_one_line(tmp_path, capsys, name, content, flags, says):
    out = tmp_path / "out" / "graph"
    path = write(tmp_path, {name: content}) / name
    argv = [str(path), "--out", str(out), "--nodes", "9", *flags.split()]
    assert main(["build", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert re.search(".*".join(map(re.escape, says.split("*"))), said.err)
    assert not out.exists()


def test_bad_features_and_labels_keep_the_edges(tmp_path):
    """The next call, with better ones, does not read the edges again."""
    path, out = tmp_path / "e.npy", tmp_path / "graph"
    np.save(path, np.zeros((3, 2), int))
    rows, labels, splits = np.zeros((5, 2), np.float32), np.zeros(5, int), {"train": [0]}
    for says, given in (
        ("must be finite; got NaN or infinity in row 0", {"features": np.full((5, 2), np.nan)}),
        ("a row for each of the 5 nodes; got 4", {"features": rows[:4]}),
        ("one for every node", {"labels": np.zeros(4, int), "splits": splits}),
        ("[0, 5); got 7", {"labels": labels, "splits": {"train": [7]}}),
        ("labels and splits must be given together", {"labels": labels}),
    ):
        refused(says, build, out, [path], 5, **given)
        assert not out.exists()
    data = build(out, [path], 5, features=rows, labels=labels, splits=splits)
    assert data.features.shape == (5, 2)


def test_bad_chunks(tmp_path):
    one = np.zeros(3, int)
    both = {"src": one, "dst": one}
    column = both | {"x": one}
    for edges, says in (
        ([(one, one[:2])], "must be equally long; got 3 rows of 'src' and 2 of 'dst'"),
        ([{"src": one}], "a pair (sources, targets), or a dict with src and dst; got 'src'"),
        ([column, (one, one)], "have a column or none; got 'x'"),
        ([(one, one), both | {"edge_time": one}], "none; got 'edge_time'"),
        ([column, both | {"x": one * 1.0}], "'x' must be int64* first rows; got float"),
        ([both | {"indptr": one}], "an identifier, and no field of Graph"),
        (7, "edges must be paths, or an iterable of chunks"),
    ):
        refused(says, build, tmp_path / "graph", edges, 5)
    says = "iterator of edges, which can be read once, must have num_nodes"
    refused(says, build, tmp_path / "graph", iter([(one, one)]))
    by_relation = {("a", "r", "b"): [(one, one)]}
    says = "edges by relation must have the number of nodes"
    refused(says, build, tmp_path / "graph", by_relation)
    assert list(tmp_path.iterdir()) == []
