"""Every benchmark imports what is there, and takes the flags that pages give it."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
from forks import quick_python, ran

from benchmarks import papers
from benchmarks.embeddings import summary
from benchmarks.embeddings_gensim import SHARES, cells

REPOSITORY = Path(__file__).parents[1]
FILES = sorted((REPOSITORY / "benchmarks").rglob("*.py"))
HELPS = """
import contextlib, importlib, io, json, sys
helps = {}
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    with open(module.__file__) as file:
        text = file.read()
    calls = "arser(", "command_line(", "parse(argv)", "parser_of("
    has_flags = any(call in text for call in calls)
    if has_flags and hasattr(module, "main"):
        sys.argv[:] = [name, "--help"]
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
            module.main()
        helps[name.removesuffix(".__main__")] = said.getvalue()
print(json.dumps(helps))
"""
# Not in jgs's environment.
MISSING = {"dgl", "torch", "gensim", "graphsaint", "textblob", "sklearn"}


def imports(file: Path) -> set[tuple[str, str]]:
    """The modules that a file imports, within functions too, and the names from them."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return found


def test_every_benchmark_says_the_flags_that_pages_give_it():
    paths = {file: file.relative_to(REPOSITORY).with_suffix("").parts for file in FILES}
    packages = {file: {module.split(".")[0] for module, _ in imports(file)} for file in FILES}
    own = [file for file in FILES if MISSING.isdisjoint(packages[file])]
    own = [file for file in own if file.parent.name != "adapters"]  # in their own environments
    names = [".".join(paths[file]) for file in own if file.name != "__init__.py"]
    helps = json.loads(ran(quick_python(), "-c", HELPS, *names, cwd=REPOSITORY))
    assert len(helps) > 30
    assert not [name for name, text in helps.items() if not text.startswith("usage: ")]
    asked = [" ".join(command) for f in papers.FIGURES for command in (f.command, f.quick)]
    for page in (REPOSITORY / "docs").rglob("*.md"):
        asked += re.findall(r"python -m (benchmarks[^\n`#]*)", page.read_text())
    assert len(asked) > 40
    for module, *words in map(str.split, filter(None, asked)):
        assert module in helps, module
        for flag in (word for word in words if word.startswith("--")):
            assert flag in helps[module], (module, flag)


def test_what_is_imported_from_jgs_is_there():
    """Imports within functions too, which no test runs."""
    examples = sorted((REPOSITORY / "examples").glob("*.py"))
    found = {pair for file in (*FILES, *examples) for pair in imports(file)}
    of_jgs = {(module, name) for module, name in found if module.split(".")[0] == "jgs"}
    assert len(of_jgs) > 100
    for module, name in of_jgs:
        if name and not hasattr(importlib.import_module(module), name):
            assert importlib.util.find_spec(f"{module}.{name}"), f"{module}.{name}"


def test_the_files_that_the_page_of_papers_names_are_there():
    page = (REPOSITORY / "docs" / "papers.md").read_text()
    named = re.findall(r"`((?:jgs|tests)/[\w/.]+)`", page)
    assert len(named) > 40
    assert not [each for each in named if not (REPOSITORY / each).exists()]


def test_means_have_their_standard_errors():
    assert summary([0.25]) == "0.250"
    # Squares from the mean add up to 14: the variance is 14 / 3, that of the mean 14 / 12.
    assert summary([1.0, 2.0, 3.0, 6.0], "+") == "+3.000 ± 1.080"
    seed = np.arange(2 * len(SHARES)).reshape(len(SHARES), 2) / 10
    found = cells(np.stack([seed, seed + 0.02]), "+")
    assert found.startswith("+0.010 ± 0.010 / +0.110 ± 0.010 | ")
