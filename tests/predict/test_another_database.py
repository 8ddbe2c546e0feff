"""Predictions on a database of a later day, whose columns are encoded as the run's were."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from refusals import command_refused

import jgs
from jgs.data import Database
from jgs.data.column_values import Clock
from jgs.data.stored import columns_of
from jgs.dist.communicators.comm import Alone
from jgs.predict.__main__ import main as predict
from jgs.predict.saved import later_data
from jgs.train.__main__ import main as train
from jgs.train.config import Config

START = int(np.datetime64("2024-01-01", "s").astype(int))
KEYS = {
    "users": {"pkey": "name"},
    "sales": {"time_col": "second", "fkeys": {"user": "users", "via": "users"}},
}
SQL = """
    WITH s AS (SELECT *, epoch_ms(second * 1000) AS day FROM sales)
    SELECT u.name, t.timestamp, (SELECT count(*) FROM s WHERE s."user" = u.name
    AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') > 2 AS busy
    FROM timestamps t, users u
"""
TASK = {
    "kind": "forecast", "task_type": "binary_classification", "timedelta": "15 days",
    "entity_table": "users", "entity_col": "name", "target_col": "busy", "sql": SQL,
    "time_col": "timestamp", "remove_columns": [["sales", "via"]],
}  # fmt: skip
NAMES = [f"{i:03d}" for i in range(26)]


def written(folder, days, users, lacking=()):
    """Users and sales of so many days: those of fewer days are among those of more. Times are
    seconds, names are text, and the task hides a key."""
    rng = np.random.default_rng(0)
    day, who = np.sort(rng.integers(0, 200, 900)), rng.integers(0, 20, 900)
    price = rng.random(900) + day / 50
    kind = np.where(day < 120, np.array(["a", "b"])[who % 2], "new")
    some = day < days
    made = {
        "users": {"name": NAMES[:users], "age": np.arange(users) % 7},
        "sales": {
            "second": START + day[some] * 86_400,
            "user": [NAMES[i] for i in who[some]],
            "via": [NAMES[i % 20] for i in who[some] + 1],
            "price": price[some],
            "kind": kind[some],
        },
    }
    made["sales"] = {name: each for name, each in made["sales"].items() if name not in lacking}
    (folder / "db").mkdir(parents=True)
    for name, columns in made.items():
        pq.write_table(pa.table(columns), folder / "db" / f"{name}.parquet")
    about = {"val_timestamp": "2024-03-25", "test_timestamp": "2024-04-15", "tables": KEYS}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(about))
    (folder / "tasks" / "busy").mkdir(parents=True)
    (folder / "tasks" / "busy" / "manifest.yaml").write_text(yaml.safe_dump(TASK))
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folder of a run, that of its database, and that of a later one."""
    folder = tmp_path_factory.mktemp("later")
    early, late = written(folder / "early", 125, 20), written(folder / "late", 200, 26)
    flags = "--db-task busy --model trsage --fanouts *=-1 *=-1 --batch-size 64 --epochs 1"
    more = f"--hidden 8 --no-progress --dataset {early} --run-dir {folder / 'run'}"
    clock = "--data-options time_unit=ms time_scale=1000"
    assert train(f"{flags} {more} {clock}".split()) == 0
    return folder / "run", early, late


def test_old_questions_have_old_answers(places):
    run_dir, _, late = places
    own, other = jgs.open_run(run_dir), jgs.open_run(run_dir, dataset=str(late))
    assert (own.num_nodes(), other.num_nodes()) == (20 + 540, 26 + 900)
    nodes = {run: np.arange(20) + run.schema.nodes("users").start for run in (own, other)}
    for day in ("2024-02-01", "2024-04-20"):
        found = [run.logits(nodes[run], time=day) for run in (own, other)]
        np.testing.assert_allclose(*found, atol=1e-5)
    after = [run.logits(nodes[run], time="2024-07-20") for run in (own, other)]
    assert abs(after[0] - after[1]).max() > 1e-3  # the later one has more to see


def test_the_table_of_a_task_has_the_keys_as_they_are(places, tmp_path):
    out = tmp_path / "p.csv"
    flags = f"--run-dir {places[0]} --split test --task-table --out {out}"
    assert predict(flags.split()) == 0
    head, *rows = (line.split(",") for line in out.read_text().splitlines())
    assert head == ["name", "timestamp", "busy"]
    assert sorted(row[0] for row in rows) == NAMES[:20]
    assert {row[1] for row in rows} == {"2024-04-15 00:00:00.000"}


def test_models_without_types_see_no_hidden_key(places):
    clock = {"time_unit": "ms", "time_scale": 1000}
    own = Database.open(places[1]).plain(db_task="busy", hide="users.age", clock=Clock(**clock))
    options = tuple(f"{name}={value}" for name, value in clock.items())
    config = Config(dataset=str(places[2]), model="sage", data_options=options)
    relations = json.loads(json.dumps(own.graph.schema.relations))
    shape = {"moments": True, "num_features": 3, "time_unit": "ms", "relations": relations}
    data, _ = later_data(config, shape | columns_of(own), Alone())
    assert data.schema.relations == own.graph.schema.relations
    shape["relations"] = [*relations, ["users", "friend", "users"]]
    with pytest.raises(jgs.InputError, match="the relations that the run was trained with"):
        later_data(config, shape | columns_of(own), Alone())


def test_the_command_and_its_refusals(places, tmp_path, capsys):
    run_dir, _, late = places
    out = tmp_path / "p.csv"
    flags = f"--run-dir {run_dir} --out {out} --at 2024-07-01 --dataset"
    assert predict([*flags.split(), str(late)]) == 0
    rows = out.read_text().splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == [f"users:{name}" for name in NAMES]
    bad = written(tmp_path / "bad", 200, 20, lacking=("price",))
    for place, says in ((bad, "no price"), (tmp_path / "none", "must exist")):
        command_refused(capsys, says, predict, [*flags.split(), str(place)])
    more = f"--run-dir {run_dir} --out {out} --split test --dataset {late}".split()
    command_refused(capsys, "--split must be for a run of another task", predict, more)
