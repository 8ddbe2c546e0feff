"""The layouts of public files: what is made of small files of each, with their traps."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from folders import cases, edges, refused, splits, write

from jgs.data import load
from jgs.data.plain import load_plain

ROLES = ":START_ID,role,since:int,:END_ID,:TYPE\nk,Neo,1999,m1,ACTED_IN\nl,,2003,m2,LIKES\n"
KNOWS = ":START_ID(P)\t:END_ID(P)\tweight:float\n01\t1\t2.5\n"
PEOPLE = "pid:ID,age:int,year:int,:LABEL\nk,30,,Actor\nl,40,,Actor;Singer\nm1,,1999,Movie\n"
MOVIES = PEOPLE + "m2,,2003,Movie\n"
GO = "Biological Process::GO:7"
HETIO = f"source\tmetaedge\ttarget\nGene::9\tGpBP\t{GO}\nGene::9\tGiG\tGene::8\n"
KINDS = f"id\tname\tkind\nGene::8\tA\tGene\n{GO}\tC\tBiological Process\nGene::9\tD\tGene\n"
PRIME = ",".join(f"{e}_{n}" for e in "xy" for n in ("index", "id", "type", "name", "source"))
PRIME = f"relation,display_relation,{PRIME}\nd_p,carrier,0,DB1,drug,a,D,1,9,gene/protein,b,N\n"
PRIME += "d_p,carrier,1,9,gene/protein,b,N,0,DB1,drug,a,D\n"
PLAYED = [("Actor:k", "Movie:m1", 1999), ("Actor:l", "Movie:m2", 2003)]
BINDS = ("Gene:Gene::9", f"Biological Process:{GO}")
ONE_WAY = {"both_ways": False}
MTX = "%%MatrixMarket matrix coordinate {}\n% by hand\n\n"
WHOLE = MTX.format("integer general")
METIS = "% c\n4 2 011\n7 2 5\n8 1 5 3 1\n9 2 1\n6\n"
GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="w" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="undirected"><node id="n0"/><node id="n1"/>
<edge source="n0" target="n1"><data key="w">2.5</data></edge></graph></graphml>"""
GML = """graph [ directed 1 node [ id 5 label "x" value 1 ] node [ id 7 label "x" value 0 ]
edge [ source 5 target 7 value 3 ] edge [ source 5 target 7 value 4 ] ]"""
LISTED = "# by networkx\nb 7 {'weight': np.float64(2.5), 'n': 1}\n7 a {'weight': 1, 'n': 2}\n"
OPENKE = {"entity2id.txt": "3\n/m/a b\t1\nc\t0\nd\t2\n", "relation2id.txt": "2\nr\t0\nq\t1\n"}
OPENKE |= {"train2id.txt": "2\n0 1 1\n1 2 0\n", "test2id.txt": "1\n2 0 0\n"}
FACTS = [("c", "/m/a b", 1, 0), ("/m/a b", "d", 0, 0), ("d", "c", 0, 2)]
KIND = ("edge_type", "split")
ICEWS = {"train.txt": "0\t1\t2\t24\t-1\n", "test.txt": "2\t0\t0\t48\t-1\n"}
DATED = {"train.txt": "A\tmeets\tB C\t2014-01-02\nB C\tmeets\tA\t2014-01-01\n"}
LISTS = {"train.txt": "0 5 6\n1\n2 5\n", "test.txt": "0 7\n"}
RATED = "1::1193::4.5::978300760\n2::1193::3::978302109\n"
BIP = "% bip {}\n% 2 3 2\n1 1 {} 20\n2 1 {} 10\n"


def both(*listed):
    """The edges, and the reverse of each with its columns."""
    return [*listed, *((b, a, *rest) for a, b, *rest in listed)]


# For each: its files, the path of the data set, options, columns of edges, and the edges.
READ = {
    "neo4j": (
        *({"r.csv": ROLES}, "r.csv", ONE_WAY | {"leave_out": "role"}, ("since",)),
        [("entity:k", "entity:m1", 1999), ("entity:l", "entity:m2", 2003)],
    ),
    "neo4j's folder": (
        *({"r.csv": ROLES, "p.csv": MOVIES}, "", {"leave_out": "role"}, ("since",)),
        both(*PLAYED),
    ),
    "an id space, as written, relation by the file": (
        *({"knows.tsv": KNOWS}, "knows.tsv", ONE_WAY, ("edge_weight",)),
        [("P:01", "P:1", 2.5)],
    ),
    "hetionet": (
        *({"h-edges.sif.gz": HETIO, "h-nodes.tsv": KINDS}, "", {}, ()),
        both(BINDS, ("Gene:Gene::8", "Gene:Gene::9")),
    ),
    "primekg": (
        *({"kg.csv": PRIME}, "kg.csv", {}, ()),
        [("drug:0", "gene/protein:1"), ("gene/protein:1", "drug:0")],
    ),
    "triples with names": (
        *({"t.csv": "head,relation,tail\na,r,b\na,q,c\n"}, "t.csv", ONE_WAY, ("edge_type",)),
        [("entity:a", "entity:b", 1), ("entity:a", "entity:c", 0)],
    ),
    "matrix market, one triangle": (
        *({"m.mtx.gz": MTX.format("real symmetric") + "3 3 2\n2 1 .5\n3 3 2\n"}, "m.mtx.gz"),
        *({}, ("edge_weight",), [*both((1, 2, 0.5)), (3, 3, 2)]),
    ),
    "matrix market, general": (
        *({"m.mtx": WHOLE + "3 3 2\n2 1 5\n2 1 7\n"}, "m.mtx", {}, ("edge_weight",)),
        [(2, 1, 5), (2, 1, 7)],
    ),
    "matrix market, not square": (
        *({"m.mtx": MTX.format("pattern general") + "2 3 1\n2 1\n"}, "m.mtx", ONE_WAY, ()),
        [("row:2", "column:1")],
    ),
    "metis": (
        *({"g.graph": METIS}, "g.graph", {}, ("edge_weight",)),
        [*both((1, 2, 5)), *both((2, 3, 1))],
    ),
    "metis, nodes without neighbours": (
        *({"g.graph": "4 1\n\n3\n2\n\n"}, "g.graph", {}, (), both((2, 3))),
    ),
    "edge list of networkx": (
        *({"g.edgelist": LISTED}, "g.edgelist", {}, ("edge_weight", "n")),
        both(("b", "7", 2.5, 1), ("7", "a", 1, 2)),
    ),
    "edge list, directed, with columns": (
        *({"g.edgelist": f"1 2 .5 {10**18 + 1}\n"}, "g.edgelist"),
        *({"symmetric": False, "columns": "src,dst,weight,time"}, ("edge_weight", "edge_time")),
        [(1, 2, 0.5, 10**18 + 1)],
    ),
    "adjacency list": (
        *({"g.adjlist": "#c\n1 2 3 # two\n4\n"}, "g.adjlist", {}, ()),
        both((1, 2), (1, 3)),
    ),
    "graphml": (
        *({"g.graphml": GRAPHML}, "g.graphml", {}, ("edge_weight",)),
        both(("n0", "n1", 2.5)),
    ),
    "gml, directed, parallel edges, no distinct labels": (
        *({"g.gml": GML}, "g.gml", {}, ("value",)),
        [(5, 7, 3), (5, 7, 4)],
    ),
    "openke": (OPENKE, "", ONE_WAY, KIND, FACTS),
    "openke, another order": (
        *(OPENKE | {"train2id.txt": "2\n0 1 1\n1 0 2\n", "test2id.txt": "1\n2 0 0\n"}, ""),
        *(ONE_WAY | {"columns": "head,relation,tail"}, KIND, FACTS),
    ),
    "quadruples, the fifth column left out": (
        *(ICEWS, "", ONE_WAY, ("edge_type", "edge_time", "split")),
        [("0", "2", 1, 24, 0), ("2", "0", 0, 48, 2)],
    ),
    "quadruples with dates": (
        *(DATED, "", {"time_unit": "D"}, ("edge_time",)),
        both(("A", "B C", 16072), ("B C", "A", 16071)),
    ),
    "triples, another order": (
        *({"train.txt": "a\tb\tr\n"}, "", ONE_WAY | {"columns": "head,tail,relation"}, ()),
        [("a", "b")],
    ),
    "lightgcn": (
        *(LISTS, "", ONE_WAY, ("split",)),
        [("user:0", f"item:{i}", i // 7 * 2) for i in (5, 6, 7)] + [("user:2", "item:5", 0)],
    ),
    "movielens": (
        *({"ml/ratings.dat": RATED, "ml/users.dat": "1::F\n"}, "ml", ONE_WAY),
        ("label", "edge_time"),
        [("user:1", "item:1193", 4.5, 978300760), ("user:2", "item:1193", 3, 978302109)],
    ),
    "bipartite konect": (
        *({"out.x": BIP.format("posweighted", 2, 1)}, "out.x", ONE_WAY),
        ("edge_weight", "edge_time"),
        [("left:1", "right:1", 2, 20), ("left:2", "right:1", 1, 10)],
    ),
    "bipartite konect of ratings": (
        *({"out.x": BIP.format("weighted", -1, 4.5)}, "out.x", ONE_WAY, ("label",)),
        [("left:1", "right:1", -1), ("left:2", "right:1", 4.5)],
    ),
    "commas between": ({"x.edges": "3,1\n1,2\n"}, "x.edges", {}, (), both((3, 1), (1, 2))),
    "commas between, and times": (
        *({"x.edges": "3,1,1082040961\n"}, "x.edges", {}, ("edge_time",)),
        [(3, 1, 1082040961)],
    ),
}


@pytest.mark.parametrize("layout", READ)
def test_edges_are_those_of_the_file(layout, tmp_path):
    files, name, options, columns, expected = READ[layout]
    write(tmp_path, files)
    plain = load_plain(tmp_path / name if name else tmp_path, "data", **options)
    assert edges(plain, *columns) == sorted(expected)


# By the name of a file: its text, and what is refused.
WRONG = {
    "r.csv": [(ROLES, "column 'role' must be numbers*encode=edges.role:category")],
    "t.csv": [
        ("head,relation,tail\na,,b\n", "must have a relation*row 0"),
        ("head,relation,tail\n", "must have edges"),
        ("head,relation\rtail\na,r,b\n", "a line of names"),
    ],
    "e.sif": [(HETIO.replace("Gene::9\tGi", "G\tGi"), "a type, ::*got G at row 1")],
    "m.mtx": [
        (WHOLE + "3 3 1\n2 1 1.5\n", "table of int64*1.5"),
        (WHOLE + "3 3 1\n2 1 1 1\n", "m.mtx must be a table"),
        (WHOLE + "3 3 2\n2 1 1\n", "the entries*got 1 of 2"),
        (WHOLE + "3 3 1\n0 1 1\n", "rows*must be from 1 to 3"),
        (
            MTX.format("pattern symmetric") + "3 3 2\n1 2\n2 1\n",
            "must list one triangle; got both 2 1 and 1 2",
        ),
        (MTX.format("complex general") + "1 1 0\n", "pattern, real, integer"),
    ],
    "g.graph": [
        (METIS.replace("9 2 1", "9 2 4"), "same weight; got node 2 and 3"),
        (METIS.replace("4 2", "4 4"), "count each edge once*Write 2"),
        (METIS.replace("4 2", "5 2"), "for each of 5 nodes; got 4 lines"),
    ],
    "g.edgelist": [
        ("1 2 .5\n", "columns=src,dst,weight or*src,dst,time"),
        ("1 2 {'w': f()}\n", "a dict of them*in line 1"),
        ("1 2 {'w': 1}\n1 3 {}\n", "must have 'w'*edge 1"),
    ],
    "g.graphml": [
        (GRAPHML[:-60], "whole file of GraphML"),
        (GRAPHML.replace("<edge ", '<edge directed="true" '), "must be directed, or none"),
        (
            GRAPHML.replace("weight", "at").replace("2.5", f"{2**53 + 1}"),
            "'at' of edges in*less than 2^53*got 9007199254740992, perhaps rounded*CSV",
        ),
    ],
    "g.gml": [(GML.replace("5", f"{2**53 + 1}"), "ids of nodes in*less than 2^53")],
    "out.x": [
        (BIP.format("signed", 1, 1) + "3 1 1 5\n", "counts; got 3 of 2"),
        (BIP.format("signed", 1, 1).replace("2 1", "4 1"), "left nodes*1 to 3"),
    ],
    "x.edges": [("3,1,0.5\n", "columns=src,dst,weight")],
}


@cases("name, text, says", *((name, *row) for name, rows in WRONG.items() for row in rows))
def test_files_that_are_wrong_end_in_one_line(name, text, says, tmp_path):
    refused(says, load_plain, write(tmp_path, {name: text}) / name, "data")


@cases(
    "files, options, says",
    ({"r.csv": ROLES, "p.csv": PEOPLE}, {"leave_out": "role"}, "one of the 3 nodes*'m2'"),
    ({"r.csv": ROLES, "x.csv": "a,b\n"}, {}, "edges or of nodes; got x.csv with 'a', 'b'"),
    (OPENKE | {"train2id.txt": "3\n0 1 1\n"}, {}, "as its first line says; got 1, and 3"),
    (OPENKE | {"train2id.txt": "1\n0 1 2\n"}, {}, "0 to 1; got 2 to 2 in column 3*columns="),
    (OPENKE | {"entity2id.txt": "1\na\t1\n"}, {}, "ids in*must be 0 to 0; got 1"),
    (ICEWS | {"test.txt": "2\t0\t0\t48\t7\n"}, {}, "fifth column is*-1 and 7*time,_"),
    (ICEWS | {"test.txt": "2\t0\t0\n"}, {}, "line of head, relation, tail, time and _"),
    ({"train.txt": "0 1 2\n1 2 0\n"}, {}, "triples or lightgcn*layout=triples"),
    (
        LISTS | {"train.txt": "0 5 6\n1\n0 5\n"},
        {"layout": "lightgcn"},
        "one line for each user",
    ),
    ({"ratings.dat": RATED + "x::1::2::3\n"}, {}, "ratings.dat must be a table"),
)
def test_folders_that_are_wrong_end_in_one_line(files, options, says, tmp_path):
    refused(says, load_plain, write(tmp_path, files), "data", **options)


def test_nodes_of_neo4j_have_features_and_labels(tmp_path, caplog):
    people = "pid:ID,label:string,age:int,year:int,:LABEL\nk,tall,30,,Actor\n"
    people += "l,short,40,,Actor;Singer\nm1,,,1999,Movie\nm2,,,2003,Movie\n"
    write(tmp_path, {"r.csv": ROLES, "p.csv": people})
    data = load(tmp_path, leave_out="role", split="0.5,0.5,0")
    assert data.graph.schema.node_types == (("Actor", 2), ("Movie", 2))
    features = [np.asarray(table).ravel().tolist() for table in data.features.tables]
    assert features == [[30, 40], [1999, 2003]]
    assert (data.labels.tolist(), data.class_names) == ([1, 0, -1, -1], ("short", "tall"))
    assert [len(ids) for ids in splits(data)] == [1, 1, 0]
    assert "1 nodes have several labels; the first is their type" in caplog.text


def test_nodes_of_metis_have_weights(tmp_path):
    plain = load_plain(write(tmp_path, {"g.graph": METIS}) / "g.graph", "data")
    assert np.asarray(plain.graph.node_columns["weight"]).tolist() == [7, 8, 9, 6]


def test_labels_of_gml(tmp_path):
    path = write(tmp_path, {"g.gml": GML}) / "g.gml"
    refused("must have a column 'kind'", load_plain, path, "data", label="kind")
    says = "option layout must be one of*'prime'"
    refused(says, load_plain, path, "data", layout="prime")
    write(tmp_path, {"h.gml": GML.replace("value 1", f"value {2**53}")})
    refused(
        "'value' of nodes*less than 2^53",
        load_plain,
        path.with_name("h.gml"),
        "data",
        label="value",
    )
    data = load(path, label="value", features="value", split="0.5,0.5,0")
    assert (data.labels.tolist(), np.asarray(data.features).tolist()) == ([1, 0], [[1], [0]])
    late = GML.replace("value 1 ", "value 1700000001 ").replace("value 0", "value 1700000002")
    path = write(tmp_path, {"late.gml": late}) / "late.gml"
    refused("differ by what float32 shows", load_plain, path, "data", features="value")


NODES = "node_id\tfeature\tlabel\n1\t{}\t1\n0\t{}\t0\n2\t{}\t1\n"
MASKS = [np.eye(3, dtype=int)[i] for i in (1, 0, 2)]
GEOM = {"out1_graph_edges.txt": "a\tb\n2\t1\n", "out1_node_feature_label.txt": NODES}
HETERO = {"edges": np.array([[2, 1]]), "node_features": np.eye(3), "node_labels": [0, 1, 1]}
PARTS = ("train", "val", "test")


def csr(prefix, matrix):
    parts = ("data", "indices", "indptr", "shape")
    return {prefix + part: np.array(getattr(matrix, part)) for part in parts}


def geom_gcn(folder, rows=("0,1,0", "1,0,0", "0,0,1")):
    files = {"out1_node_feature_label.txt": NODES.format(*rows)}
    for i in (0, 1):
        masks = dict(zip(PARTS, np.roll(MASKS, i, 0), strict=True))
        name = f"splits/x_split_0.6_0.2_{i}.npz"
        files[name] = {f"{part}_mask": mask for part, mask in masks.items()}
    return write(folder, GEOM | files)


def heterophilous(folder):
    masks = zip(PARTS, zip(MASKS, np.roll(MASKS, 1, 0), strict=True), strict=True)
    arrays = HETERO | {f"{part}_masks": np.array(own) for part, own in masks}
    return write(folder, {"x.npz": arrays}) / "x.npz"


@cases("make", geom_gcn, heterophilous)
def test_an_option_chooses_one_of_several_splits(make, tmp_path):
    path = make(tmp_path)
    assert splits(load(path)) == [[1], [0], [2]]
    data = load(path, split=1, symmetric=True)
    assert splits(data) == [[2], [1], [0]]
    assert data.labels.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(data.features, np.eye(3))
    assert edges(data) == both((1, 2))
    assert edges(load(path, symmetric=False)) == [(2, 1)]
    assert len(edges(load(path))) == (1 if make is geom_gcn else 2)  # by the layout
    assert [len(ids) for ids in splits(load(path, split="0.4,0.3,0.3"))] == [1, 1, 1]
    refused("number of a split*2, and 2 splits", load, path, split=2)


def test_features_of_geom_gcn_are_values_or_columns(tmp_path):
    def features(rows, **options):
        data = load(geom_gcn(tmp_path, rows), **options)
        return np.asarray(data.features).tolist()

    lists = ("1,2", "0", "3")
    columns = [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert features(lists) == features(lists, features="columns") == columns
    same = ("2,1", "0,2", "1,0")
    refused("features=values or features=columns", features, same)
    assert features(same, features="values") == [[0, 2], [2, 1], [1, 0]]
    assert features(same, features="columns") == [[1, 0, 1], [0, 1, 1], [1, 1, 0]]


@cases("dots", False, True)
def test_archives_of_shchur_have_labels_and_no_split(dots, tmp_path):
    links = scipy.sparse.csr_array(([1.0, 1.0], ([0, 2], [1, 2])), (3, 3))
    names = ("adj_matrix.", "attr_matrix.") if dots else ("adj_", "attr_")
    arrays = csr(names[0], links) | csr(names[1], scipy.sparse.csr_array(np.eye(3)))
    path = write(tmp_path, {"x.npz": arrays | {"labels": [0, 1, 1]}}) / "x.npz"
    refused("has no split*split=0.6,0.2,0.2 draws", load, path)
    plain = load_plain(path, "data")
    assert (plain.labels.tolist(), plain.train_idx) == ([0, 1, 1], None)
    data = load(path, split="0.4,0.3,0.3")
    assert edges(data) == [*both((0, 1)), (2, 2)]
    assert np.asarray(data.features.to_scipy().toarray()).tolist() == np.eye(3).tolist()
    assert edges(load_plain(path, "data", symmetric=False)) == [(0, 1), (2, 2)]


def test_mat_files_of_deepwalk(tmp_path):
    links = scipy.sparse.csc_array(([1.0, 2.0], ([0, 2], [1, 1])), (3, 3))
    marks = scipy.sparse.csc_array(np.array([[1, 0], [1, 1], [0, 1]]))
    path = tmp_path / "b.mat"
    scipy.io.savemat(path, {"network": links, "group": marks, "A": links})
    plain = load_plain(path, "data")
    assert edges(plain, "edge_weight") == [(0, 1, 1), (2, 1, 2)]
    assert plain.labels.tolist() == [[1, 0], [1, 1], [0, 1]]
    assert load(path, split="0.4,0.3,0.3").multilabel
    refused("0 or 1, a row for each node", load_plain, path, "data", group="A")
    scipy.io.savemat(path, {"A": links})
    refused("must have a column 'network'*network=NAME", load_plain, path, "data")
    twice = load_plain(path, "data", network="A", symmetric=True)
    assert edges(twice) == sorted(both((0, 1), (2, 1)))
    links.indices[0] = 1 << 20  # SciPy's conversions would end the process
    scipy.io.savemat(tmp_path / "c.mat", {"network": links})
    refused("network in*a sound CSR matrix", load_plain, tmp_path / "c.mat", "data")
    path.write_bytes(path.read_bytes()[:-40])
    refused("whole MATLAB file", load_plain, path, "data", network="A")


def test_users_and_nodes_without_edges_are_there(tmp_path):
    write(tmp_path, {f"l/{name}": text for name, text in LISTS.items()})
    schema = load_plain(tmp_path / "l", "data").graph.schema
    assert schema.node_types == (("user", 3), ("item", 3))
    path = write(tmp_path, {"out.x": BIP.format("signed", 1, 1)}) / "out.x"
    assert load_plain(path, "data").graph.schema.node_types == (("left", 3), ("right", 2))
