"""Tasks of a database: what their manifests and their SQL must say, and what is read of both
and of columns."""

import shutil
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import jgs
from jgs.audit import audit
from jgs.audit.view import View
from jgs.data import Database, layouts
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule

KEYS = {"u": {"pkey": "k"}, "s": {"fkeys": {"u": "u"}, "time_col": "t"}}


@pytest.fixture
def shop(data_folder):
    return data_folder / "shop_db"


def folder_of(rows, t):
    """A manifest's tables, and so many users with sales on the moments `t`."""
    users = {"k": range(rows), "x": [float(i) for i in range(rows)]}
    return {"u": pa.table(users), "s": pa.table({"u": range(rows), "t": t})}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("[1, 2]", "must have the fields of a task"),
        ({"target_col": None}, "must have the field target_col"),
        ({"sql": None}, "must have the field sql"),
        ({"timedelta": None}, "must have the field timedelta"),
        ({"num_eval_timestamps": "x"}, "num_eval_timestamps in"),
        ({"num_eval_timestamps": 0}, "whole number from 1 on"),
        ({"entity_col": ["nope", 5]}, "must have a column 'nope' and a column '5'"),
        ({"target_col": "timestamp"}, "must have different names"),
        ({"time_col": None}, "must have the field time_col"),
        ({"task_type": ["x"]}, "must have a task_type of"),
        ({"task_type": "multilabel_classification"}, "must have lists of 0 and 1"),
        ({"remove_columns": ["events"]}, "must be pairs of a table and a column"),
        ({"remove_columns": [["events", "nope"]]}, "must have a column 'nope'"),
        ({"eval_k": -4}, "eval_k in"),
    ],
)
def test_a_task_that_lacks_what_it_needs_is_one_line(change, says, tmp_path, shop):
    shutil.copytree(shop, tmp_path / "shop_db")
    file = tmp_path / "shop_db" / "tasks" / "user-churn" / "manifest.yaml"
    said = yaml.safe_load(file.read_text())
    file.write_text(change if isinstance(change, str) else yaml.safe_dump(said | change))
    for each in file.parent.glob("*.parquet"):
        each.unlink()
    with pytest.raises(jgs.InputError) as error:
        Database.open(tmp_path / "shop_db").plain(db_task="user-churn")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_that_is_hidden_or_asked_for_makes_no_relation(tmp_path, shop):
    shutil.copytree(shop, tmp_path / "shop_db")
    task = tmp_path / "shop_db" / "tasks" / "event-kind"
    said = yaml.safe_load((task / "manifest.yaml").read_text())
    asked = {"kind": "autocomplete", "target_col": "item_id"}
    (task / "manifest.yaml").write_text(yaml.safe_dump(said | asked))
    for each in task.glob("*.parquet"):
        rows = pq.read_table(each)
        names = ["item_id" if name == "kind" else name for name in rows.column_names]
        pq.write_table(rows.rename_columns(names), each)
    base, told = Database.open(tmp_path / "shop_db"), []
    for options in ({}, {"hide": "events.item_id"}, {"db_task": "event-kind"}):
        relations = base.plain(**options).graph.schema.relations
        told.append({name for a, name, b in relations if {a, b} == {"events", "items"}})
    assert told == [{"item_id", "rev_item_id"}, set(), set()]
    assert base.hidden("events.gone, events.gift", lacking=True) == {("events", "gift")}
    rows = pa.table(
        {"a": ["x", "y"], "b": [1, 2], "to": ["y", None], "too": [2, 1], "c": [1, 2]}
    )
    keys = {"t": {"pkey": ["a", "b"], "fkeys": {"to, too": "t", "a, c": "t"}}}
    base = Database.from_tables({"t": rows}, {"tables": keys})
    left, hidden = base.without(base.hidden("t.too"))
    assert (left.catalogue.tables["t"].references, len(hidden)) == ({("a", "c"): "t"}, 2)
    assert "t" not in base.plain(hide="t.to").feature_columns  # nor is the key's other column


def test_labels_that_may_be_either_are_one_line(shop, caplog):
    base, asked = Database.open(shop), {"entity": "users", "horizon": "30 days"}
    sql = "SELECT user_id, timestamp, {} AS y FROM timestamps, users"
    for label, says in (
        ("5.0 * (user_id % 3)", "must be said to be numbers or classes"),
        ("user_id::HUGEINT * 100000000000000000000", "must fit 64 bits"),
        ("nullif(user_id % 2 = 0, TRUE)", "must have a label; got .* without"),
        ("INTERVAL 1 DAY", "numbers, text or lists; got the type month_day_nano"),
        ("[]::INTEGER[]", "lists of one length, of 0 and 1; got lists of 0 to 0"),
    ):
        with pytest.raises(jgs.InputError, match=says):
            base.plain(task_sql=sql.format(label), **asked)
    far = sql.replace("user_id,", "user_id * 1e16 AS user_id,", 1).format("1.5")
    with pytest.raises(jgs.InputError, match=r"user_id of task_sql in .* keep its digits"):
        base.plain(task_sql=far, **asked)
    sql = sql.format("5 * (user_id % 3)")
    found = [base.plain(task_sql=sql, label_kind=k, **asked) for k in ("number", None)]
    assert [each.label_table.numbers for each in found] == [True, False]
    assert "labels in task_sql are classes: 3 different ones" in caplog.text
    pairs = "SELECT user_id, timestamp, [user_id % 2, 1]::INTEGER[2] FROM timestamps, users"
    assert base.plain(task_sql=pairs, **asked).label_table.num_classes == 2


def test_the_same_query_gives_the_same_bits(shop):
    """Threads add fractions in an order of their own."""
    base, threads = Database.open(shop), "SELECT current_setting('threads') AS n"
    before = base.sql(threads).to_pylist()
    assert base.ask(threads, "the query").to_pylist() == [{"n": 1}]
    assert base.sql(threads).to_pylist() == before


def test_tables_that_are_made_when_they_are_read_are_read_once():
    rows, base = folder_of(50, range(50)), duckdb.connect()
    base.register("users", rows["u"])
    reader = pa.RecordBatchReader.from_batches(rows["s"].schema, rows["s"].to_batches())
    lazy = {"u": base.sql("SELECT * FROM users ORDER BY random()"), "s": reader}
    plain = Database.from_tables(lazy, {"tables": KEYS}).plain()
    values = np.asarray(plain.features.tables[0])[:, 0]
    ids = [int(name.removeprefix("u:")) for name in plain.node_ids.values[:50]]
    assert np.argsort(ids).tolist() == np.argsort(values).tolist()
    assert plain.graph.num_edges == 100


def test_a_view_is_read_once(tmp_path, caplog):
    file = tmp_path / "a.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE rows AS SELECT i AS id, DATE '2024-01-01' + i::INT AS day FROM "
            "range(200) r(i); CREATE VIEW v AS SELECT id, id AS x, day FROM rows "
            "ORDER BY random(); CREATE TABLE s(v BIGINT); INSERT INTO s VALUES (1); "
            "CREATE SCHEMA raw; CREATE TABLE raw.s AS FROM s"
        )
    keys = {"v": {"pkey": "id", "time_col": "day"}, "s": {"fkeys": {"v": "v"}}, "rows": {}}
    file.with_suffix(".yaml").write_text(yaml.safe_dump({"tables": keys}))
    plain = Database.open(file).plain()
    schema = plain.graph.schema
    own, number = schema.nodes("v"), [name for name, _ in schema.node_types].index("v")
    ids = [int(name.removeprefix("v:")) for name in plain.node_ids.values[own]]
    values = np.asarray(plain.features.tables[number])[:, 0]
    assert np.argsort(ids).tolist() == np.argsort(values).tolist()
    assert "tables of other schemas than main are left out: raw" in caplog.text
    assert (np.asarray(plain.graph.node_time)[own] - np.array(ids) == 19723).all()


NUMBERED = {"val_timestamp": 20, "test_timestamp": 30}


@pytest.mark.parametrize(
    ("moments", "clock", "early"),
    [
        (NUMBERED, Clock(), 20),
        (NUMBERED, Clock("D"), 20),
        ({"val_timestamp": "1970-01-11", "test_timestamp": "1970-01-21"}, Clock("D"), 10),
    ],
)
def test_numbers_that_are_times_have_a_number_or_a_date_of_validation(moments, clock, early):
    made = folder_of(60, range(60))
    made["s"] = made["s"].append_column("x", pa.array([float(i) for i in range(60)]))
    base = Database.from_tables(made, moments | {"tables": KEYS})
    assert base.plain(clock=clock).feature_columns["s"].columns[0].rows == early
    sql = "SELECT k, timestamp, k % 2 FROM u, timestamps"
    asked = {"task_sql": sql, "entity": "u", "horizon": "2 days"}
    if moments is NUMBERED:
        with pytest.raises(jgs.InputError, match="must say val_timestamp, as a date"):
            base.plain(clock=clock, **asked)
    else:
        time = base.plain(clock=clock, **asked).label_table.time
        assert np.unique(time).tolist() == [0, 2, 4, 6, 8, 10, 20]


def test_times_that_are_text_may_have_zones():
    begin = np.datetime64("2024-01-01T00:00:00")
    made = folder_of(60, [f"{begin + np.timedelta64(i, 'D')}+02:00" for i in range(60)])
    moments = {"val_timestamp": "2024-01-20 23:00", "test_timestamp": "2024-01-31"}
    base = Database.from_tables(made, moments | {"tables": KEYS})
    sql = "SELECT k, timestamp, k % 2 FROM u, timestamps"
    asked = {"task_sql": sql, "entity": "u", "horizon": "2 days"}
    plain, seconds = base.plain(**asked), int(begin.astype(np.int64))
    last = np.asarray(plain.graph.node_time).max()
    assert (plain.time_unit, last) == (
        "s",
        seconds + (59 * 24 - 2) * 3600,
    )
    assert plain.label_table.time.min() == seconds - 3600  # after the first row
    view = layouts.call("text", partial(View.open, base, 0), asked)
    assert view.times("s")[:2].tolist() == [(seconds + h * 3600) * 10**6 for h in (-2, 22)]
    found = audit(base, trials=False, **asked)
    assert {each.kind for each in found} == {"hidden-time"}


def test_columns_may_have_any_names():
    made, names = folder_of(3, range(3)), ("id", "label", "split", "time", "label:a", " b")
    for name in names:
        made["u"] = made["u"].append_column(name, pa.array([1.0, 2.0, 4.0]))
    made["u"] = made["u"].append_column(" c ", pa.array([f"word {i}" for i in range(3)]))
    plain = Database.from_tables(made, {"tables": KEYS}).plain(
        rule=ColumnRule(max_categories=2)
    )
    assert plain.feature_columns["u"].names[:7] == ("x", *names)


def test_text_that_looks_like_numbers_is_told(caplog):
    made = folder_of(4, range(4))
    for name, texts in (("a", "1.5 2 NA 7"), ("zip", "007 1 2 3"), ("on", "1/2/24 3/4/24 - -")):
        made["u"] = made["u"].append_column(name, pa.array(texts.split()))
    Database.from_tables(made, {"tables": KEYS}).plain()
    said = " ".join(caplog.messages)
    assert (
        "a is text, though most of its values look like numbers or dates, as '1.5', and" in said
    )
    assert "on is text" in said
    assert "zip" not in said


def test_a_column_of_a_csv_file_has_the_type_of_all_its_rows(tmp_path):
    """DuckDB looks at the first 20,480 rows, and keeps six digits of a second."""
    rows = "".join(f"{i},{i % 7},{i % 5},2024-01-01 00:00:00\n" for i in range(21_000))
    rows += "21000,0.5,abc,2024-01-01 00:00:00.123456789\n"
    (tmp_path / "t.csv").write_text(f"to,a,b,day\n{rows}")
    (tmp_path / "s.csv").write_text("id,x\n1,2\n")
    keys = {"t": {"time_col": "day", "fkeys": {"to": "s"}}, "s": {"pkey": "id"}}
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"tables": keys}))
    base = Database.open(tmp_path)
    assert [*base.columns["t"].values()] == ["BIGINT", "DOUBLE", "VARCHAR", "TIMESTAMP_NS"]
    plain = base.plain()
    assert np.asarray(plain.graph.node_time).max() % 10**9 == 123_456_789
    assert [c.kind for c in plain.feature_columns["t"].columns] == ["standard", "category"]


def test_keys_of_any_type_are_names_that_differ(caplog):
    keys = {"t": {"pkey": "k"}, "s": {"fkeys": {"to": "t", "n": "u"}}, "u": {"pkey": "k"}}
    for values, kind in (
        (["12345678901234567.01", "12345678901234567.02"], "DECIMAL(19, 2)"),
        (["\\x00\\x01", "ab"], "BLOB"),
        (["2024-01-01 00:00:00.000000001", "2024-01-02 00:00:00"], "TIMESTAMP_NS"),
    ):
        own = duckdb.sql(f"SELECT unnest($v)::{kind} AS k", params={"v": values})
        some = duckdb.sql(
            f"SELECT unnest($v)::{kind} AS \"to\", 'nan'::DOUBLE AS n", params={"v": values}
        )
        tables = {
            "t": own.to_arrow_table(),
            "s": some.to_arrow_table(),
            "u": pa.table({"k": [1]}),
        }
        plain = Database.from_tables(tables, {"tables": keys}).plain()
        assert plain.node_ids[np.arange(2)].tolist() == [f"t:{value}" for value in values]
        assert plain.graph.num_edges == 4
    assert "name no row" not in caplog.text  # NaN is no value
