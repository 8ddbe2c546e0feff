"""`--task nodes` with labels at moments: what a leak would tell, what the past tells; ranks."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from refusals import command_refused as refused
from small_data import moments, thirds, typed_moments
from small_runs import comm_of, result, started, trainer, words

import jgs
from jgs import Graph
from jgs.data import Database, Dataset, LabelTable
from jgs.data.column_values import Clock
from jgs.graph import as_device
from jgs.partition.folder import write_parts
from jgs.predict.__main__ import main as predict
from jgs.report import write_report
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import data
from jgs.train.loop.open_data import fingerprint
from jgs.train.tasks.task import open_job

train = trainer("""
    --hidden 16 --fanouts 1 --batch-size 60 --epochs 8 --lr 2e-2 --no-progress --dropout 0
    --latest
""")


def leaking():
    """From its moment on, a node's edges tell its label; earlier edges come from any node."""
    rng = np.random.default_rng(0)
    at, labels = 1000 + rng.permutation(900) * 10, rng.integers(0, 3, 900)
    dst = np.tile(np.arange(900), 8)
    age = np.repeat([-40, -30, -20, -10, 0, 10, 20, 30], 900)
    kind = np.where(age < 0, rng.integers(0, 3, dst.size), labels[dst])
    src = rng.integers(0, 900 // 3, dst.size) * 3 + kind
    graph = Graph.from_edges(src, dst, 900, edge_time=at[dst] + age)
    table = LabelTable.from_arrays(np.arange(900), at, labels)
    features = np.eye(3, dtype=np.float32)[np.arange(900) % 3]
    return Dataset.from_arrays(graph, features, None, None, label_table=table, name="leak")


@pytest.fixture(scope="module")
def learned(saved, tmp_path_factory):
    """The folder of a run on `moments`."""
    run_dir = tmp_path_factory.mktemp("moments") / "run"
    train(saved(moments), run_dir)
    return run_dir


def test_the_future_is_not_learned(saved, tmp_path, capsys):
    found = train(saved(leaking), tmp_path / "run")
    assert found["test_accuracy"] < 0.5  # by chance a third; else 1
    data = leaking()
    time, at = np.asarray(data.graph.edge_time), data.label_table.time
    seen, early = (f"{(time < end).sum():,}" for end in (at.max(), at.min()))
    line = f"{seen} lie before the last moment of the labels, and {early} before the first"
    assert line in capsys.readouterr().err


def test_a_run_says_that_no_edge_lies_before_its_labels(tmp_path):
    """Such are milliseconds beside seconds."""
    data = moments()
    later = data.graph._with(edge_time=as_device(np.asarray(data.graph.edge_time) + 10**12))
    dataclasses.replace(data, graph=later).save(tmp_path / "data")
    job, _ = started(dataset=str(tmp_path / "data"), fanouts=(1,), batch_size=60)
    assert "no edge lies before a moment of the labels, 80" in job.about[-1]


def test_the_past_is_learned_and_predicted(learned, tmp_path, capsys):
    """Predictions of the test's rows are those that were judged, whatever the batches."""
    judged = result(learned)["test_accuracy"]
    assert judged > 0.9
    run, table = jgs.open_run(learned), moments().label_table
    nodes, time = run.rows("test")
    labels = table.labels[table.split == 2]
    np.testing.assert_array_equal(nodes, table.nodes[table.split == 2])
    told = run.predict(nodes, time=time)
    assert (told.prediction == labels).mean() == pytest.approx(judged)
    some = run.predict(nodes[[7, 3]], time=time[[7, 3]])
    np.testing.assert_allclose(some.probability, told.probability[[7, 3]], rtol=1e-5)
    argv = words("--split test --no-progress --run-dir", learned, "--out", tmp_path / "out.npy")
    assert predict(argv) == 0
    rows = np.load(tmp_path / "out.npy")
    assert rows.dtype.names == ("node", "time", "prediction", "probability")
    for name, want in (("node", nodes), ("time", time), ("prediction", told.prediction)):
        np.testing.assert_array_equal(rows[name], want)
    refused(capsys, "--at must be for other rows than a split's", predict, [*argv, "--at", "7"])
    refused(capsys, "be for exact rows", predict, [*argv, "--eval-memory", "9"])
    assert write_report(learned, split="val")["nodes"] == (table.split == 1).sum()


def test_numbers_by_the_command(saved, tmp_path, capsys):
    found = train(saved(moments, True), tmp_path / "run", "--model tgat --heads 2")
    assert found["metric"] == "RMSE"
    assert found["val_accuracy"] < 1.0  # the deviation is 2.04
    asked, out = tmp_path / "nodes.txt", tmp_path / "out.csv"
    argv = words("--no-progress --run-dir", tmp_path / "run", "--out", out)
    refused(capsys, "--at must say the time", predict, argv)
    argv += ["--nodes", str(asked)]
    asked.write_text("3\n7\n")
    says = "must hold a node id and a time, without --at, from 0 to 59, one a line"
    refused(capsys, says, predict, argv)
    assert predict([*argv, "--at", "30000"]) == 0
    head, *rows = (line.split(",") for line in out.read_text().splitlines())
    assert head == ["node", "value"]
    assert [node for node, _ in rows] == ["3", "7"]
    asked.write_text("7 20000\n3 30000\n7 30000\n")
    assert predict(argv) == 0
    head, earlier, *later = (line.split(",") for line in out.read_text().splitlines())
    assert head == ["node", "time", "value"]
    assert earlier[:2] == ["7", "20000"]
    assert earlier[2] != rows[1][1]
    assert later == [[node, "30000", value] for node, value in rows]


def test_a_run_knows_its_table():
    """Every column of it, so that no run goes on with other rows or labels."""
    data = moments()
    table, known = data.label_table, fingerprint(data)
    for name, column in table._asdict().items():
        other = dataclasses.replace(data, label_table=table._replace(**{name: column[::-1]}))
        assert fingerprint(other) != known


def test_classes_are_those_of_the_table(tmp_path):
    """Also where the nodes have labels of their own, of fewer classes and with names."""
    data, of_nodes = moments(), np.arange(60) % 2
    both = Dataset.from_arrays(
        data.graph, data.features, of_nodes, thirds(60), class_names=("a", "b"),
        label_table=data.label_table,
    )  # fmt: skip
    both.save(tmp_path / "both")
    train(tmp_path / "both", tmp_path / "run", "--epochs 1")
    run = jgs.open_run(tmp_path / "run")
    assert run.num_classes == 3
    assert run.class_names is None
    with pytest.raises(jgs.InputError, match="of a run without labels at moments"):
        run.split("train")
    # A graph that is refused changes nothing for the next question.
    told = run.predict([3], time=9_000).probability
    untimed = Graph.from_edges([0], [1], 60)
    with pytest.raises(jgs.InputError, match="times"):
        run.predict([3], time=9_000, graph=untimed)
    assert run.predict([3], time=9_000).probability == told


def test_more_ranks_than_rows_to_judge(tmp_path):
    """Three rows each, on four ranks, of a model that has learned nothing."""
    data, found = moments(numbers=True), []
    split = np.repeat([0, 1, 2], [894, 3, 3]).astype(np.int8)
    data = dataclasses.replace(data, label_table=data.label_table._replace(split=split))
    write_parts(tmp_path / "parts", data, np.arange(60) % 4, 4, method="random")
    of = {"partition": str(tmp_path / "parts"), "batch_size": 16, "fanouts": (4,), "hidden": 8}
    for ranks in (1, 4):
        job, params = started(ranks, **of)
        found.append([job.metric(params, name) for name in ("val", "test")])
        job.close()
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_lists_are_several_labels_of_a_row(data_folder, tmp_path):
    """0, 1, or not known; they train, and lists of other forms are refused."""
    sql = """
        SELECT u.user_id, t.timestamp, [(count(*) > 2)::INT, 1, {other}] AS labels
        FROM timestamps t, users u JOIN events e ON e.user_id = u.user_id
        AND e.time > t.timestamp AND e.time <= t.timestamp + INTERVAL '{{timedelta}}'
        GROUP BY u.user_id, t.timestamp
    """
    of = {"entity": "users", "horizon": "30 days"}
    shop = data_folder / "shop_db"
    base, known = Database.open(shop), "if(u.user_id % 2 = 0, NULL, 0)"
    table = base.plain(task_sql=sql.format(other=known), **of).label_table
    assert table.labels.shape == (table.nodes.size, table.num_classes) == (len(table.nodes), 3)
    np.testing.assert_array_equal(np.isnan(table.labels[:, 2]), table.nodes % 2 == 0)
    assert set(table.labels[:, 0]) == {0, 1}
    (tmp_path / "several.sql").write_text(sql.format(other=known))
    data = ("entity=users", "horizon=30 days", f"task_sql={tmp_path}/several.sql")
    job, params = started(
        dataset=str(shop), data_options=data, model="trsage", fanouts=("*=3",), hidden=8,
        batch_size=64,
    )  # fmt: skip
    assert job.objective.num_outputs == 3
    assert 0 <= job.metric(params, "test") <= 1
    job.close()
    whole = "[(count(*) > 2)::INT, 1, 0]"
    for other, says in (
        ("[0, 1, 2]", "labels 0, 1 or NaN"),
        ("['a', 'b']", "must be of 0 and 1"),
        ("[0, 1][:1 + u.user_id % 2]", "lists of 1 to 2"),
    ):
        with pytest.raises(jgs.InputError, match=says):
            base.plain(task_sql=sql.format(other=0).replace(whole, other), **of)


def aged(late):
    """Items with features that come at times, and users; what comes late is `late` times as
    large, as is the amount of late events."""
    rng = np.random.default_rng(0)
    events = {("item", "of", "user"): (rng.integers(0, 80, 900), rng.integers(0, 30, 900))}
    born = np.sort(rng.integers(0, 12_000, 80))
    times = dict.fromkeys(events, np.maximum(born[events["item", "of", "user"][0]], 5))
    graph = Graph.from_relations(
        {"user": 30, "item": 80}, events, node_time={"item": born}, edge_time=times
    )
    at = np.sort(rng.integers(3_000, 11_000, 600))
    table = LabelTable.from_arrays(rng.integers(0, 30, 600), at, np.arange(600) % 2)
    judged = at[table.split == 1].min()
    time = np.asarray(graph.edge_time)
    amount = rng.standard_normal(time.size) * np.where(time < judged, 1, late)
    item = rng.standard_normal((80, 2)) * np.where(born < judged, 1, late)[:, None]
    rows = {"item": item.astype(np.float32), "user": np.ones((30, 1), np.float32)}
    graph = graph._with(edge_columns={"amount": as_device(amount.astype(np.float32))})
    return Dataset.from_arrays(graph, rows, None, None, label_table=table, name="aged")


@pytest.mark.parametrize("parts", [0, 2])
def test_what_is_judged_scales_nothing(parts, tmp_path):
    found = []
    for late in (1, 1000):
        data, folder = aged(late), str(tmp_path / str(late))
        data.save(folder)
        where = {"dataset": folder}
        if parts:
            of_parts = tmp_path / f"parts {late}"
            write_parts(of_parts, data, np.arange(110) % parts, parts, method="random")
            where = {"partition": str(of_parts)}
        ranks = max(1, parts)
        of = {"model": "rgat", "fanouts": ("*=3",), "hidden": 8, "batch_size": 60 // ranks}
        job = open_job(Config(ranks=ranks, **where, **of), comm_of(ranks))
        found.append((job.data.types.scales, job.edges))
    assert found[0] == found[1]
    assert found[0][1].columns == ("amount",)


def test_dates_of_rows_are_read_from_the_moment(tmp_path):
    """What is learned of a row's age in some years holds years later."""
    rng, start = np.random.default_rng(0), np.datetime64("2015-01-01", "us")
    late = np.arange(600) >= 400  # they sign and are asked for ten years later
    signed = rng.integers(0, 1500, 600) + 3650 * late
    asked = signed + rng.integers(1, 1000, 600)
    tables = {
        "users": {"id": np.arange(600), "signed": start + signed.astype("m8[D]")},
        "visits": {"day": start + asked.astype("m8[D]"), "user": np.arange(600)},
    }
    keys = {
        "users": {"pkey": "id"},
        "visits": {"time_col": "day", "fkeys": {"user": "users"}},
    }
    tables = {name: pa.table(columns) for name, columns in tables.items()}
    about = {"tables": keys, "val_timestamp": "2019-01-01"}
    plain = Database.from_tables(tables, about).plain(clock=Clock("D"))
    time = (start.astype("M8[D]").astype(int) + asked).astype(np.int64)
    split = np.where(late, 1 + np.arange(600) % 2, 0)
    nodes = plain.graph.schema.nodes("users").start + np.arange(600)
    table = LabelTable.from_arrays(nodes, time, (asked - signed < 500).astype(int), split)
    dataclasses.replace(plain, label_table=table).dataset().save(tmp_path / "data")
    flags = "--model trsage --fanouts *=2 --epochs 12 --lr 2e-2"
    assert train(tmp_path / "data", tmp_path / "run", flags)["test_accuracy"] > 0.9


def test_a_run_with_other_scales_is_not_resumed(saved, tmp_path, monkeypatch, capsys):
    """As one of a version that took them from other rows."""
    flags = "--model trsage --fanouts *=2 --epochs 1"
    train(saved(typed_moments), tmp_path / "run", flags)
    more = words("--resume --epochs 2 --run-dir", tmp_path / "run")
    real = data.scales_of
    monkeypatch.setattr(
        data, "scales_of", lambda sums: [[2 * s for s in t] for t in real(sums)]
    )
    refused(capsys, "must scale what it reads ... other scales", main, more)
    monkeypatch.undo()
    assert main(more) == 0
