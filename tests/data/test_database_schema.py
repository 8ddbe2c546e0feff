"""`jgs data describe` of a database: its tables and keys, and what people get wrong."""

import json
from xml.etree import ElementTree

import duckdb
import pytest

from jgs.data.__main__ import main

SHOP = """
CREATE TABLE users(id INTEGER, friend INTEGER, age DOUBLE);
INSERT INTO users VALUES (1, 2, 30), (2, 9, NULL), (3, NULL, NULL);
CREATE TABLE "or<ders"(id INTEGER, "user" INTEGER, "at" {kind});
INSERT INTO "or<ders" VALUES (1, 1, {first}), (2, 7, {last}), (3, NULL, {last});
CREATE TABLE payments("order" INTEGER, amount DOUBLE);
INSERT INTO payments VALUES (1, 5), (1, 6);
"""
MANIFEST = """
tables:
  users: {pkey: id, fkeys: {friend: users}}
  or<ders: {pkey: id, time_col: at, fkeys: {user: users}}
  payments: {fkeys: {order: or<ders}}
"""


def described(
    folder, capsys, *flags, kind="DATE", first="'2024-01-02'", last="'2024-05-06'", more=""
):
    file = folder / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(SHOP.format(kind=kind, first=first, last=last) + more)
    file.with_suffix(".yaml").write_text(MANIFEST)
    assert main(["describe", str(file), *flags]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    for each in found["warnings"]:
        assert f"warning: {each['says']}" in said.err
    return found


def test_tables_and_keys_are_counted(tmp_path, capsys):
    found = described(tmp_path, capsys)
    orders, payments, users = found["tables"]
    assert users == {
        "table": "users", "rows": 3, "key": "id", "time": "", "first": "", "last": "",
        "missing": {"friend": 1, "age": 2},
    }  # fmt: skip
    assert (orders["first"], orders["last"], orders["missing"]) == (
        "2024-01-02", "2024-05-06", {"user": 1},
    )  # fmt: skip
    assert (payments["rows"], payments["key"]) == (2, "")
    assert found["keys"] == [
        {"key": "or<ders.user", "names": "users", "missing": 1, "lost": 1},
        {"key": "payments.order", "names": "or<ders", "missing": 0, "lost": 0},
        {"key": "users.friend", "names": "users", "missing": 1, "lost": 1},
    ]
    assert found["nodes"] == 8
    says = " ".join(each["says"] for each in found["warnings"])
    assert "1 values of users.friend name no row of users" in says
    assert "payments has no time, but names rows of or<ders" in says
    assert "future" not in says


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"last": "'2999-05-06'"},
            "at of or<ders is in the future in 2 rows, up to 2999-05-06",
        ),
        (
            {"kind": "TIMESTAMP_NS", "last": "'2199-05-06'"},
            "in the future in 2 rows, up to 2199",
        ),
        ({"first": "'1970-01-20'", "last": "'1970-01-21'"}, "ends before 1971"),
        ({"kind": "BIGINT", "first": "1704153600", "last": "1714953600"}, "time_unit=s"),
        ({"kind": "BIGINT", "first": "1704153600000", "last": "1714953600000"}, "time_unit=ms"),
        ({"kind": "BIGINT", "first": "19000", "last": "19001"}, "time_unit=D"),
        ({"kind": "BIGINT", "first": "1", "last": "2"}, "time_unit=D or s or ms or us or ns"),
        ({"more": "INSERT INTO users VALUES (3, 1, 1)"}, "must name one row; got 2 rows of 3"),
        ({"more": "INSERT INTO users VALUES (NULL, 1, 1)"}, "got 1 rows without"),
        (
            {"more": "ALTER TABLE users ALTER friend TYPE VARCHAR"},
            "must be of the type of the key id",
        ),
        ({"kind": "VARCHAR", "first": "'noon'", "last": "'late'"}, "a whole number or a date"),
    ],
)
def test_what_people_get_wrong_is_a_warning(change, says, tmp_path, capsys):
    found = described(tmp_path, capsys, **change)
    assert [says in each["says"] for each in found["warnings"]].count(True) == 1
    assert len(found["tables"]) == 3  # the tables are described where they make no graph


def test_a_unit_that_is_said_is_compared_with_the_times(tmp_path, capsys):
    seconds = {"kind": "BIGINT", "first": "1704153600", "last": "1714953600"}
    for unit, number in (("s", 0), ("ms", 1)):
        (folder := tmp_path / unit).mkdir()
        flags = ["--data-options", f"time_unit={unit}"]
        warned = described(folder, capsys, *flags, **seconds)["warnings"]
        assert ["time_unit" in each["says"] for each in warned].count(True) == number


def test_the_picture_has_the_tables_and_their_keys(tmp_path, capsys):
    file = tmp_path / "shop.svg"
    described(tmp_path, capsys, "--picture", str(file))
    drawn = ElementTree.parse(file).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in drawn.iter(f"{space}text")]
    boxes = [float(each.get("x")) for each in drawn.iter(f"{space}rect")]
    assert texts[-4:] == ["users", "id integer", "friend integer", "and 1 columns"]
    orders, payments, users = boxes
    assert users < orders < payments  # each to the right of what it names
    keys = [each.text for each in drawn.iter(f"{space}title")]
    assert keys == ["user", "order", "friend"]
    assert all(0 <= x <= float(drawn.get("width")) for x in boxes)
    assert main(["describe", "synthetic", "--picture", str(file)]) == 2
    base = str(tmp_path / "shop.duckdb")
    assert main(["describe", base, "--picture", base]) == 2  # which it would have replaced
    asked = ["--data-options", "db_task=none"]
    assert main(["describe", base, *asked]) == 2
