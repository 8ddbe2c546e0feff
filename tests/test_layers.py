"""Imports only go downwards: jgs's packages form layers, and no import hides a circle."""

import ast
import importlib
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import jgs

JGS = Path(jgs.__file__).parent
# From the bottom up; packages on one line may not import each other.
LAYERS = (
    ("errors", "allocator", "interrupts", "lazy", "settings"),
    ("arrays", "devices"),
    ("command", "options"),
    ("tables",),
    ("kernels",),
    ("files",),
    ("graph",),
    ("data",),
    ("partition",),
    ("ops", "losses", "answers"),
    ("sampling",),
    ("models",),
    ("dist",),
    ("train",),
    ("predict", "launch"),
    ("export", "audit"),
    ("serve",),
    ("replay",),
    ("doctor",),
    ("viz",),
    ("report",),
    ("scripts",),
    ("completion",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(p.relative_to(JGS) for p in JGS.rglob("*.py") if p != JGS / "__init__.py")
MODULES = {
    ".".join(["jgs", *f.with_suffix("").parts]).removesuffix(".__init__"): f for f in FILES
}


def _imports(tree: ast.AST):
    """The jgs modules that a file imports, each with its line and the function around it."""
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    inside = {id(node): function for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            of = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in of]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name and name.split(".")[0] == "jgs":
                yield name, node.lineno, inside.get(id(node))


@pytest.fixture(scope="module")
def imported():
    """The imports of each module."""
    texts = {module: (JGS / file).read_text() for module, file in MODULES.items()}
    return {module: list(_imports(ast.parse(text))) for module, text in texts.items()}


def test_imports_go_downwards(imported):
    for module, file in MODULES.items():
        own, lines = module.split(".")[1], (JGS / file).read_text().splitlines()
        for name, line, function in imported[module]:
            package = ([*name.split("."), ""])[1]
            if package in LEVEL and package != own:
                assert LEVEL[package] < LEVEL[own], f"{file}:{line}: {name} is above"
            if function is not None:
                # Only for start-up time, and the function says so where it does it.
                said = " ".join(lines[function.lineno - 1 : function.end_lineno]).lower()
                assert "slow import" in said or "only now" in said, f"{file}:{line}: is late"


def test_no_circle(imported):
    """No two modules import each other while they are loaded, directly or by way of others."""
    edges = {}
    for module, names in imported.items():
        targets = {name for name, _, function in names if function is None}
        edges[module] = sorted((targets & set(MODULES)) - {module})
    done, path = set(), []

    def visit(name):
        assert name not in path, f"a circle: {' -> '.join([*path[path.index(name) :], name])}"
        if name in done:
            return
        path.append(name)
        for target in edges[name]:
            visit(target)
        path.pop()
        done.add(name)

    for name in edges:
        visit(name)


def test_every_package_has_its_layer():
    packages = {f.parts[0].removesuffix(".py") for f in FILES}
    assert packages == set(LEVEL)


def test_packages_show_public_names_only():
    for package in ["jgs", *(f"jgs.{name}" for name in LEVEL if (JGS / name).is_dir())]:
        module = importlib.import_module(package)
        shown = set(dir(module))
        if package == "jgs":
            shown -= {"__version__", *module._SUBMODULES}
        if package != "jgs.kernels":  # its names are for jgs alone
            assert shown == set(module.__all__), package
        for name in shown:
            assert getattr(module, name) is not None


def test_what_tests_import_from_each_other_has_one_name():
    """All folders are on one path: a process that has one `helpers` has no other."""
    helpers = Counter(
        path.stem
        for path in Path(__file__).parent.rglob("*.py")
        if not path.stem.startswith(("test_", "conftest", "__"))
    )
    assert [name for name, count in helpers.items() if count > 1] == []


def test_the_sanitizers_run_tests_that_there_are():
    script = Path(__file__).parent / "kernels" / "sanitize"
    named = " ".join(re.findall(r"tests/[\w/{},.]+", script.read_text()))
    found = subprocess.run(["bash", "-c", f"ls -d {named}"], cwd=script.parents[2], check=False)
    assert found.returncode == 0
