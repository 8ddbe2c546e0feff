"""The pages build without a warning, and the API reference has every public name."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = [
    "jgs",
    *(
        f"jgs.{name}"
        for name in (
            *("data", "dist", "graph", "models", "ops", "partition", "plan", "predict"),
            *("sampling", "sampling.matrix", "train", "viz"),
        )
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "-q"]
    docs = str(REPOSITORY / "docs")
    done = subprocess.run(
        [*command, "--doctree-dir", str(folder / "trees"), docs, str(folder / "html")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_public_name_has_a_page(site):
    """Where a name is public twice, as `jgs.Graph` and `jgs.graph.Graph`, once is enough."""
    from sphinx.util.inventory import InventoryFile

    content = (site / "objects.inv").read_bytes()
    known = InventoryFile.loads(content, uri="").data
    described = {name for kind, names in known.items() if kind[:3] == "py:" for name in names}
    assert "jgs.sampling.Loader" in described
    things = [getattr_of(name) for name in described]
    missing = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if f"{package}.{name}" not in described and not any(thing is t for t in things):
                missing.append(f"{package}.{name}")
    assert not missing


def getattr_of(path):
    """What a dotted name means, or None."""
    package = path
    while package:
        try:
            thing = importlib.import_module(package)
        except ImportError:
            package = package.rpartition(".")[0]
            continue
        for name in path[len(package) + 1 :].split("."):
            thing = getattr(thing, name, None) if name else thing
        return thing
    return None


def test_pages_open_from_a_folder_and_ask_no_network(site):
    """Scripts, styles and the search's index lie beside the pages."""
    page = (site / "index.html").read_text()
    for tag in ("<script", "<link"):
        for piece in page.split(tag)[1:]:
            start = piece.split(">")[0]
            assert 'src="http' not in start
            assert 'href="http' not in start or "canonical" in start
    assert "sampl" in (site / "searchindex.js").read_text()
