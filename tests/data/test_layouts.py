"""The layouts of public files: what `load_plain` and `load` make of small files of each, with
their known traps."""

import numpy as np
import pytest
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

# For each: its files, the path of the data set, options, columns of edges, and the edges.
READ = {
    "neo4j": (
        *({"r.csv": ROLES}, "r.csv", ONE_WAY | {"leave_out": "role"}, ("since",)),
        [("entity:k", "entity:m1", 1999), ("entity:l", "entity:m2", 2003)],
    ),
    "neo4j's folder": (
        *({"r.csv": ROLES, "p.csv": MOVIES}, "", {"leave_out": "role"}, ("since",)),
        PLAYED + [(b, a, since) for a, b, since in PLAYED],
    ),
    "an id space, as written, relation by the file": (
        *({"knows.tsv": KNOWS}, "knows.tsv", ONE_WAY, ("edge_weight",)),
        [("P:01", "P:1", 2.5)],
    ),
    "hetionet": (
        *({"h-edges.sif.gz": HETIO, "h-nodes.tsv": KINDS}, "", {}, ()),
        [
            BINDS[::-1],
            ("Gene:Gene::8", "Gene:Gene::9"),
            ("Gene:Gene::9", "Gene:Gene::8"),
            BINDS,
        ],
    ),
    "primekg": (
        *({"kg.csv": PRIME}, "kg.csv", {}, ()),
        [("drug:0", "gene/protein:1"), ("gene/protein:1", "drug:0")],
    ),
    "triples with names": (
        *({"t.csv": "head,relation,tail\na,r,b\na,q,c\n"}, "t.csv", ONE_WAY, ("edge_type",)),
        [("entity:a", "entity:b", 1), ("entity:a", "entity:c", 0)],
    ),
}


@pytest.mark.parametrize("layout", READ)
def test_edges_are_those_of_the_file(layout, tmp_path):
    files, name, options, columns, expected = READ[layout]
    write(tmp_path, files)
    plain = load_plain(tmp_path / name if name else tmp_path, "data", **options)
    assert edges(plain, *columns) == sorted(expected)


# For each: its files, the path, options, and what is refused.
REFUSED = (
    ({"r.csv": ROLES}, "r.csv", {}, "column 'role' must be numbers*encode=edges.role:category"),
    ({"r.csv": ROLES, "p.csv": PEOPLE}, "", {"leave_out": "role"}, "one of the 3 nodes*'m2'"),
    ({"r.csv": ROLES, "x.csv": "a,b\n"}, "", {}, "edges or of nodes; got x.csv with 'a', 'b'"),
    ({"t.csv": "head,relation,tail\na,,b\n"}, "t.csv", {}, "must have a relation*row 0"),
    ({"t.csv": "head,relation,tail\n"}, "t.csv", {}, "must have edges"),
    (
        {"e.sif": HETIO.replace("Gene::9\tGi", "G\tGi")},
        "e.sif",
        {},
        "a type, ::*got G at row 1",
    ),
    ({"t.csv": PRIME}, "t.csv", {"layout": "prime"}, "option layout must be one of*'prime'"),
)


@cases(("files", "name", "options", "says"), *REFUSED)
def test_files_that_are_wrong_end_in_one_line(files, name, options, says, tmp_path):
    write(tmp_path, files)
    path = tmp_path / name if name else tmp_path
    refused(says, load_plain, path, "data", **options)


def test_nodes_of_neo4j_have_features_and_labels(tmp_path, caplog):
    people = "pid:ID,label:string,age:int,year:int,:LABEL\nk,tall,30,,Actor\n"
    people += "l,short,40,,Actor;Singer\nm1,,,1999,Movie\nm2,,,2003,Movie\n"
    write(tmp_path, {"r.csv": ROLES, "p.csv": people})
    data = load(tmp_path, leave_out="role", split="0.5,0.5,0")
    assert data.graph.schema.node_types == (("Actor", 2), ("Movie", 2))
    assert [np.asarray(t).ravel().tolist() for t in data.features.tables] == [
        *([30, 40], [1999, 2003])
    ]
    assert (data.labels.tolist(), data.class_names) == ([1, 0, -1, -1], ("short", "tall"))
    assert [len(ids) for ids in splits(data)] == [1, 1, 0]
    assert "1 nodes have several labels; the first is their type" in caplog.text
