"""The pages of docs/jobs, and that of databases, run from files to predictions, and show what
their commands write."""

import csv
import os
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest
from forks import ended, quick_python

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {path.stem: path for path in sorted((DOCS / "jobs").glob("*.md"))}
PAGES["database"] = DOCS / "guides" / "database.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
REFERENCE = "## What is read"  # after which the blocks of a guide are no job
# The last file of each page.
LAST = {
    "classify_nodes": "predictions.csv",
    "predict_links": "lists.csv",
    "own_tables": "jobs.csv",
    "many_hosts": "predictions.csv",
    "database": "churn.csv",
}


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def right(page, rows, folder):
    """The share of the predictions that are right."""
    if page == "predict_links":  # the items of a user's taste
        taste = np.random.default_rng(0).integers(0, 10, 500)
        pairs = [(row[0].split(":"), row[1].split(":")) for row in rows]
        assert {(a[0], b[0]) for a, b in pairs} == {("user", "item")}
        return np.mean([int(b[1]) % 10 == taste[int(a[1])] for a, b in pairs])
    if page == "own_tables":
        known = {row[0]: row[4] for row in rows_of(folder / "town" / "nodes.csv")}
        return np.mean([known[node] == name for node, _, _, name in rows if known[node]])
    if page == "database":  # who has bought in the last month will buy
        with duckdb.connect(folder / "shop.duckdb", read_only=True) as shop:
            lately = shop.sql("SELECT DISTINCT name FROM sales WHERE day > DATE '2024-09-27'")
            buyers = {f"users:{name}" for (name,) in lately.fetchall()}
        assert len(rows) == 300
        return np.mean([(node in buyers) == (found == "0") for node, found, _ in rows])
    data = np.load(folder / "papers.npz")
    assert {int(row[0]) for row in rows} == set(data["test_idx"])
    return np.mean([data["labels"][int(node)] == int(found) for node, found, _ in rows])


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder with `python` and `jgs`, which start quickly."""
    folder = tmp_path_factory.mktemp("bin")
    jgs = "-c 'import sys; from jgs.scripts import main; sys.exit(main())'"
    for name, words in (("python", ""), ("jgs", jgs)):
        (folder / name).write_text(f'#!/bin/sh\nexec {quick_python()} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


SLOW = [pytest.param("database", marks=pytest.mark.slow)]


@pytest.mark.parametrize("page", [name for name in PAGES if name != "database"] + SLOW)
def test_a_job_ends_with_predictions(page, tmp_path, commands):
    path = f"{commands}:{os.environ['PATH']}"
    written, shown = "", []
    for language, text in BLOCK.findall(PAGES[page].read_text().partition(REFERENCE)[0]):
        if language == "text":
            shown = text.splitlines()
            # Probabilities may differ between machines; heads and rows of files do not.
            same = [
                line for line in shown if re.fullmatch(r"[a-z]\S+", line) and "." not in line
            ]
            assert all(line in written for line in same), written
            continue
        command = [commands / "python", "-c"] if language == "python" else ["bash", "-ec"]
        done = ended(*command, text, cwd=tmp_path, env=os.environ | {"PATH": path})
        assert done.returncode == 0, done.stderr
        written = done.stdout + done.stderr
    head, *rows = rows_of(tmp_path / LAST[page])
    assert shown[1] == ",".join(head)
    assert [line.split(",")[0] for line in shown[2:]] == [r[0] for r in rows[: len(shown) - 2]]
    assert right(page, rows, tmp_path) > 0.7
