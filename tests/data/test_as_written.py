"""What a table says is what is read: names, ends, weights, labels and gaps."""

import numpy as np
import pytest
from cases import cases
from folders import edges, refused

import jgs
from jgs.arrays import as_numpy
from jgs.data import Dataset
from jgs.data.described import facts
from jgs.data.label_values import as_labels, class_labels, edge_labels
from jgs.data.plain import load_plain


@pytest.fixture
def read(tmp_path):
    """`read(name, text, **options)`: the data in a file of this name."""

    def from_file(name, text, **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_plain(path, tmp_path, **options)

    return from_file


MOST = 2**64 - 1


@cases(
    "name, text, options, expected",
    ("hex.csv", "src,dst\n0x1A,0x1B\n26,0x0C\n", {}, [("0x1A", "0x1B"), ("26", "0x0C")]),
    ("Hex.tsv", "src\tdst\n0X1a\t26\n", {}, [("0X1a", "26")]),
    ("plain.csv", "src,dst\n01,2\n1,2\n", {}, [(1, 2), (1, 2)]),
    ("text.csv", "src,dst\n01,2\n1,2\n", {"ids": "text"}, [("01", "2"), ("1", "2")]),
    (
        "hashes.csv",
        f"src,dst\n{MOST},1\n{MOST - 1},2\n",
        {},
        [(f"{MOST - 1}", "2"), (f"{MOST}", "1")],
    ),
    ("longer.csv", f"src,dst\n1{'0' * 20},a\n", {}, [(f"1{'0' * 20}", "a")]),
    ("a.inter", "user_id:token\titem_id:token\n001\t4\n1\t4\n", {}, [("001", "4"), ("1", "4")]),
    ("b.inter", "user_id:token\titem_id:token\n7\t4\n1\t-4\n", {}, [(1, -4), (7, 4)]),
    ("one.csv", "item,user\n5,0\n4,2\n", {}, [(0, 5), (2, 4)]),
    ("l.csv", b"src,dst\nJos\xe9,Ann\n", {"encoding": "latin-1"}, [("José", "Ann")]),
    ("marked.csv", b"\xef\xbb\xbfsrc,dst\na,b\n", {"encoding": "utf-8"}, [("a", "b")]),
    ("m.csv", b"\xfcber,dst\na,b\n", {"encoding": "latin-1", "src": "über"}, [("a", "b")]),
)
def test_names_of_nodes(read, name, text, options, expected):
    assert edges(read(name, text, **options)) == sorted(expected)


def test_text_that_is_not_utf_8(read, tmp_path):
    for text in ("src,dst\nJosé,Ann\n", "src,dst,city\n1,2,Köln\n"):
        refused("in UTF-8*encoding=latin-1", read, "latin.csv", text.encode("latin-1"))
    for name in ("e.csv", "e.txt"):
        refused("in UTF-8; got UTF-16*iconv", read, name, "src,dst\n1,2\n".encode("utf-16"))
    tables = {"edges.csv": b"src,dst\n1,2\n", "nodes.csv": "id,x\n1,2\n".encode("utf-16")}
    for name, text in tables.items():
        (tmp_path / name).write_bytes(text)
    refused("nodes.csv must be text in UTF-8; got UTF-16*iconv", load_plain, tmp_path, ".")
    (tmp_path / "nodes.csv").write_text("id,x\n1.5,2\n")
    refused("nodes.csv: * at most 64 bits, or text*ids=text", load_plain, tmp_path, ".")
    for name in ("utf-16-le", "rot13"):
        says = "encoding must be one that Python knows*" + "ASCII*iconv" * (name != "rot13")
        refused(says, read, "e.csv", "src,dst\n1,2\n", encoding=name)
    says = "encoding must be one that Python knows"
    refused(says, read, "e.csv", "src,dst\n1,2\n", encoding="latin-99")
    refused("ids must be text", read, "e.csv", "src,dst\n1,2\n", ids="int")


@cases(
    "table, names, src, dst",  # the places of the ends
    ("user_buys_item", "item,user", 1, 0),
    ("user_buys_item", "item_id,rating,user_id", 2, 0),
    ("user_buys_item", "product,user", 1, 0),
    ("user_buys_item", "dst,src", 1, 0),
    ("item_sold-to_user", "user,item", 1, 0),  # in other tables `user` means `src`
    ("author_writes_paper", "paper,author", 1, 0),
    ("author_writes_paper", "year,PaperID,AuthorID", 2, 1),
    ("author_writes_paper", "to,from", 1, 0),
    ("author_writes_paper", "tail,head", 1, 0),
    ("author_writes_paper", "what,who,year", 0, 1),
    ("user_follows_user", "friend,user", 0, 1),
    ("user_follows_user", "target,source", 1, 0),
)
def test_ends_are_found_by_name_in_typed_tables_too(tmp_path, table, names, src, dst):
    """By `src` and `dst`, the types, or the usual names; only else by the order."""
    kinds, rows = table.split("_")[::2], ("509", "428", "517")
    lines = (",".join(row[: names.count(",") + 1]) for row in rows)
    (tmp_path / f"edges_{table}.csv").write_text("\n".join([names, *lines]))
    plain = load_plain(tmp_path, ".", both_ways=False)
    expected = [(f"{kinds[0]}:{row[src]}", f"{kinds[1]}:{row[dst]}") for row in rows]
    assert edges(plain) == sorted(expected)


@cases(
    "names, src_type, dst_type, expected",
    ("item,user", "user", "item", ("user:0", "item:5")),
    ("item,user", "item", "user", ("item:5", "user:0")),  # else `user` means `src`
    ("paper,author", "author", "paper", ("author:0", "paper:5")),
    ("PaperID,author_id", "paper", "author", ("paper:5", "author:0")),
    ("item_id,user_id", "film", "viewer", ("film:0", "viewer:5")),
    ("source,target", "item", "user", ("item:5", "user:0")),
)
def test_ends_are_those_of_src_type_and_dst_type(read, names, src_type, dst_type, expected):
    options = {"src_type": src_type, "dst_type": dst_type, "both_ways": False}
    assert edges(read("e.csv", names + "\n5,0\n", **options)) == [expected]
    options["columns"] = names
    assert edges(read("e.csv", "5,0\n", **options)) == [expected]


@cases(
    "table, names",
    ("author_writes_paper", "year,name,author"),
    ("author_writes_paper", "author,author_id,paper"),
    ("author_writes_paper", "author"),
    ("author_writes_paper", "4,7"),  # the first edge of a table without a line of names
)
def test_unclear_ends_of_typed_tables_are_refused(tmp_path, table, names):
    (tmp_path / f"edges_{table}.csv").write_text(names + "\n")
    refused("a column for each end*Call the two src and dst", load_plain, tmp_path, ".")


def test_what_a_refused_column_of_a_node_type_is_told_to_give_is_taken(tmp_path):
    (tmp_path / "edges_a_in_b.csv").write_text("a,b\n0,0\n")
    (tmp_path / "nodes_b.csv").write_text("id\n0\n")
    (tmp_path / "nodes_a.csv").write_text("id,born,gone\n0,1700000000.25,\n1,1700000001.5,\n")
    standard = "a.born:standard"
    refused("encode=born:standard, or TYPE.born:standard", load_plain, tmp_path, ".")
    refused("encode=gone:drop*TYPE.gone:drop", load_plain, tmp_path, ".", encode=standard)
    plain = load_plain(tmp_path, ".", encode=f"{standard},a.gone:drop")
    assert np.asarray(plain.features.tables[0]).ravel().tolist() == [-1, 1]


LISTS = [  # text, options, the name of the column and its values
    ("1 2 3.5\n2 3 4\n", {"columns": "src,dst,weight"}, "weight", [3.5, 4]),
    ("1 2 3\n2 3 4.5\n", {"columns": "src,dst,weight"}, "weight", [3, 4.5]),
    ("1\t2\t7\n2\t3\t4\n", {"columns": "src,dst,time"}, "time", [7, 4]),
    ("# Directed\n# FromNodeId\tToNodeId\tSign\n1\t2\t-1\n2\t3\t1\n", {}, "sign", [-1, 1]),
    ("# src dst weight\n1 2 8\n2 3 9\n", {}, "weight", [8, 9]),
    ("1 2 1082008561\n2 3 1082040961\n", {}, "time", [1082008561, 1082040961]),
    ("1 2 1082008561000\n2 3 1082040961000\n", {}, "time", [1082008561000, 1082040961000]),
]


@pytest.mark.parametrize(("text", "options", "name", "values"), LISTS)
def test_the_third_column_of_a_list(read, text, options, name, values):
    plain = read("list.txt", text, **options)
    graph, order = plain.graph, np.argsort(plain.graph.edge_index()[0])
    column = {
        "weight": graph.edge_weight,
        "time": graph.edge_time,
        "sign": graph.edge_columns.get("sign"),
    }
    assert np.asarray(column.pop(name))[order].tolist() == values
    assert all(other is None for other in column.values())


@cases(
    "name, text, columns",
    ("e.csv", "5,6\n6,7\n", "columns=src,dst."),
    ("e.csv", "5,6,0.5\n6,7,2\n", "columns=src,dst,weight or columns=src,dst,time"),
    ("e.tsv", "5\t6\t1\t3\n", "columns=src,dst,weight,column_4 or"),
)
def test_names_of_a_table_without_a_line_of_names_are_asked_for(read, name, text, columns):
    refused("in its first row, and no names*" + columns, read, name, text)
    assert read("names.csv", "0,1\n5,6\n", src="0", dst="1").graph.num_edges == 1


@cases("text", "1 2 3.5\n", "1 2 311\n2 3 4\n", "1\t2\t1082008561\n2\t3\t5\n", "1 2 3 4\n")
def test_a_third_column_that_nothing_names_is_asked_for(read, text):
    refused("columns=src,dst,weight* or columns=src,dst,time", read, "list.txt", text)


def test_names_in_lists_are_exact_whatever_other_columns_hold(read):
    ids = [2**53 + 1, 2**53 + 2, 1234567890123456789, 1234567890123456790]
    for times in (("15", "25"), ("1.5", "2.5")):
        text = f"{ids[0]} {ids[1]} {times[0]}\n{ids[2]} {ids[3]} {times[1]}\n"
        plain = read("list.txt", text, columns="src,dst,time", time_scale=10)
        assert plain.node_ids.values.tolist() == ids


@cases(
    "labels, expected",
    (np.array([True, False, True]), [1, 0, 1]),
    (np.array([True, None, False], object), [1, -1, 0]),
    (np.array([2, None, 0], object), [2, -1, 0]),
    (np.ma.array([2, 7, 0], mask=[0, 1, 0]), [2, -1, 0]),
    (np.array([2.0, np.nan, 0.0]), [2, -1, 0]),
    (np.array([2.5, np.nan, 0.0]), [2.5, np.nan, 0.0]),
    (np.array([4.0, 2.0, 5.0]), [4, 2, 5]),
)
def test_one_rule_for_labels_of_nodes_edges_and_moments(labels, expected):
    of_edges, names = edge_labels("a table", labels)
    of_nodes = as_labels("a table", class_labels("a table", labels)[0])
    assert names is None
    for found in (of_edges, of_nodes):
        assert found.dtype == (np.float64 if 2.5 in expected else np.int32)
        np.testing.assert_array_equal(found, expected)


def test_masked_entries_are_missing():
    mask = [False, True, False]
    for dtype, none in ((int, None), (float, np.nan), ("M8[s]", np.datetime64("NaT"))):
        array = np.ma.array(np.arange(3).astype(dtype), mask=mask)
        found = as_numpy(array).tolist()
        assert found[::2] == np.arange(3).astype(dtype).tolist()[::2]
        assert found[1] == none or none != none
    assert as_numpy(np.ma.array([1, 2])).dtype == int
    src = np.ma.array([0, 0, 1], mask=mask)
    dst = np.array([1, 0, 0])
    refused("missing", jgs.Graph.from_table, {"src": src, "dst": dst})
    refused("missing", jgs.NodeIds.of_edges, src, dst)
    weight = np.ma.array([0.5, 0.0, 2.0], mask=mask)
    refused("weight", jgs.Graph.from_edges, dst, dst, 2, weight)
    graph, splits = jgs.Graph.from_edges([0], [1], 3), {"train": [0], "val": [], "test": [2]}
    labels = np.ma.array([0, 1, 1], mask=mask)
    data = Dataset.from_arrays(graph, np.eye(3), labels, splits)
    assert np.asarray(data.labels).tolist() == [0, -1, 1]


def test_dates_beside_numbers_need_a_unit(tmp_path):
    """Labels whose moments are dates, of edges that count milliseconds."""
    (tmp_path / "edges.csv").write_text("src,dst,time\na,b,1577836800000\nb,a,1577923200000\n")
    rows = "".join(f"{n},2020-01-0{day},{day % 2}\n" for day in range(1, 9) for n in "ab")
    (tmp_path / "labels.csv").write_text("node,time,label\n" + rows)
    refused("whole numbers in *edges.csv and dates in *labels", load_plain, tmp_path, ".")
    plain = load_plain(tmp_path, ".", time_unit="ms")
    assert plain.time_unit == "ms"
    assert plain.label_table.time.min() == np.asarray(plain.graph.edge_time).min()
    assert facts(plain)["edges_before_labels"] == 2
    wrong = load_plain(tmp_path, ".", time_unit="s")
    kinds = [warning["kind"] for warning in facts(wrong)["warnings"]]
    assert kinds.count("no_edge_before_labels") == 1
