"""Predictions on a database of a later day, whose columns are encoded as the run's were."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from refusals import command_refused

import jgs
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train

START = np.datetime64("2024-01-01", "us")
KEYS = {
    "users": {"pkey": "name"},
    "sales": {"time_col": "day", "fkeys": {"user": "users"}},
}
SQL = """
    SELECT u.name, t.timestamp, (SELECT count(*) FROM sales s WHERE s."user" = u.name
    AND s.day > t.timestamp AND s.day <= t.timestamp + INTERVAL '{timedelta}') > 2 AS busy
    FROM timestamps t, users u
"""


def written(folder, days, users, lacking=()):
    """Users and sales of so many days: those of fewer days are among those of more."""
    rng = np.random.default_rng(0)
    day, who = np.sort(rng.integers(0, 200, 900)), rng.integers(0, 20, 900)
    price = rng.random(900) + day / 50
    kind = np.where(day < 120, np.array(["a", "b"])[who % 2], "new")
    some = day < days
    made = {
        "users": {"name": [f"u{i}" for i in range(users)], "age": np.arange(users) % 7},
        "sales": {
            "day": START + day[some].astype("m8[D]"),
            "user": [f"u{i}" for i in who[some]],
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
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folder of a run, that of its database, and that of a later one."""
    folder = tmp_path_factory.mktemp("later")
    early, late = written(folder / "early", 125, 20), written(folder / "late", 200, 26)
    (folder / "busy.sql").write_text(SQL)
    flags = "--entity users --model trsage --fanouts *=-1 *=-1 --batch-size 64 --epochs 1"
    more = f"--hidden 8 --no-progress --task-sql {folder}/busy.sql --dataset {early}"
    asked = [
        *flags.split(),
        *more.split(),
        "--horizon",
        "15 days",
        "--run-dir",
        str(folder / "run"),
    ]
    assert train(asked) == 0
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


def test_the_command_and_its_refusals(places, tmp_path, capsys):
    run_dir, _, late = places
    out = tmp_path / "p.csv"
    flags = f"--run-dir {run_dir} --out {out} --at 2024-07-01 --dataset"
    assert predict([*flags.split(), str(late)]) == 0
    rows = out.read_text().splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == [f"users:u{i}" for i in range(26)]
    bad = written(tmp_path / "bad", 200, 20, lacking=("price",))
    for place, says in ((bad, "no price"), (tmp_path / "none", "must exist")):
        command_refused(capsys, says, predict, [*flags.split(), str(place)])
    more = f"--run-dir {run_dir} --out {out} --split test --dataset {late}".split()
    command_refused(capsys, "--split must be for a run of another task", predict, more)
