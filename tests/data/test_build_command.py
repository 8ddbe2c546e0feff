"""`python -m jgs.data build`: stopped and killed builds go on, bad input is one line."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.data import build, load
from jgs.data.__main__ import main
from jgs.data.building import features, plan, spreading
from jgs.data.building.work import Work

N, E = 90, 4000
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
    monkeypatch.setattr(features, "KEEP_EVERY", 0)
    monkeypatch.setattr(features, "_BYTES", 300)


@pytest.fixture
def shards(tmp_path):
    """Two shards, their edges, features in two parts, and the flags that name them."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, N, (E, 2))
    rows = rng.random((N, 4), np.float32)
    for number in range(2):
        pairs[number::2].astype(np.int32).tofile(tmp_path / f"e{number}.bin")
        np.save(tmp_path / f"f{number}.npy", np.array_split(rows, 2)[number])
    paths = [str(tmp_path / f"e{number}.bin") for number in range(2)]
    parts = [str(tmp_path / f"f{number}.npy") for number in range(2)]
    src, dst = np.concatenate([pairs[::2], pairs[1::2]]).T
    argv = ["build", *paths, "--out", str(tmp_path / "graph"), "--binary", "int32"]
    return src, dst, rows, [*argv, "--features", *parts]


def check(folder, src, dst, rows, **options):
    data = load(folder)  # verifies the checksums
    wanted = Graph.from_edges(src, dst, N, **options)
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(data.graph, name), getattr(wanted, name))
    np.testing.assert_array_equal(data.features, rows)


@pytest.mark.parametrize("part", ["spread", "sort"])
def test_killed_and_continued(tmp_path, shards, small, capsys, part):
    src, dst, rows, argv = shards
    killed = subprocess.run([sys.executable, "-c", _KILLED, part, *argv])
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "graph").exists()
    assert main(argv) == 0
    said = capsys.readouterr()
    done = r", [1-9][\d,]* sorted" if part == "sort" else ""
    assert re.search(
        rf"was half built \([1-9][\d,]* edges were read{done}\): going on", said.err
    )
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


def test_another_build_begins_anew(tmp_path, shards, small, monkeypatch, capsys):
    src, dst, rows, argv = shards
    with monkeypatch.context() as patch:
        patch.setattr(Work, "publish", lambda *_: main([]) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(tmp_path / "graph", argv[1:3], binary="int32", features=argv[-2:])
    np.column_stack([src, dst])[:-1].astype(np.int32).tofile(argv[1])
    (tmp_path / "e1.bin").write_bytes(b"")
    assert main(argv) == 0
    assert "half built of other shards or settings: begun anew" in capsys.readouterr().err
    check(tmp_path / "graph", src[:-1], dst[:-1], rows)


def test_one_process_at_a_time(tmp_path, shards, monkeypatch):
    argv = shards[-1]

    def meanwhile(*_):
        assert main(argv) == 2
        raise ZeroDivisionError

    monkeypatch.setattr(Work, "publish", meanwhile)
    with pytest.raises(ZeroDivisionError):
        build(tmp_path / "graph", argv[1:3], binary="int32")


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
    """The arrays of a build stay near the memory that its buffers may use. All edges in memory
    take several times that. (What Python and its libraries take is counted apart.)"""
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
    tracemalloc.start()
    try:
        build(
            tmp_path / "graph",
            tmp_path / "edges.npy",
            200_000,
            memory=buffers >> 19,
            symmetric=kind == "symmetric",
        )
        assert tracemalloc.get_traced_memory()[1] < 1.5 * buffers
    finally:
        tracemalloc.stop()


def test_a_typed_graph(tmp_path, capsys):
    rng, out = np.random.default_rng(0), tmp_path / "graph"
    ends = {("a", "r", "b"): rng.integers(0, 9, (2, 40))}
    ends |= {("b", "s", "b"): rng.integers(0, 9, (2, 30))}
    flags = []
    for one, pair in ends.items():
        np.save(tmp_path / f"{one[1]}.npy", pair)
        flags += ["--relation", *one, str(tmp_path / f"{one[1]}.npy")]
    arrays = {"f": np.ones((12, 2), np.float32), "y": np.arange(12) % 3, "t": np.arange(4)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    f, y, t = (str(tmp_path / f"{name}.npy") for name in arrays)
    flags += ["--features-of", "b", f, "--labels", y, "--labels-of", "b", "--train", t]
    given = ["--nodes", "a=9", "b=12", "--both-ways", "--edge-order", "--out", str(out)]
    assert main(["build", *flags, *given]) == 0
    assert json.loads(capsys.readouterr().out)["edges"] == 140
    data, wanted = load(out), Graph.from_relations({"a": 9, "b": 12}, ends, both_ways=True)
    assert data.graph.schema == wanted.schema
    for name in ("indptr", "indices", "edge_type", "edge_order"):
        np.testing.assert_array_equal(getattr(data.graph, name), getattr(wanted, name))
    assert data.train_idx.tolist() == [9, 10, 11, 12]
    assert data.features.tables[0] is None


# -- bad input ---------------------------------------------------------------------------------


def bad(folder, name):
    """A bad shard by its name, and the flags it needs."""
    path = folder / name
    pairs = np.array([[0, 1], [2, 1], [1, 0]])
    wrong = {
        "high.npy": np.add(pairs, [[0, 0], [0, 90], [0, 0]]),
        "low.npy": np.subtract(pairs, [[0, 0], [5, 0], [0, 0]]),
        "float.npy": pairs * 1.0,
        "three.npy": np.zeros((3, 3), int),
        "either.npy": pairs[:2],
        "huge.npy": pairs + 2**40,
    }
    if name in wrong:
        np.save(path, wrong[name])
    elif name == "cut.npy":
        np.save(path, pairs)
        path.write_bytes(path.read_bytes()[:-3])
    elif name == "cut.bin":
        path.write_bytes(bytes(15))
    elif name == "nan.npy":
        records = np.zeros(3, [("src", int), ("dst", int), ("edge_weight", float)])
        records["edge_weight"][1] = np.nan
        np.save(path, records)
    elif name.endswith(".csv"):
        path.write_text(
            {
                "word.csv": "src,dst\n0,1\nbob,2\n",
                "short.csv": "src,dst\n0,1\n0\n",
                "names.csv": "a,b\n0,1\n",
                "empty.csv": "",
                "gap.csv": "src,dst\n0,\n",
                "text.csv": "src,dst,what\n0,1,x\n",
            }[name]
        )
    elif name != "missing.npy":
        path.write_bytes(b"PAR1 and nothing else")
    return str(path)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("high.npy", [], r"dst in \S*high.npy must be node ids in \[0, 9\); got 91 in row 1. "),
        ("low.npy", [], r"src in \S*low.npy must be node ids in \[0, 9\); got -3 in row 1. "),
        ("huge.npy", [], r"must be node ids in \[0, 9\); got 1099511627776 in row 0. "),
        ("float.npy", [], r"must be int32 or int64 \[E, 2\] or \[2, E\].*got float64\[3, 2\]"),
        ("three.npy", [], r"\[3, 3\]"),
        ("either.npy", [], r"\[2, 2\], which may be either. Write two edges as .bin"),
        ("cut.npy", [], r"cut.npy must be a whole .npy file; got 45 bytes where"),
        ("cut.bin", [], r"the integers of \S*cut.bin must be known; got no binary"),
        ("cut.bin", ["--binary", "int32"], r"pairs of int32, 8 bytes each; got 15 bytes"),
        ("nan.npy", [], r"float32 numbers and not negative; got nan at edge 1 of \S*nan"),
        ("word.csv", [], r"word.csv must be a whole CSV file; got .*'bob'"),
        ("short.csv", [], r"short.csv must be a whole CSV file"),
        ("empty.csv", [], r"empty.csv must be a whole CSV file"),
        ("names.csv", [], r"names.csv must have a column 'src' and a column 'dst'"),
        ("gap.csv", [], r"must be node ids, integers from 0; got float64"),
        ("text.csv", [], r"the edge column 'what' must be numbers; got 'x' in row 0"),
        ("bad.parquet", [], r"bad.parquet must be a whole Parquet file"),
        ("bad.txt", [], r"a shard of edges must end in .npy, .bin, .parquet"),
        ("missing.npy", [], r"missing.npy must exist; got no such file"),
        ("high.npy", ["--memory", "3"], r"memory must be an int, at least 64 MiB; got 3"),
        ("high.npy", ["--memory", "x"], r"invalid int value: 'x'"),
        ("high.npy", ["--both-ways"], r"both_ways, must be for edges by relation"),
        ("high.npy", ["--relation", "a", "r", "b", "f"], r"by --relation or none; got both"),
        ("high.npy", ["--labels", "no.npy", "--train", "no.npy"], r"no.npy must exist"),
        ("high.npy", ["--labels", "no.npy"], r"--labels and --train must be given together"),
        ("high.npy", ["--features", "no.npy"], r"no.npy must exist"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path, capsys, name, flags, message):
    out = tmp_path / "out" / "graph"
    assert main(["build", bad(tmp_path, name), "--out", str(out), "--nodes", "9", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert re.search(message, said.err)
    assert not out.exists()


def test_bad_nodes(tmp_path, capsys):
    pairs, out = bad(tmp_path, "either.npy"), ["--out", str(tmp_path / "graph")]
    np.save(pairs, np.zeros((3, 2), int))
    for flags, message in (
        (["--nodes", "x"], "--nodes must be a number, or TYPE=NUMBER"),
        (["--nodes", "1", "2"], "--nodes must be a number"),
        (["--nodes", "a=1"], "num_nodes by type, and both_ways, must be for edges by relation"),
        (["--nodes", str(2**31)], r"the number of nodes must be an int in \[0, 2147483646\]"),
    ):
        assert main(["build", pairs, *out, *flags]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert main(["build", "--relation", "a", "r", "b", pairs, *out]) == 2
    assert "edges by relation must have the number of nodes" in capsys.readouterr().err


def test_bad_features_and_labels_keep_the_edges(tmp_path, capsys):
    """The next call, with better ones, does not read the edges again."""
    path, out = tmp_path / "e.npy", tmp_path / "graph"
    np.save(path, np.zeros((3, 2), int))
    rows = np.zeros((5, 2), np.float32)
    cases = [
        (
            {"features": (np.full((5, 2), np.nan), "i")},
            "be finite; got NaN or infinity in row 0",
        ),
        ({"labels": np.zeros(4, int), "splits": {"train": [0]}}, "one for every node"),
        ({"labels": np.zeros(5, int), "splits": {"train": [7]}}, r"\[0, 5\); got 7"),
        ({"labels": np.zeros(5, int)}, "labels and splits must be given together"),
    ]
    for given, message in cases:
        given = {k: v[0] if k == "features" else v for k, v in given.items()}
        with pytest.raises(InputError, match=message):
            build(out, [path], 5, **given)
        assert not out.exists()
    with pytest.raises(InputError, match="a row for each of the 5 nodes; got 4"):
        build(out, [path], 5, features=rows[:4])
    capsys.readouterr()
    data = build(out, [path], 5, features=rows, labels=np.zeros(5, int), splits={"train": [0]})
    assert data.features.shape == (5, 2)


def test_bad_chunks(tmp_path):
    one = np.zeros(3, int)
    for edges, message in (
        ([(one, one[:2])], "must be equally long; got 3 rows of 'src' and 2 of 'dst'"),
        ([{"src": one}], "a pair .sources, targets., or a dict with src and dst; got 'src'"),
        ([{"src": one, "dst": one, "x": one}, (one, one)], "have a column or none; got 'x'"),
        ([(one, one), {"src": one, "dst": one, "edge_time": one}], "none; got 'edge_time'"),
        ([{"src": one, "dst": one, "x": one}, {"src": one, "dst": one, "x": one * 1.0}],
         "the edge column 'x' must be int64.* an edge, as in the first rows; got float64"),
        ([{"src": one, "dst": one, "indptr": one}], "an identifier, and no field of Graph"),
        (7, "edges must be paths, or an iterable of chunks"),
        (iter([(one, one)]), "iterator of edges, which can be read once, must have num_nodes"),
    ):  # fmt: skip
        count = None if "iterator" in message else 5
        with pytest.raises(InputError, match=message) as error:
            build(tmp_path / "graph", edges, count)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="labels and splits must be given together"):
        build(tmp_path / "graph", [(one, one)], 5, labels=np.zeros(5))
    assert list(tmp_path.iterdir()) == []
