"""What `jgs audit` tries of jgs itself: faults that it must see; the command."""

import shutil
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from databases import TEST, VAL, Made

from jgs.audit import TRIALS, audit, trials
from jgs.audit.__main__ import main
from jgs.audit.view import View
from jgs.data import Database, layouts
from jgs.data.database import graph
from jgs.data.values import SPLITS
from jgs.sampling import Context
from jgs.sampling.contexts import ByVisits
from jgs.train.loop.data import Data


@pytest.fixture
def shop(data_folder):
    return data_folder / "shop_db"


def tried(kind, shop, task="user-churn", **options):
    opened = partial(View.open, Database.open(shop), 0, None)
    return list(TRIALS[kind].find(layouts.call("shop", opened, {"db_task": task, **options})))


@pytest.fixture
def early(monkeypatch):
    """Rows are there 40 days before their time."""
    made = graph.Graph.from_relations

    def shifted(counts, pairs, node_time, **options):
        node_time = {name: times - 40 for name, times in node_time.items()}
        return made(counts, pairs, node_time=node_time, **options)

    monkeypatch.setattr(graph.Graph, "from_relations", shifted)


def test_draws_at_the_rows_own_time_are_no_finding(shop):
    assert not tried("late-draw", shop, "event-kind")
    assert not tried("late-draw", shop, inclusive="events, notes")


def test_draws_at_a_time_in_nanoseconds_are_no_finding(tmp_path):
    made, own = Made(2), tmp_path / "made/tasks/own"
    events = made.tables["events"]
    events["time"] = events["time"].astype("M8[ns]") + np.arange(len(made.at)) % 1000
    made.write(tmp_path / "made")
    own.mkdir(parents=True)
    columns = {"entity_table": "events", "time_col": "time", "target_col": "y"}
    said = {"task_type": "binary_classification", "entity_col": "event_id"} | columns
    (own / "manifest.yaml").write_text(yaml.safe_dump(said))
    labels = {name: events[name] for name in ("event_id", "time")} | {"y": made.at % 2}
    split = np.searchsorted([VAL, TEST], events["time"].astype("M8[us]"), "right")
    for number, name in enumerate(SPLITS):
        rows = pa.table(labels).filter(pa.array(split == number))
        pq.write_table(rows, own / f"{name}.parquet")
    assert not tried("late-draw", tmp_path / "made", "own")
    assert not [
        f
        for f in audit(tmp_path / "made", trials=False, db_task="own")
        if f.kind == "unborn-entity"
    ]


def test_a_later_draw_is_found(early, shop):
    (found, *_) = tried("late-draw", shop)
    assert found[0] == "error"
    assert "are not before their moment" in found[2]


def test_a_later_draw_of_a_fact_that_is_an_edge_is_found(monkeypatch):
    base, options = (made := Made(0)).base, {"facts": "edges", "task_sql": made.sql}

    def found():
        view = layouts.call("made", partial(View.open, base, 0, None), made.options | options)
        assert "events" not in dict(view.plain.graph.schema.node_types)
        return list(TRIALS["late-draw"].find(view))

    assert not found()
    times = graph.edge_times

    def shifted(*of):
        early = {r: each // 2 for r, each in times(*of).items()}  # as early as users allow
        return {r: np.where(each > 0, each, 2 * each) for r, each in early.items()}

    monkeypatch.setattr(graph, "edge_times", shifted)
    assert found()


def test_late_rows_of_contexts_are_found(early, monkeypatch, shop):
    ways = [({"*": 6}, {"*": 4}), ByVisits(9, 3)]
    for way in ways:  # in some contexts of walks a row's parent is left out
        monkeypatch.setattr(trials, "make_sampler", lambda *_, of=way, **__: Context(9, of))
        found = [text for _, _, text in tried("late-draw", shop)]
        assert "Context" in found[0]
    monkeypatch.undo()
    for way in ways:
        monkeypatch.setattr(trials, "make_sampler", lambda *_, of=way, **__: Context(9, of))
        assert not tried("late-draw", shop)


def test_a_statistic_of_later_rows_is_found(monkeypatch, shop):
    assert not tried("late-statistic", shop)
    monkeypatch.setattr(graph, "_before_validation", lambda *_: {})
    found = {where: text for _, where, text in tried("late-statistic", shop)}
    assert found.keys() == {"events", "notes"}
    assert "amount" in found["events"]


def test_later_rows_that_change_predictions_are_found(early, monkeypatch, shop):
    monkeypatch.setattr(Data, "_early", lambda data, features, rank: features)
    made, moved = (text for _, _, text in tried("late-influence", shop))
    assert "other scales" in made
    assert "predictions moved" in moved


def test_the_command_tries_all(shop, capsys):
    assert main(["--dataset", str(shop), "--data-options", "db_task=user-churn"]) == 0
    out = capsys.readouterr().out.splitlines()
    said = "14 kinds of leaks were looked for, and 3 were tried: 0 errors, 0 warnings, 0 notes"
    assert out[-1] == said


def test_a_label_in_two_splits_is_found_by_the_command(shop, tmp_path, capsys):
    shutil.copytree(shop, tmp_path / "shop_db")
    task = tmp_path / "shop_db" / "tasks" / "user-churn"
    pq.write_table(pq.read_table(task / "val.parquet"), task / "test.parquet")
    asked = ["--dataset", str(tmp_path / "shop_db"), "--data-options", "db_task=user-churn"]
    assert main([*asked, "--no-trials"]) == 0  # those of val are no labels of train
    pq.write_table(pq.read_table(task / "train.parquet")[:5], task / "val.parquet")
    assert main([*asked, "--no-trials"]) == 1
    assert "error equal-rows: the task user-churn of shop_db" in capsys.readouterr().out
    pq.write_table(pq.read_table(task / "train.parquet")[:0], task / "val.parquet")
    assert not tried("late-influence", tmp_path / "shop_db")


@pytest.mark.parametrize(
    "argv", [[], ["--dataset", "shop"], ["--seed", "x"], ["--seed", "-1"], ["--runs", "a"]]
)
def test_wrong_use_is_one_line(argv, shop, capsys):
    argv = [str(shop) if word == "shop" else word for word in argv]
    assert main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_text_of_dates_where_times_are_numbers_is_refused():
    made = Made(0)
    for table, column in (("events", "time"), ("users", "joined")):
        times = made.tables[table][column].astype("M8[s]").astype(np.int64)
        made.tables[table][column] = times
    with pytest.raises(ValueError, match="or a number where times are numbers"):
        made.base.plain()


def test_recommendations_and_several_labels_are_audited(shop):
    """By how many there are of a row."""
    base = Database.open(shop)
    view = layouts.call("shop", partial(View.open, base, 0, None), {"db_task": "user-item"})
    links = base.plain(db_task="user-item").link_table
    assert view.label.sum() == links.src.size
    assert view.label.max() > 1
    sql = "SELECT user_id, timestamp, [1, 0, user_id % 2] AS l FROM users, timestamps"
    of = {"task_sql": sql, "entity": "users", "horizon": "30 days", "trials": False}
    assert not [each for each in audit(shop, **of) if each.severity == "error"]
    assert not tried("late-influence", shop, "user-item")
