import json

import numpy as np
from folders import cases, made, refused, splits, write

from jgs.data import Dataset, load
from jgs.data.__main__ import main
from jgs.data.plain import load_plain
from jgs.graph import TypedFeatures

USERS = """id,age,town,score,label,split
u1,20,Rome,,gold,train
u2,,Oslo,1.5,,
u3,40,,2.5,iron,val
u4,60,Rome,3.5,iron,test
"""
ITEMS = "id,price\n7,1.0\n3,2.0\n"
BUYS = "src,dst,time,stars\nu1,7,5,1\nu3,7,3,2\nu4,3,9,3\nu1,3,1,4\n"
BOUGHT, KNOWN = "edges_user_buys_item.csv", "edges_user_knows_well_user.parquet"
KNOWS = {"who": ["u2", "u4"], "whom": ["u1", "u2"], "time": [4, 8], "label": [1.5, None]}
SHOPS = "item\tshop\ttime\n3\t20\t1\n3\t100\t2\n7\t20\t3\n"
FILES = {"nodes_user.csv": USERS, "nodes_item.csv": ITEMS, BOUGHT: BUYS, KNOWN: KNOWS}
folder = made("shop", FILES | {"edges_item_shop.tsv.gz": SHOPS})


def edges_of(data, relation):
    """The (source, target) names of a relation's edges, in the order of the table."""
    graph = data.graph
    at = np.flatnonzero(np.asarray(graph.edge_type) == graph.schema.relation(relation))
    at = at[np.argsort(np.asarray(graph.edge_order)[at])]
    return list(zip(*data.node_ids[graph.edge_index()[:, at]].tolist(), strict=True)), at


@cases("empty", (BOUGHT, "src,dst,time\n"), (KNOWN, {"who": [], "whom": []}))
def test_a_relation_without_edges_and_a_type_without_relations(folder, empty, caplog):
    lost = {"user_likes_item.csv": "user,item\n"}  # without `edges_`
    write(folder, dict([empty]) | {"nodes_town.csv": "id\nRome\nOslo\n"} | lost)
    data = load(folder)
    assert f"{folder} has tables that are not read: user_likes_item.csv" in caplog.messages
    schema = data.graph.schema
    assert schema.node_types == (("item", 2), ("shop", 2), ("town", 2), ("user", 4))
    sizes = {"buys": 4, "knows_well": 2}
    sizes["buys" if empty[0] == BOUGHT else "knows_well"] = 0
    for relation, size in sizes.items():
        for each in (relation, f"rev_{relation}"):
            assert len(edges_of(data, each)[0]) == size
    assert list(data.node_ids[np.array(schema.nodes("town"))]) == ["town:Rome", "town:Oslo"]
    assert "no edges of the node type town" in caplog.text


def test_types_names_and_relations(folder):
    data = load(folder)
    assert isinstance(data, Dataset)
    assert data.name == "shop"
    schema = data.graph.schema
    assert schema.node_types == (("item", 2), ("shop", 2), ("user", 4))
    forward = (("item", "item_shop", "shop"), ("user", "buys", "item"))
    forward += (("user", "knows_well", "user"),)
    back = tuple((b, f"rev_{name}", a) for a, name, b in forward)
    assert schema.relations == forward + back
    # Names are those of the tables, with the type; without a table they ascend as numbers.
    users = ["user:u1", "user:u2", "user:u3", "user:u4"]
    names = ["item:7", "item:3", "shop:20", "shop:100", *users]
    assert data.node_ids.values.tolist() == names
    bought = [("u1", "7"), ("u3", "7"), ("u4", "3"), ("u1", "3")]
    expected = [(f"user:{a}", f"item:{b}") for a, b in bought]
    found, at = edges_of(data, "buys")
    assert found == expected
    assert np.asarray(data.graph.edge_time)[at].tolist() == [5, 3, 9, 1]
    assert data.graph.edge_columns["stars"][at].tolist() == [1, 2, 3, 4]
    assert np.isnan(data.graph.edge_columns["label"][at]).all()
    found, at = edges_of(data, "rev_buys")
    assert found == [(b, a) for a, b in expected]
    assert data.graph.edge_columns["stars"][at].tolist() == [1, 2, 3, 4]
    found, at = edges_of(data, "knows_well")
    assert found == [("user:u2", "user:u1"), ("user:u4", "user:u2")]
    assert data.graph.edge_columns["stars"][at].tolist() == [0, 0]
    np.testing.assert_array_equal(data.graph.edge_columns["label"][at], [1.5, np.nan])
    assert load(folder, both_ways=False).graph.schema.relations == forward


def test_features_labels_and_what_is_missing(folder):
    data = load(folder)
    assert isinstance(data.features, TypedFeatures)
    assert data.features.widths == (1, 0, 7)
    assert data.features.table("shop") is None
    rows = [  # age, age_missing, Oslo, Rome, town_missing, score, score_missing
        [20, 0, 0, 1, 0, 0, 1],
        [0, 1, 1, 0, 0, 1.5, 0],
        [40, 0, 0, 0, 1, 2.5, 0],
        [60, 0, 0, 1, 0, 3.5, 0],
    ]
    assert np.asarray(data.features.table("user")).tolist() == rows
    assert np.asarray(data.features.table("item")).tolist() == [[1], [2]]
    assert data.class_names == ("gold", "iron")
    assert data.num_classes == 2
    assert data.labels.tolist() == [-1] * 4 + [0, -1, 1, 1]
    assert splits(data) == [[4], [6], [7]]
    plain = load_plain(folder, "")
    assert plain.filled == {"user.age": 1, "user.town": 1, "user.score": 1}
    assert plain.class_names == data.class_names
    assert plain.val_idx.tolist() == [6]
    refused("got item 1, user 7. Choose a model of", load, folder, features="padded")


def test_names_with_underscores(tmp_path):
    edges = "src,dst\n0,1\n"
    nodes = {f"nodes_{kind}.csv": "id\n0\n1\n" for kind in ("a", "a_b", "c_d")}
    refused("must hold tables edges_* got none", load, write(tmp_path, nodes))
    write(tmp_path, {"edges_a_b_of_c_d.csv": edges})
    refused("one way; * got (a, b_of, c_d) or (a_b, of, c_d", load_plain, tmp_path, "")
    (tmp_path / "nodes_a.csv").unlink()
    assert load_plain(tmp_path, "").graph.schema.relations[0] == ("a_b", "of", "c_d")
    (tmp_path / "edges_c_d_in_big_shop.csv").write_text(edges)
    relation = load_plain(tmp_path, "").graph.schema.relations[1]
    assert relation == ("c_d", "in_big", "shop")
    relation = load_plain(tmp_path, "", types="big_shop").graph.schema.relations[1]
    assert relation == ("c_d", "in", "big_shop")


def test_a_graph_without_labels_is_plain(folder):
    (folder / "nodes_user.csv").write_text("id\nu1\nu2\nu3\nu4\n")
    plain = load_plain(folder, "")
    assert plain.labels is None
    assert plain.features.widths == (1, 0, 0)
    refused("must have the columns label and split; * split=0", load, folder)


@cases(
    "file, text, says",
    ("edges_usr.csv", BUYS, "edges_usr.csv in * must name two node types"),
    (BOUGHT, "src,dst,time\nu1,7,1\nu9,7,1\n", "nodes_user.csv) must*'u9' at position 1"),
    (BOUGHT, "src,dst,time\n7,7,1\n", "src in * (a user of *7"),
    (BOUGHT, "src,dst,time\nu1,7,1\nu1,7\n", "Row #3: Expected 3"),
    (BOUGHT, "src,dst\nu1,7\n", "all relations must have times*none in"),
    (BOUGHT, "src\nu1\n", "must have a column for each end"),
    (BOUGHT, "src,dst,time,label\nu1,7,1,new\n", "must have all labels that are text"),
    (BOUGHT, "src,dst,time,why\nu1,7,1,new\n", "column 'why' in *'new'"),
    ("edges_user_buys_item.tsv", BUYS, "must hold one table edges_user_buys_item"),
    ("nodes_item.csv", "id,price\n7,1\n7,1\n", "nodes_item.csv: every node must have an"),
    ("nodes_item.csv", "id,price\n", "nodes_item.csv must have nodes; got no row"),
    ("nodes_item.csv", "key,price\n1,1\n", "must have a column 'id'"),
    ("nodes_item.csv", "id,hour\n7,10:00:00\n3,11:00:00\n", "numbers; got 10:00:00"),
    ("nodes_item.csv", "id,label\n7,1\n3,0\n", "target None and labels of item, user"),
    ("nodes_user.csv", USERS.replace("val", "vla"), "train, val and test; got 'vla'"),
)
def test_bad_tables_are_refused_in_one_line(file, text, says, folder):
    refused(says, load_plain, write(folder, {file: text}), "")


def test_too_many_categories_and_the_target(folder):
    lines = "".join(f"{i},name{i}\n" for i in range(65))
    (folder / "nodes_item.csv").write_text("id,name\n" + lines)
    assert load(folder).feature_columns["item"].columns[0].becomes == "hash:64"
    assert load(folder, max_categories=65).features.widths == (65, 0, 7)
    (folder / "nodes_item.csv").write_text("id,label,split\n7,1,train\n3,0,test\n")
    data = load(folder, target="item")
    assert data.labels.tolist()[:2] == [1, 0]
    assert (data.labels[2:] == -1).all()
    assert data.train_idx.tolist() == [0]


def test_the_command_describes_types_and_relations(folder, capsys):
    assert main(["describe", str(folder)]) == 0
    out, table = capsys.readouterr()
    found = json.loads(out)
    told = {"node_types": {"item": 2, "shop": 2, "user": 4}, "types_without_features": ["shop"]}
    told |= {"missing_values_filled": {"user.age": 1, "user.town": 1, "user.score": 1}}
    told |= {"labelled_types": ["user"], "labelled_nodes": 3, "classes": 2}
    assert found.items() >= (told | {"train": 1, "val": 1, "test": 1}).items()
    assert found["features_of_types"]["user"] == {"width": 7, "kind": "float32"}
    degrees = {one["relation"]: one for one in found["edges_of_relations"]}
    assert len(degrees) == 6
    for relation, edges, mean, most in (
        ("user buys item", 4, 2, 2),
        ("item rev_buys user", 4, 1, 2),
        ("user knows_well user", 2, 0.5, 1),
        ("item item_shop shop", 3, 1.5, 2),
    ):
        one = {"edges": edges, "mean_in_degree": mean, "max_in_degree": most}
        assert degrees[relation].items() >= one.items()
    assert "user knows_well user" in table
    assert "mean in-degree" in table


def test_what_a_relation_lacks(folder):
    rows = "u1,7,5,good,train,2\nu3,7,3,,,0.5\n"
    write(folder, {BOUGHT: "src,dst,time,label,split,edge_weight\n" + rows})
    write(folder, {KNOWN: {"a": ["u2"], "b": ["u1"], "time": [4]}})
    data = load_plain(folder, "", both_ways=False)
    assert data.label_names == ("good",)
    found = {}
    for name in ("buys", "knows_well"):
        _, at = edges_of(data, name)
        columns = {k: v[at].tolist() for k, v in data.graph.edge_columns.items()}
        found[name] = columns | {"weight": np.asarray(data.graph.edge_weight)[at].tolist()}
    assert found["buys"] == {"label": [0, -1], "split": [0, -1], "weight": [2, 0.5]}
    assert found["knows_well"] == {"label": [-1], "split": [-1], "weight": [1]}


def test_times_and_ends_by_other_names(folder):
    ends = {"timestamp": ["2020-01-02", "2020-01-03"], "source": ["u2", "u4"]}
    ends |= {"destination": ["u1", "u2"], "label": [1.5, None]}
    without = dict.fromkeys((BOUGHT, "edges_item_shop.tsv.gz", "nodes_item.csv"))
    write(folder, without | {KNOWN: ends})
    data = load(folder, both_ways=False, time_unit="D")
    names, _ = edges_of(data, ("user", "knows_well", "user"))
    assert names == [("user:u2", "user:u1"), ("user:u4", "user:u2")]
    assert sorted(np.asarray(data.graph.edge_time).tolist()) == [18263, 18264]
    assert data.time_unit == "D"
