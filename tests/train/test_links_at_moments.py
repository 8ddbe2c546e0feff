"""Recommendations, `--task links --temporal` of a table of links; the table of RelBench."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from refusals import command_refused, refused
from small_runs import command, result, started, words

import jgs
from jgs.data import Database
from jgs.partition.__main__ import main as partition
from jgs.predict.__main__ import main as predict
from jgs.train.evaluation import ranking

USERS, ITEMS, LATE = 40, 8, 7  # an item that appears when the test begins
SQL = """
    SELECT t.timestamp, s.customer, LIST(DISTINCT s.item) AS bought
    FROM timestamps t JOIN sales s
    ON s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL
"""
FLAGS = """
    --task links --temporal --model trsage --fanouts *=8 *=8 --batch-size 128 --epochs 30
    --hidden 16 --lr 1e-2 --no-progress --norm layer --num-negatives 7 --sides dst
    --loss softmax
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Every customer buys one of two items of his own, again and again."""
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    day = np.sort(rng.integers(0, 200, 1200))
    who = rng.integers(0, USERS, 1200)
    item = (who + rng.integers(0, 2, 1200)) % (ITEMS - 1)
    item[(day > 150) & (rng.random(1200) < 0.1)] = LATE
    start = np.datetime64("2024-01-01", "us")
    added = np.where(np.arange(ITEMS) == LATE, 160, -9)
    made = {
        "customers": {"name": [f"c{i}" for i in range(USERS)], "age": range(USERS)},
        "items": {
            "id": range(ITEMS),
            "kind": [f"k{i}" for i in range(ITEMS)],
            "added": start + added.astype("m8[D]"),
        },
        "sales": {
            "day": start + day.astype("m8[D]"),
            "customer": [f"c{i}" for i in who],
            "item": item,
        },
    }
    (folder / "db").mkdir()
    for name, columns in made.items():
        pq.write_table(pa.table(columns), folder / "db" / f"{name}.parquet")
    keys = {
        "customers": {"pkey": "name"},
        "items": {"pkey": "id", "time_col": "added"},
        "sales": {"time_col": "day", "fkeys": {"customer": "customers", "item": "items"}},
    }
    about = {"val_timestamp": "2024-05-10", "test_timestamp": "2024-06-10", "tables": keys}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(about))
    task = folder / "tasks" / "next"
    task.mkdir(parents=True)
    asked = {"kind": "forecast", "task_type": "recommendation", "target_col": "bought"}
    asked |= {"src_entity_table": "customers", "src_entity_col": "customer", "eval_k": 3}
    asked |= {"dst_entity_table": "items", "dst_entity_col": "id", "time_col": "timestamp"}
    (task / "manifest.yaml").write_text(
        yaml.safe_dump(asked | {"timedelta": "15 days", "sql": SQL})
    )
    return folder


@pytest.fixture(scope="module")
def learned(shop, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("learned") / "run"
    assert command(FLAGS, "--dataset", shop, "--db-task next", "--run-dir", run_dir) == 0
    return run_dir


def links_of(shop):
    plain = Database.open(shop).plain(db_task="next")
    return plain, plain.link_table


def test_a_table_of_lists_is_a_table_of_links(shop):
    plain, links = links_of(shop)
    sales = pq.read_table(shop / "db" / "sales.parquet").to_pydict()
    day = np.array(sales["day"], "M8[D]").astype(int)
    rows = set()
    for time in np.unique(links.time):
        inside = (day > time) & (day <= time + 15)
        ends = zip(
            np.array(sales["customer"])[inside], np.array(sales["item"])[inside], strict=True
        )
        rows |= {(int(time), f"customers:{name}", f"items:{item}") for name, item in ends}
    names = plain.node_ids
    found = zip(links.time.tolist(), names[links.src], names[links.dst], strict=True)
    assert {*found} == rows
    assert links.k.tolist() == [3]
    by_hand = Database.open(shop).plain(
        task_sql=f"SELECT customer, timestamp, unnest(bought) FROM ({SQL})",
        entity="customers", horizon="15 days", target="items",
    ).link_table  # fmt: skip
    for own, other in zip(links[:4], by_hand[:4], strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_run_learns_what_is_bought_next(shop, learned):
    found = result(learned)
    assert found["metric"] == "MAP@3"
    assert found["test_accuracy"] > 2 * found["baselines"]["popularity"]["test_accuracy"]
    _, links = links_of(shop)
    run = jgs.open_run(learned)
    nodes, time = run.rows("test")
    assert [a.shape for a in run.recommend(nodes[:0], 3, time=time[:0])] == [(0, 3)] * 2
    best, scores = run.recommend(nodes, 3, time=time)
    assert (np.diff(scores, axis=1) <= 0).all()
    wanted = [
        links.dst[(links.src == node) & (links.time == at)]
        for node, at in zip(nodes, time, strict=True)
    ]
    judged = ranking.mean_average_precision(best, wanted)
    assert judged == pytest.approx(found["test_accuracy"], abs=1e-12)
    late = run.schema.nodes("items")[LATE]
    born = int(np.datetime64("2024-06-09").astype(int))
    for at, there in ((born, False), (born + 1, True)):
        best, _ = run.recommend(nodes[:5], ITEMS, time=at)
        assert (best == late).any() == there


def test_the_table_is_that_of_relbench(learned, tmp_path, capsys):
    out = tmp_path / "shop__next.csv"
    assert predict(words("--run-dir", learned, "--split test --task-table --out", out)) == 0
    rows = list(csv.DictReader(out.open()))
    run = jgs.open_run(learned)
    nodes, time = run.rows("test")
    best, _ = run.recommend(nodes, 3, time=time)
    assert [*rows[0]] == ["customer", "timestamp", "bought"]
    assert [f"customers:{row['customer']}" for row in rows] == run.node_ids[nodes].tolist()
    assert {row["timestamp"] for row in rows} == {"2024-06-10"}
    lists = [[f"items:{key}" for key in json.loads(row["bought"])] for row in rows]
    assert lists == [run.node_ids[row].tolist() for row in best]
    for flags, says in (
        ("--task-table", "beside --split"),
        ("--task-table --split test --top-k 3", "beside --split"),
        ("--top-k 3", "--at must say the time"),
        (
            "--top-k 3 --at 2024-06-10 --new-only",
            "--new-only must be for a run of another task",
        ),
        ("--split test", "one of --pairs or --top-k"),
    ):
        more = words("--run-dir", learned, "--out", out, flags)
        command_refused(capsys, says, predict, more)


def test_parts_have_the_links(shop, learned, tmp_path, capsys):
    asked = words("--dataset", shop, "--db-task next --parts 2 --method random --out", tmp_path)
    assert partition([*asked[:-1], str(tmp_path / "parts")]) == 0
    own = {"task": "links", "temporal": True, "model": "trsage", "fanouts": ("*=-1",) * 2}
    own |= {"hidden": 8}
    found = []
    whole = {"dataset": str(shop), "data_options": ("db_task=next",)}
    parts = {"partition": str(tmp_path / "parts")}
    for ranks, data in ((1, whole), (1, parts), (2, parts)):
        job, params = started(ranks, batch_size=64, **own, **data)
        found.append([job.metric(params, split) for split in ("val", "test")])
        job.close()
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=0.02)  # equal scores may change places


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task nodes", "must be learned as links at moments"),
        ("--task links --model rsage", "no --temporal"),
        ("--task links --temporal --relation item", "--relation item"),
        ("--task links --temporal --split time", "--split time"),
        ("--task links --temporal --metric nmae", "--metric of --temporal must be one of"),
    ],
)
def test_bad_ways_to_learn_links(flags, says, shop, tmp_path, capsys):
    own = words(
        "--model trsage --fanouts *=3 *=3",
        flags,
        "--db-task next --run-dir",
        tmp_path,
        "--dataset",
        shop,
    )
    command_refused(capsys, says, jgs.train.__main__.main, own)


def test_bad_targets(shop):
    base, sql = Database.open(shop), f"SELECT customer, timestamp, bought FROM ({SQL})"
    of = {"task_sql": sql, "entity": "customers", "horizon": "15 days"}
    refused("Did you mean items", base.plain, **of, target="item")
    refused("must have a key of one column", base.plain, **of, target="sales")


def test_average_precision_is_relbenchs():
    """The figures are of `relbench.metrics.map`, 3.0.2; queries without links do not count."""
    rng = np.random.default_rng(7)
    lists = np.argsort(rng.random((6, 9)), axis=1)[:, :4]
    wanted = [rng.choice(9, size, replace=False) for size in (1, 2, 5, 9, 0, 3)]
    assert ranking.mean_average_precision(lists, wanted) == pytest.approx(0.4791666666666666)
