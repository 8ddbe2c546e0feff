"""The benchmarks beside the papers' figures: what they compute of what was timed. And no
benchmark imports what jgs no longer has."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

from benchmarks import overlap

REPOSITORY = Path(__file__).parents[1]


def test_what_drawing_ahead_hides_is_a_share_of_what_the_network_adds():
    seconds = dict(zip(overlap.RUNS, ([1.0, 9, 1], [2.0, 2, 2], [0.8], [1.05]), strict=True))
    report = overlap.table(seconds)
    assert "| network, nothing ahead | 2.00 |" in report
    assert "adds 1.00 s to an epoch. Drawing ahead hides 75% of it." in report


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_what_is_imported_from_jgs_is_there(folder):
    """Imports within functions too, which no test runs."""
    imported = [
        (file.name, node.module, alias.name)
        for file in sorted((REPOSITORY / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jgs"
        for alias in node.names
    ]
    assert imported
    for file, module, name in imported:
        if not hasattr(importlib.import_module(module), name):
            assert importlib.util.find_spec(f"{module}.{name}"), f"{file}: {module}.{name}"
