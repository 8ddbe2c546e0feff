"""`jgs.data.build` makes what the constructors of `Graph` make of all edges in memory."""

import json

import jax
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

import jgs
from benchmarks.build import hash_of_graph, make
from jgs import Graph
from jgs.data import Dataset, build, load
from jgs.data.building import plan, spreading
from jgs.data.dataset import Plain

N, E = 120, 3000
ONE = {("a", "r", "b"): 700, ("b", "s", "b"): 500, ("b", "t", "a"): 0}
TYPES = {"a": 50, "b": 70}


@pytest.fixture(autouse=True, params=["many", "one"])
def _sizes(request, monkeypatch):
    """Few edges at a time and many buckets, some too large to be sorted at once; or one."""
    sizes = plan.Sizes(97, 150, 16) if request.param == "many" else plan.Sizes(10**6, 10**6, 1)
    monkeypatch.setattr(plan, "sizes_of", lambda *_: sizes)
    monkeypatch.setattr(plan, "counting_chunk", lambda _: sizes.chunk)
    monkeypatch.setattr(spreading, "KEEP_EVERY", 0)


def edges(size=E, nodes=(N, N), seed=0, **extra):
    """Columns of edges. A third goes to one node, and many are parallel or loops."""
    rng = np.random.default_rng(seed)
    src, dst = (rng.integers(0, count, size) for count in nodes)
    dst[: size // 3] = 5
    src[: size // 6] %= 8
    made = {"src": src, "dst": dst}
    made |= {"edge_weight": rng.random(size).astype(np.float32)} if "weight" in extra else {}
    made |= {"edge_time": rng.integers(-9, 9, size) * 10**15} if "time" in extra else {}
    if "columns" in extra:
        made |= {"kind": rng.integers(0, 9, size).astype(np.int16)}
        made |= {"vector": rng.random((size, 3)), "day": np.arange(size)}
    return made


def chunks(columns, parts=7):
    for at in np.array_split(np.arange(len(columns["src"])), parts):
        yield {name: array[at] for name, array in columns.items()}


def expected(columns, **options):
    columns = dict(columns)
    src, dst, weight, time = (
        columns.pop(name, None) for name in ("src", "dst", "edge_weight", "edge_time")
    )
    return Graph.from_edges(
        src, dst, N, weight, edge_columns=columns, edge_time=time, **options
    )


def same(graph, wanted, edge_order=True):
    if not edge_order:
        wanted = wanted._with(edge_order=None)
    assert jax.tree.structure(graph) == jax.tree.structure(wanted)
    one, two = (jax.tree_util.tree_leaves_with_path(each) for each in (graph, wanted))
    for (path, a), (_, b) in zip(one, two, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), path


EXTRA = ([], ["weight"], ["time"], ["columns"], ["weight", "time", "columns"])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("extra", EXTRA, ids="+".join)
def test_equal_to_from_edges(tmp_path, extra, symmetric):
    columns = edges(**dict.fromkeys(extra))
    for edge_order in (True, False):
        options = {"symmetric": symmetric, "edge_order": edge_order}
        data = build(tmp_path / "graph", chunks(columns), N, **options)
        same(data.graph, expected(columns, symmetric=symmetric), edge_order)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("extra", [[], ["time", "weight"]], ids="+".join)
def test_node_times(tmp_path, extra):
    times = np.random.default_rng(3).integers(-9, 9, N) * 10**15
    columns = edges(**dict.fromkeys(extra))
    data = build(tmp_path / "graph", chunks(columns), N, node_time=times, edge_order=True)
    same(data.graph, expected(columns, node_time=times))


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("extra", EXTRA, ids="+".join)
def test_equal_to_from_relations(tmp_path, extra, both_ways):
    given = {
        one: edges(size, (TYPES[one[0]], TYPES[one[2]]), at, **dict.fromkeys(extra))
        for at, (one, size) in enumerate(ONE.items())
    }
    more = {name: {} for name in ("edge_weight", "edge_time")}
    columns, ends = {}, {}
    for one, made in given.items():
        own = dict(made)
        ends[one] = own.pop("src"), own.pop("dst")
        for name in more:
            more[name] |= {one: own.pop(name)} if name in own else {}
        columns[one] = own
    wanted = Graph.from_relations(
        TYPES,
        ends,
        edge_columns=columns,
        both_ways=both_ways,
        **{name: each or None for name, each in more.items()},
    )
    options = {"both_ways": both_ways, "edge_order": True}
    shards = {one: chunks(made) for one, made in given.items()}
    same(build(tmp_path / "graph", shards, TYPES, **options).graph, wanted)


def test_weights_of_one_relation_alone(tmp_path):
    first, second = list(ONE)[:2]
    given = {first: edges(90, (50, 70), weight=1), second: edges(80, (70, 70))}
    ends = {one: (made["src"], made["dst"]) for one, made in given.items()}
    weights = {first: given[first]["edge_weight"]}
    shards = {one: chunks(made) for one, made in given.items()}
    data = build(tmp_path / "graph", shards, TYPES, edge_order=True)
    same(data.graph, Graph.from_relations(TYPES, ends, weights))


# -- files -------------------------------------------------------------------------------------


def write(folder, kind, columns):
    """The columns in two shards of this kind; and the options that `build` needs."""
    paths, options = [], {}
    for at, chunk in enumerate(chunks(columns, 2)):
        pairs = np.stack([chunk["src"], chunk["dst"]], 1)
        path = folder / f"{kind}{at}.{'npy' if kind in ('pairs', 'rows', 'records') else kind}"
        if kind == "pairs":
            np.save(path, pairs.astype(np.int32))
        elif kind == "rows":  # in both orders of memory
            np.save(path, np.asarray(pairs.T, order="CF"[at]))
        elif kind == "records":
            fields = [(name, array.dtype, array.shape[1:]) for name, array in chunk.items()]
            records = np.empty(len(pairs), fields)
            for name, array in chunk.items():
                records[name] = array
            np.save(path, records)
        elif kind == "bin":
            options = {"binary": "int64"}
            pairs.tofile(path)
        else:
            lists = {n: a.tolist() if a.ndim > 1 else a for n, a in chunk.items()}
            table = pyarrow.table(lists)
            if kind == "parquet":
                pyarrow.parquet.write_table(table, path, row_group_size=400)
            elif kind == "csv":
                pyarrow.csv.write_csv(table, path)
            else:
                with pyarrow.CompressedOutputStream(str(path), "gzip") as stream:
                    pyarrow.csv.write_csv(table, stream)
        paths.append(path)
    return paths, options


@pytest.mark.parametrize(
    "kind", ["pairs", "rows", "bin", "records", "parquet", "csv", "csv.gz"]
)
def test_files(tmp_path, kind):
    columns = edges(weight=1, time=1, columns=1)
    if kind.startswith("csv"):
        del columns["vector"]
        columns["kind"] = columns["kind"].astype(np.int64)
    if kind in ("pairs", "rows", "bin"):
        columns = {name: columns[name] for name in ("src", "dst")}
    paths, options = write(tmp_path, kind, columns)
    for count in (N, None):
        data = build(tmp_path / "graph", paths, count, edge_order=True, **options)
        wanted = expected(columns)
        assert count or wanted.num_nodes == data.graph.num_nodes
        same(data.graph, wanted)


def test_columns_of_tables_by_name(tmp_path):
    columns = edges(weight=1, time=1)
    rows = zip(*map(np.ndarray.tolist, columns.values()), strict=True)
    lines = ["who,whom,how,when,word", *(",".join(map(repr, row)) + ",x" for row in rows)]
    (tmp_path / "e.csv").write_text("\n".join(lines))
    names = {"src": "who", "dst": "whom", "weight": "how", "time": "when", "columns": []}
    same(
        build(tmp_path / "graph", tmp_path / "e.csv", N, **names).graph,
        expected(columns),
        False,
    )


def test_a_graph_without_edges(tmp_path):
    for count in (0, 3):
        np.save(tmp_path / "e.npy", np.empty((0, 2), np.int32))
        features = np.zeros((count, 2), np.float32)
        if count == 0:
            with pytest.raises(jgs.InputError):  # as for `Dataset.from_arrays`
                build(tmp_path / "graph", [tmp_path / "e.npy"], count)
            continue
        data = build(tmp_path / "graph", [tmp_path / "e.npy"], features=features)
        same(data.graph, Graph.from_edges([], [], 3), False)


# -- features, labels, splits ------------------------------------------------------------------


def saved_files(folder):
    entries = json.loads((folder / "manifest.json").read_text())["arrays"].values()
    return {each["file"]: (each["shape"], each["dtype"], each["sha256"]) for each in entries}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8])
def test_the_folder_is_what_save_writes(tmp_path, dtype):
    columns, rng = edges(), np.random.default_rng(1)
    features = rng.integers(-99, 99, (N, 5)).astype(dtype)
    labels, split = rng.integers(-1, 4, N), rng.permutation(N)
    splits = {"train": split[labels[split] >= 0][:20], "val": np.flatnonzero(labels < -1)}
    paths, options = write(tmp_path, "bin", columns)
    parts = [tmp_path / f"part{at}.npy" for at in range(3)]
    for path, part in zip(parts, np.array_split(features, 3), strict=True):
        np.save(path, part)
    given = {"features": parts, "labels": labels, "splits": splits, "name": "it"}
    build(tmp_path / "built", paths, **given, **options)
    graph = expected(columns)._with(edge_order=None)
    Dataset.from_arrays(graph, features, labels, splits, name="it").save(tmp_path / "saved")
    assert saved_files(tmp_path / "built") == saved_files(tmp_path / "saved")
    assert load(tmp_path / "built").features.dtype == (
        dtype if dtype == np.float16 else np.float32
    )


def test_without_labels_as_a_graph_without_labels(tmp_path):
    paths, options = write(tmp_path, "bin", edges())
    data = build(tmp_path / "built", paths, N, **options)
    plain = Plain("built", data.graph, None, None, None).dataset()
    plain.save(tmp_path / "saved")
    assert saved_files(tmp_path / "built") == saved_files(tmp_path / "saved")


def test_features_of_tables_and_of_chunks(tmp_path):
    features = np.random.default_rng(2).random((N, 3), np.float32)
    table = pyarrow.table({"x": features[:, 0], "yz": features[:, 1:].tolist()})
    pyarrow.parquet.write_table(table, tmp_path / "f.parquet", row_group_size=40)
    given = (tmp_path / "f.parquet", features, (f for f in np.array_split(features, 4)))
    for each in given:
        data = build(tmp_path / "graph", chunks(edges()), N, features=each)
        assert np.asarray(data.features).tobytes() == features.tobytes()


def test_features_and_labels_of_types(tmp_path):
    shards = {("a", "r", "b"): chunks(edges(90, (50, 70)))}
    features = np.random.default_rng(2).random((70, 3), np.float32)
    labels, splits = {"b": np.arange(70) % 3}, {"train": [0, 1], "val": [2]}
    given = {"features": {"b": features}, "labels": labels, "splits": splits}
    data = build(tmp_path / "graph", shards, TYPES, **given)
    assert data.features.tables[0] is None
    assert np.array_equal(data.features.tables[1], features)
    assert data.val_idx.tolist() == [52]
    assert data.labels[50:].tolist() == labels["b"].tolist()


# -- more than 2**31 edges ---------------------------------------------------------------------


def test_offsets_and_positions_of_more_than_2_to_the_31_edges(tmp_path):
    """The last bucket of a graph whose first 2**31 edges are written already."""
    from jgs.data.building.records import Layout
    from jgs.data.building.sorting import Load, Order

    before = 2**31 + 5
    fields = [("indices", "<i4"), ("row", "<i4"), ("edge_order", "<i8")]
    records = np.array([(1, 9, before), (2, 8, before + 1), (3, 9, before + 2)], fields)
    order = Order(Layout(records.dtype), 10, before + 3, False, False)
    indptr, arrays = order.rows(Load(8, 10, records, [3], 1))
    assert indptr.dtype == np.int64
    assert (indptr + before)[-1] == before + 3
    assert arrays["edge_order"].dtype == np.int64
    assert arrays["edge_order"].tolist() == [before + 1, before, before + 2]
    work = type("Work", (), {})()
    work.new, work.state = tmp_path, {"sort": {"edges": before, "row": 8, "records": before}}
    assert order.files(work)["edge_order"].shape == (before + 3,)
    assert order.files(work)["indptr"].dtype == np.int64


# -- the benchmark -----------------------------------------------------------------------------


def test_what_the_benchmark_compares(tmp_path):
    shards, wanted = make(tmp_path, 5000, 70, 3)
    build(tmp_path / "graph", shards, 70)
    assert hash_of_graph(tmp_path / "graph") == wanted
    pairs = np.load(shards[0])
    np.save(shards[0], np.concatenate([pairs[:-1], pairs[:1]]))
    build(tmp_path / "graph", shards, 70)
    assert hash_of_graph(tmp_path / "graph") != wanted
