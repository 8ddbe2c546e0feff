"""The pages' links work, they describe all public names, and they build without a warning."""

import contextlib
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
from forks import quick_python, ran

import jgs

REPOSITORY = Path(__file__).parents[1]
API = REPOSITORY / "docs" / "api"
NAMES = sorted(page.stem for page in API.glob("*.md") if page.stem != "index")
PACKAGES = [name if name == "jgs" else f"jgs.{name}" for name in NAMES]
PAGES = [*REPOSITORY.glob("*.md"), *sorted((REPOSITORY / "docs").rglob("*.md"))]


def meant(path):
    """The object that a dotted name means, or None."""
    with contextlib.suppress(AttributeError, ImportError):
        return pkgutil.resolve_name(path)


def anchors_of(page):
    """Those of the headings of a page, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_links_of_a_page_lead_somewhere(page):
    """To files, to headings, and to what has a page of the API."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor.startswith("jgs."):
            assert meant(anchor) is not None, link
        elif anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), link


def test_every_public_package_has_a_page():
    """A page of `automodule` gets each name of its package."""
    folder = Path(jgs.__file__).parent
    public = {f"jgs.{path.parent.name}" for path in folder.glob("*/__init__.py")}
    assert public - {"jgs.files", "jgs.kernels", "jgs.launch"} <= {*PACKAGES}
    for name, package in zip(NAMES, PACKAGES, strict=True):
        text = (API / f"{name}.md").read_text()
        if package == "jgs":
            assert not [name for name in jgs.__all__ if name not in text]
        else:
            assert f".. automodule:: {package}\n" in text


@pytest.mark.slow
def test_every_public_name_has_a_page(tmp_path):
    """A name that is public twice, as `jgs.Graph` and `jgs.graph.Graph`, needs one page."""
    from sphinx.util.inventory import InventoryFile

    command = [quick_python(), "-m", "sphinx", "--builder", "html", "--fail-on-warning", "-q"]
    ran(*command, "--doctree-dir", tmp_path / "trees", API.parent, tmp_path / "html")
    content = (tmp_path / "html" / "objects.inv").read_bytes()
    known = InventoryFile.loads(content, uri="").data
    described = {name for kind, names in known.items() if kind[:3] == "py:" for name in names}
    assert "jgs.sampling.Loader" in described
    things = [meant(name) for name in described]
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            path = f"{package}.{name}"
            assert path in described or any(meant(path) is t for t in things), path


def test_all_samplers_of_the_guide_draw(noted):
    """The guide's program runs whole; `PASS` draws by other weights in one program."""
    page = (REPOSITORY / "docs" / "guides" / "own_sampler.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names, base = {}, jgs.sampling.matrix.MatrixSampler
    calls = noted(base, "sample")
    exec(program, names)
    drew = {type(sampler).__name__ for sampler, *_ in calls}
    samplers = {
        name for name, thing in names.items() if isinstance(thing, type) and thing is not base
    }
    assert drew == samplers == {"GraphSAGE", "LADIES", "PASS"}
    assert names["draw"]._cache_size() == 1
    for batch in (names["before"], names["after"]):
        assert int(batch.blocks[0].num_edges) > 200


def test_the_version_is_the_changelogs_newest():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert all(date for _, date in versions[1:])
    assert jgs.__version__ == project["version"] == versions[1][0]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
