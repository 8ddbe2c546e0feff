"""Three databases as people have them: a shop, a clinic and a forum, trained by the command."""

import csv
import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import yaml
from refusals import command_refused
from small_runs import command, of_ranks, result, resumed, words

import jgs
from jgs.partition.__main__ import main as partition
from jgs.predict.__main__ import main as predict
from jgs.train.loop import checkpoint, folder

FLAGS = """
    --model trsage --norm layer --fanouts *=6 *=6 --hidden 16 --batch-size 100 --lr 2e-2
    --no-progress
"""
START, DAYS = np.datetime64("2024-01-01", "us"), 210
SPLITS = {"val_timestamp": "2024-05-15", "test_timestamp": "2024-06-15"}


def at(days):
    """Moments so many days after the start; nan is none."""
    known = ~np.isnan(days := np.asarray(days, float))
    moments = START + (np.where(known, days, 0) * 86_400).astype("m8[s]")
    return pa.array(moments, mask=~known)


def some(rng, values, share=0.1):
    """The values, of which a share is missing."""
    return [
        None if gone else each
        for each, gone in zip(values, rng.random(len(values)) < share, strict=True)
    ]


def inserted(base, tables):
    for name, columns in tables.items():
        rows = pa.table(columns).to_pylist()
        marks = ", ".join("?" * len(columns))
        own = [[str(v) if hasattr(v, "year") else v for v in row.values()] for row in rows]
        base.executemany(f"INSERT INTO {name} VALUES ({marks})", own)
    base.commit()
    base.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A DuckDB file with all keys: users who have bought much do not come back
    soon."""
    place, rng, users = tmp_path_factory.mktemp("shop"), np.random.default_rng(0), 150
    email = [f"u{i}@example.org" for i in range(users)]
    orders, lines = (
        {"number": [], "email": [], "placed": []},
        {"number": [], "sku": [], "n": []},
    )
    for name in email:
        day = rng.integers(0, 60)
        while day < DAYS:
            orders["number"].append(number := 1000 + len(orders["number"]))
            orders["email"].append(name)
            orders["placed"].append(day)
            lines["number"].append(number)
            lines["sku"].append(f"sku-{number % 12}")
            lines["n"].append(many := int(rng.integers(1, 8)))
            day += rng.integers(45, 70) if many > 5 else rng.integers(3, 15)
    base = duckdb.connect(str(place / "shop.duckdb"))
    base.execute("""
        CREATE TABLE users(email VARCHAR PRIMARY KEY, city VARCHAR);
        CREATE TABLE items(sku VARCHAR PRIMARY KEY, price DECIMAL(8, 2), odd BOOLEAN);
        CREATE TABLE orders(number BIGINT PRIMARY KEY, email VARCHAR REFERENCES users(email),
            placed TIMESTAMP);
        CREATE TABLE lines(number BIGINT REFERENCES orders(number),
            sku VARCHAR REFERENCES items(sku), n INTEGER);
    """)
    tables = {
        "users": {"email": email, "city": some(rng, ["Rome", "Oslo"] * (users // 2))},
        "items": {
            "sku": [f"sku-{i}" for i in range(12)],
            "price": [5.0 + i for i in range(12)],
            "odd": [i % 2 == 1 for i in range(12)],
        },
        "orders": orders | {"placed": at(orders["placed"])},
        "lines": lines,
    }
    inserted(base, tables)
    (place / "shop.yaml").write_text(
        yaml.safe_dump(SPLITS | {"tables": {"orders": {"time_col": "placed"}}})
    )
    (place / "churn.sql").write_text("""
        SELECT u.email, t.timestamp, NOT EXISTS (SELECT * FROM orders o
            WHERE o.email = u.email AND o.placed > t.timestamp
            AND o.placed <= t.timestamp + INTERVAL '{timedelta}') AS churn
        FROM timestamps t, users u WHERE EXISTS (SELECT * FROM orders o
            WHERE o.email = u.email AND o.placed <= t.timestamp
            AND o.placed > t.timestamp - INTERVAL '{timedelta}')
    """)
    return place / "shop.duckdb"


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """An SQLite file: composite and text keys, gaps everywhere, tables without times. What a
    patient costs is what the diagnoses of the patient's visits cost."""
    place, rng, people = tmp_path_factory.mktemp("clinic"), np.random.default_rng(1), 120
    wards = [("n" if i % 2 else "s", i) for i in range(8)]
    kind = rng.integers(0, 6, people)
    who = np.repeat(np.arange(people), 8)
    day = rng.uniform(0, DAYS, who.size)
    day[::50] = np.nan  # a visit that nobody dated
    cost = np.where(kind[who] < 3, 10.0, 200.0) * rng.uniform(0.8, 1.2, who.size)
    base = sqlite3.connect(place / "clinic.sqlite")
    base.executescript("""
        CREATE TABLE wards(wing TEXT, floor INTEGER, beds INTEGER, PRIMARY KEY (wing, floor));
        CREATE TABLE doctors(name TEXT PRIMARY KEY, head TEXT REFERENCES doctors(name),
            wing TEXT, floor INTEGER, FOREIGN KEY (wing, floor) REFERENCES wards(wing, floor));
        CREATE TABLE diagnoses(code TEXT PRIMARY KEY, title TEXT, chronic BOOLEAN);
        CREATE TABLE patients(clinic TEXT, record INTEGER, born DATE, weight REAL,
            PRIMARY KEY (clinic, record));
        CREATE TABLE visits(clinic TEXT, record INTEGER, day TIMESTAMP,
            doctor TEXT REFERENCES doctors(name), code TEXT REFERENCES diagnoses(code),
            cost REAL, FOREIGN KEY (clinic, record) REFERENCES patients(clinic, record));
    """)
    names, codes = [f"Dr {letter}" for letter in "ABCDEFG"], [f"J{i}.1" for i in range(6)]
    clinics = ["north" if i % 2 else "south" for i in range(people)]
    tables = {
        "wards": {
            "wing": [w for w, _ in wards],
            "floor": [f for _, f in wards],
            "beds": some(rng, range(8), 0.3),
        },
        "doctors": {
            "name": names,
            "head": [None, *names[:1] * 6],
            "wing": some(rng, [w for w, _ in wards[:7]], 0.3),
            "floor": [f for _, f in wards[:7]],
        },
        "diagnoses": {
            "code": codes,
            "title": some(rng, [f"a long title {i}" for i in range(6)], 0.3),
            "chronic": [1, 0, None, 1, 0, 1],
        },
        "patients": {
            "clinic": clinics,
            "record": [i // 2 for i in range(people)],
            "born": some(rng, [f"19{i % 90 + 10}-01-31" for i in range(people)], 0.3),
            "weight": some(rng, rng.normal(70, 9, people).tolist(), 0.3),
        },
        "visits": {
            "clinic": [clinics[i] for i in who],
            "record": some(rng, [int(i) // 2 for i in who]),
            "day": at(day),
            "doctor": some(rng, [names[i % 7] for i in who]),
            "code": some(rng, [codes[kind[i]] for i in who]),
            "cost": some(rng, cost.tolist()),
        },
    }
    inserted(base, tables)
    (place / "clinic.yaml").write_text(
        yaml.safe_dump(SPLITS | {"tables": {"visits": {"time_col": "day"}}})
    )
    (place / "cost.sql").write_text("""
        SELECT v.clinic, v.record, t.timestamp, CAST(avg(v.cost) AS DOUBLE) AS cost
        FROM timestamps t JOIN visits v ON v.day > t.timestamp
            AND v.day <= t.timestamp + INTERVAL '{timedelta}'
        WHERE v.record IS NOT NULL AND v.cost IS NOT NULL GROUP BY ALL
    """)
    return place / "clinic.sqlite"


@pytest.fixture(scope="module")
def forum(tmp_path_factory):
    """A folder of CSV: posts answer posts, and have text; each user writes on two boards."""
    place, rng, users, boards = (
        tmp_path_factory.mktemp("forum"),
        np.random.default_rng(2),
        120,
        8,
    )
    (place / "db").mkdir()
    count = 3000
    day = np.sort(rng.uniform(0, DAYS, count))
    who = rng.integers(0, users, count)
    board = (who + rng.integers(0, 2, count)) % boards
    answers = [
        "" if rng.random() < 0.4 or i == 0 else f"m{rng.integers(i)}" for i in range(count)
    ]
    said = [f'well, "{i}", on\nboard {b} again' for i, b in enumerate(board)]
    tables = {
        "users": {
            "nick": [f"nick {i:03}" for i in range(users)],
            "about": [f"user {i}, of board{i % boards}" for i in range(users)],
        },
        "boards": {
            "slug": [f"b-{i}" for i in range(boards)],
            "rules": [f"no {i}" for i in range(boards)],
        },
        "posts": {
            "id": [f"m{i}" for i in range(count)],
            "at": at(day).to_pylist(),
            "author": [f"nick {i:03}" if i % 9 else "" for i in who],
            "board": [f"b-{i}" for i in board],
            "answers": answers,
            "said": said,
        },
    }
    for name, columns in tables.items():
        with (place / "db" / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    keys = {
        "users": {"pkey": "nick"},
        "boards": {"pkey": "slug"},
        "posts": {
            "pkey": "id",
            "time_col": "at",
            "fkeys": {"author": "users", "board": "boards", "answers": "posts"},
        },
    }
    (place / "manifest.yaml").write_text(yaml.safe_dump(SPLITS | {"tables": keys}))
    joined = (
        "FROM timestamps t JOIN posts p ON p.at > t.timestamp AND p.at <= t.timestamp "
        "+ INTERVAL '{timedelta}' WHERE p.author IS NOT NULL GROUP BY ALL"
    )
    each = ", ".join(f"CAST(bool_or(p.board = 'b-{i}') AS INTEGER)" for i in range(3))
    (place / "boards.sql").write_text(
        f"SELECT p.author, t.timestamp, list(DISTINCT p.board) AS boards {joined}"
    )
    (place / "several.sql").write_text(
        f"SELECT p.author, t.timestamp, [{each}] AS wrote {joined}"
    )
    return place


def asked(base, sql, entity, *more):
    place = base if base.is_dir() else base.parent
    return "--dataset", base, "--task-sql", place / sql, "--entity", entity, *more


TASKS = {
    "shop": ("churn.sql", "users", "--horizon 30days --metric auc"),
    "clinic": ("cost.sql", "patients", "--horizon 30days --loss mse --metric nmae"),
    "forum": ("several.sql", "users", "--horizon 30days"),
    "boards": (
        "boards.sql", "users", "--horizon 15days --target boards --task links --temporal",
        "--loss softmax --sides dst --num-negatives 7",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def learned(shop, clinic, forum, tmp_path_factory):
    """`learned(name)`: the folder of the run on a task."""
    bases, made = {"shop": shop, "clinic": clinic, "forum": forum, "boards": forum}, {}

    def learned(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            of = (*asked(bases[name], *TASKS[name]), "--run-dir", made[name])
            assert command(FLAGS, "--epochs 15 --keep 99", *of) == 0
        return made[name]

    return learned


def predicted(run_dir, out, *flags):
    """The rows of what `jgs predict` writes, as dicts."""
    assert predict(words("--run-dir", run_dir, "--out", out, *flags)) == 0
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_shop(shop, learned, tmp_path):
    run = learned("shop")
    assert result(run)["test_accuracy"] > 0.65
    rows = predicted(run, tmp_path / "rows.csv", "--node-type users --at 2024-07-20")
    assert [row["node"] for row in rows] == [f"users:u{i}@example.org" for i in range(150)]
    found = jgs.open_run(run).predict([2, 7], node_type="users", time="2024-07-20")
    assert found.probability.tolist() == pytest.approx(
        [float(rows[i]["probability"]) for i in (2, 7)]
    )
    late = predicted(run, tmp_path / "rows.csv", "--node-type users --at 2024-06-10")
    assert {*map(str, rows)} != {*map(str, late)}
    _, _, before, _ = checkpoint.checkpoints(run / folder.CHECKPOINTS)[-4:]
    resumed(run, tmp_path / "half", int(before.name.split("-")[1]))


def test_a_clinic(learned, tmp_path):
    run = learned("clinic")
    assert result(run)["test_accuracy"] < 0.6  # the mean has 1
    rows = predicted(run, tmp_path / "rows.csv", "--at 2024-07-20")
    assert {row["node"] for row in rows} == {
        f"patients:{wing}|{i}" for wing in ("north", "south") for i in range(60)
    }
    values = np.array([float(row["value"]) for row in rows])
    assert values[values > 100].mean() > 4 * values[values < 100].mean()


def test_what_is_missing_is_named(shop, learned, tmp_path, capsys):
    of = words(*asked(shop, *TASKS["shop"]), "--run-dir", tmp_path / "run")
    command_refused(capsys, "such as rgcn or trsage", jgs.train.__main__.main, of)
    of = words("--run-dir", learned("shop"), "--out", tmp_path / "rows.csv")
    command_refused(capsys, "a date such as 2024-05-01", predict, of)


@pytest.mark.slow
def test_ranks_learn_of_the_parts_of_a_clinic(clinic, tmp_path):
    of = asked(clinic, "cost.sql", "patients", "--horizon 30days")
    assert partition(words(*of, "--parts 2 --out", tmp_path / "parts")) == 0
    own = {"model": "trsage", "norm": "layer", "fanouts": ("*=6", "*=6"), "hidden": 16}
    own |= {"batch_size": 100, "lr": 2e-2, "epochs": 15, "loss": "mse", "metric": "nmae"}
    own["partition"] = str(tmp_path / "parts")
    one, two = (of_ranks(tmp_path / str(ranks), ranks, **own)[0] for ranks in (1, 2))
    assert one["test_accuracy"] < 0.6
    assert two["test_accuracy"] == pytest.approx(one["test_accuracy"], abs=0.02)


def test_a_forum(learned, tmp_path):
    run = learned("forum")
    assert result(run)["test_accuracy"] > 0.7
    rows = predicted(run, tmp_path / "rows.csv", "--node-type users --at 2024-07-20")
    assert [row["node"] for row in rows] == [f"users:nick {i:03}" for i in range(120)]
    # A user of board 0 writes on 0 and 1, and one of board 4 on neither 0, 1 nor 2.
    assert np.mean([row["prediction"] == "0 1" for row in rows[::8]]) > 0.5
    assert np.mean([row["prediction"] == "" for row in rows[4::8]]) > 0.5


def test_boards_for_the_users_of_a_forum(learned, tmp_path):
    run = learned("boards")
    found = result(run)
    assert found["test_accuracy"] > 1.3 * found["baselines"]["popularity"]["test_accuracy"]
    rows = predicted(run, tmp_path / "best.csv", "--top-k 2 --at 2024-07-20")
    ends = [(row["source"][-3:], row["target"].removeprefix("boards:b-")) for row in rows]
    assert len(ends) == 240
    assert np.mean([(int(board) - int(user)) % 8 < 2 for user, board in ends]) > 0.6
