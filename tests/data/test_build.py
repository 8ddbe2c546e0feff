"""`jgs.data.build` makes what the constructors of `Graph` make of all edges in memory."""

import gzip
import json

import numpy as np
import pytest
from folders import cases, refused, rows, rows_of_edges, write
from hypothesis import given, settings
from hypothesis import strategies as st

from jgs import Graph
from jgs.data import Dataset, build, load
from jgs.data.building import plan, spreading
from jgs.data.dataset import Plain
from jgs.data.edge_stream import build_graph, simple_symmetric_graph

N, E = 120, 1500
ONE = {("a", "r", "b"): 400, ("b", "s", "b"): 300, ("b", "t", "a"): 0}
TYPES = {"a": 50, "b": 70}


@pytest.fixture(autouse=True)
def _sizes(request, monkeypatch):
    """Few edges at a time and many buckets, some too large to be sorted at once; or one."""
    many = getattr(request, "param", "many") == "many"
    sizes = plan.Sizes(97, 150, 16) if many else plan.Sizes(10**6, 10**6, 1)
    monkeypatch.setattr(plan, "sizes_of", lambda *_: sizes)
    monkeypatch.setattr(plan, "MOST_CHUNK", sizes.chunk)
    monkeypatch.setattr(spreading, "KEEP_EVERY", 0)


MANY_OR_ONE = pytest.mark.parametrize("_sizes", ["many", "one"], indirect=True)


def edges(size=E, nodes=(N, N), seed=0, extra=()):
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


def others(columns):
    return {name: columns[name] for name in ("kind", "vector", "day") if name in columns}


def expected(columns, edge_order=True, **options):
    src, dst, weight, time = map(columns.get, ("src", "dst", "edge_weight", "edge_time"))
    more = {"edge_columns": others(columns), "edge_time": time} | options
    graph = Graph.from_edges(src, dst, N, weight, **more)
    return graph if edge_order else graph._with(edge_order=None)


@MANY_OR_ONE
@cases(
    "extra, symmetric, edge_order",
    ([], False, True),
    ([], True, False),
    (["weight"], True, True),
    (["time"], True, False),
    (["columns"], False, False),
    (["columns"], True, True),
    (["weight", "time", "columns"], False, True),
    (["weight", "time", "columns"], True, True),
    (["nodes"], False, True),
    (["nodes", "weight", "time"], False, True),
)
def test_equal_to_from_edges(tmp_path, same_bits, extra, symmetric, edge_order):
    columns, options = edges(extra=extra), {"symmetric": symmetric}
    if "nodes" in extra:
        options["node_time"] = np.random.default_rng(3).integers(-9, 9, N) * 10**15
    data = build(tmp_path / "graph", chunks(columns), N, edge_order=edge_order, **options)
    same_bits(data.graph, expected(columns, edge_order, **options))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@MANY_OR_ONE
@cases(
    "extras, both_ways",
    ([[], [], []], False),
    ([["weight", "time"]] * 3, True),
    ([["columns"]] * 3, True),
    ([["time", "columns"]] * 3, False),
    ([["weight"], [], []], False),  # the other relations have weights of 1
)
def test_equal_to_from_relations(tmp_path, same_bits, extras, both_ways):
    given = {
        one: edges(size, (TYPES[one[0]], TYPES[one[2]]), at, extras[at])
        for at, (one, size) in enumerate(ONE.items())
    }

    def column(name):
        return {one: made[name] for one, made in given.items() if name in made} or None

    wanted = Graph.from_relations(
        TYPES,
        {one: (made["src"], made["dst"]) for one, made in given.items()},
        column("edge_weight"),
        edge_time=column("edge_time"),
        edge_columns={one: others(made) for one, made in given.items()},
        both_ways=both_ways,
    )
    options = {"both_ways": both_ways, "edge_order": True}
    shards = {one: chunks(made) for one, made in given.items()}
    same_bits(build(tmp_path / "graph", shards, TYPES, **options).graph, wanted)


# -- files -------------------------------------------------------------------------------------


def shards_of(folder, kind, columns):
    """The columns in two shards of this kind."""
    files = {}
    for at, chunk in enumerate(chunks(columns, 2)):
        pairs = np.stack([chunk["src"], chunk["dst"]], 1)
        records = np.empty(len(pairs), [(n, a.dtype, a.shape[1:]) for n, a in chunk.items()])
        for name, array in chunk.items():
            records[name] = array
        arrays = {
            "pairs": pairs.astype(np.int32),
            "rows": np.asarray(pairs.T, order="CF"[at]),  # in both orders of memory
            "records": records,
            "bin": pairs.tobytes(),
        }
        table = {name: [*array] if array.ndim > 1 else array for name, array in chunk.items()}
        ending = "npy" if kind in ("pairs", "rows", "records") else kind
        files[f"{kind}{at}.{ending}"] = arrays.get(kind, table)
    write(folder, files)
    return [folder / name for name in files]


@cases(
    "kind, count",
    *[("pairs", N), ("rows", None), ("bin", None), ("records", N), ("records", None)],
    *[("parquet", N), ("parquet", None), ("csv", N), ("csv.gz", None)],
)
def test_files(tmp_path, same_bits, kind, count):
    columns = edges(extra=["weight", "time", "columns"])
    if kind.startswith("csv"):
        del columns["vector"]
        columns["kind"] = columns["kind"].astype(np.int64)
    if kind in ("pairs", "rows", "bin"):
        columns = {name: columns[name] for name in ("src", "dst")}
    options = {"edge_order": True, "binary": "int64" if kind == "bin" else None}
    data = build(tmp_path / "graph", shards_of(tmp_path, kind, columns), count, **options)
    same_bits(data.graph, expected(columns))


@pytest.mark.parametrize("text", ["1,2,3\n26,1,3\n0x1A,2,4\n", "1,2,3\n2,1,0X10\n"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_hexadecimal_names_are_no_numbers(tmp_path, ending, text):
    """Arrow reads 0x1A as 26, which is another node."""
    path = tmp_path / f"e{ending}"
    text = ("src,dst,x\n" + text).encode()
    path.write_bytes(gzip.compress(text) if ending == ".csv.gz" else text)
    refused("must be numbers; got '0*Number the nodes", build, tmp_path / "graph", path, N)
    path.write_bytes(gzip.compress(b"src,dst,x\n1,2,3\n") if ending == ".csv.gz" else text[:16])
    assert build(tmp_path / "graph", path, N).graph.num_edges == 1
    for text, says in (
        (b"src,dst\na,2\n", "ends and weights * must be numbers*invalid value 'a'*Number the"),
        ("src,dst\n1,2\n".encode("utf-16"), "must be text in UTF-8; got UTF-16*iconv"),
    ):
        path.write_bytes(gzip.compress(text) if ending == ".csv.gz" else text)
        refused(says, build, tmp_path / "other", path, N)


@cases(
    "first, last, wanted",
    *[("1", "0.5", 0.5), ("", "3", 3.0), ("", "0.5", 0.5), ("true", "false", False)],
    *[("7", "8", 8), ("2", "true", None), ("1", "x", None)],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_later_block_changes_the_type(tmp_path, monkeypatch, ending, first, last, wanted):
    monkeypatch.setattr("jgs.data.building.table_pieces._BLOCK", 1 << 10)
    path = tmp_path / f"e{ending}"
    text = "src,dst,x\n" + f"0,1,{first}\n" * 500 + f"1,2,{last}\n"
    path.write_bytes(gzip.compress(text.encode()) if ending == ".csv.gz" else text.encode())
    if wanted is None:
        refused("edge column 'x' must be numbers", build, tmp_path / "graph", path, N)
        return
    column = build(tmp_path / "graph", path, N).graph.edge_columns["x"]
    assert column.dtype == np.array(wanted).dtype
    assert column[-1] == wanted


@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_columns_of_tables_and_of_records_by_name(tmp_path, same_bits, ending):
    columns, path = edges(extra=["weight", "time"]), tmp_path / f"e.{ending}"
    names = {"src": "who", "dst": "whom", "weight": "how", "time": "when", "columns": []}
    fields = "who,whom,how,when,word", "src,dst,edge_weight,time"
    for listed, own in zip(fields, (names, {}), strict=True):
        if ending == "npy":
            every = [*columns.values(), np.arange(E)][: 1 + listed.count(",")]
            np.save(path, np.rec.fromarrays(every, names=listed))
        else:
            rows = zip(*map(np.ndarray.tolist, columns.values()), strict=True)
            more = ",x" * ("word" in listed)
            lines = [listed, *(",".join(map(repr, row)) + more for row in rows)]
            path.write_text("\n".join(lines))
        same_bits(build(tmp_path / "graph", path, N, **own).graph, expected(columns, False))
    np.save(path := tmp_path / "pairs.npy", np.zeros((5, 2), int))
    refused("column 'when'; got", build, tmp_path / "none", path, N, time="when")
    (table := tmp_path / "named.csv").write_text("a,b\n2,1\n")  # beside pairs without names
    mixed = build(tmp_path / "mixed", [table, path], N, src="a", dst="b").graph
    assert (mixed.num_edges, np.asarray(mixed.indices).tolist()[-1]) == (6, 2)


def test_a_graph_without_edges(tmp_path, same_bits):
    np.save(tmp_path / "e.npy", np.empty((0, 2), np.int32))
    data = build(tmp_path / "graph", [tmp_path / "e.npy"], features=np.zeros((3, 2)))
    same_bits(data.graph, Graph.from_edges([], [], 3)._with(edge_order=None))
    # As for `Dataset.from_arrays`.
    refused("", build, tmp_path / "graph", [tmp_path / "e.npy"], 0)


# -- features, labels, splits ------------------------------------------------------------------


def saved_files(folder):
    entries = json.loads((folder / "manifest.json").read_text())["arrays"].values()
    return {each["file"]: (each["shape"], each["dtype"], each["sha256"]) for each in entries}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_the_folder_is_what_save_writes(tmp_path, dtype):
    columns, rng = edges(), np.random.default_rng(1)
    features = rng.integers(-99, 99, (N, 5)).astype(dtype)
    labels, split = rng.integers(-1, 4, N), rng.permutation(N)
    splits = {"train": split[labels[split] >= 0][:20], "val": np.flatnonzero(labels < -1)}
    files = {f"part{at}.npy": part for at, part in enumerate(np.array_split(features, 3))}
    parts = [write(tmp_path, files) / name for name in files]
    given = {"features": parts, "labels": labels, "splits": splits, "name": "it"}
    build(tmp_path / "built", chunks(columns), N, **given)
    graph = expected(columns, False)
    Dataset.from_arrays(graph, features, labels, splits, name="it").save(tmp_path / "saved")
    assert saved_files(tmp_path / "built") == saved_files(tmp_path / "saved")
    kept = dtype if dtype == np.float16 else np.float32
    assert load(tmp_path / "built").features.dtype == kept


def test_without_labels_as_a_graph_without_labels(tmp_path):
    data = build(tmp_path / "built", chunks(edges()), N)
    plain = Plain("built", data.graph, None, None, None).dataset()
    plain.save(tmp_path / "saved")
    assert saved_files(tmp_path / "built") == saved_files(tmp_path / "saved")


def test_features_of_tables_and_of_chunks(tmp_path):
    features = np.random.default_rng(2).random((N, 3), np.float32)
    table = {"x": features[:, 0], "yz": [*features[:, 1:]]}
    write(tmp_path, {"f.parquet": table})
    given = (tmp_path / "f.parquet", features, (f for f in np.array_split(features, 4)))
    for each in given:
        data = build(tmp_path / "graph", chunks(edges()), N, features=each)
        assert np.asarray(data.features).tobytes() == features.tobytes()
    # float32 must show the numbers of all pieces together, as `as_features` asks of one array.
    for step, says in ((1, "differ by what float32 shows"), (1000, None)):
        x = (1_700_000_000 + step * np.arange(N))[:, None]
        write(tmp_path, {"x.csv": {"x": x[:, 0]}})
        for each in (tmp_path / "x.csv", (x[at : at + 3] for at in range(0, N, 3))):
            if says:
                refused(says, build, tmp_path / "none", chunks(edges()), N, features=each)
                continue
            data = build(tmp_path / "graph", chunks(edges()), N, features=each)
            assert np.array_equal(data.features, x.astype(np.float32))


# -- more than 2**31 edges ---------------------------------------------------------------------


def test_offsets_and_positions_of_more_than_2_to_the_31_edges(tmp_path):
    """The last bucket of a graph whose first 2**31 edges are written already."""
    from jgs.data.building.sorting import Load, Order
    from jgs.data.building.spreading import Layout

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


# -- sorted rows, as formats have them that are parsed once ------------------------------------


@MANY_OR_ONE
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 600), st.booleans())
def test_sorted_rows_equal_to_the_definition(tmp_path_factory, seed, nodes, size, symmetric):
    src, dst = np.random.default_rng(seed).integers(0, nodes, (2, size))
    wanted = rows_of_edges(src, dst, nodes, symmetric)
    pieces = zip(np.array_split(src, 5), np.array_split(dst, 5), strict=True)
    folder = tmp_path_factory.mktemp("edges")
    assert rows(build_graph(pieces, nodes, folder, symmetric=symmetric, what="it")) == wanted
    if symmetric:
        assert rows(simple_symmetric_graph(src, dst, nodes)) == wanted
