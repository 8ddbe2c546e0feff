"""The pages build without a warning, their links work, and they describe all public names."""

import importlib
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import jgs

REPOSITORY = Path(__file__).parents[1]
PACKAGES = [
    "jgs",
    *(
        f"jgs.{name}"
        for name in (
            *(
                "data",
                "dist",
                "export",
                "graph",
                "losses",
                "models",
                "ops",
                "partition",
                "predict",
            ),
            *("report", "sampling", "sampling.matrix", "train", "viz"),
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
    """A name that is public twice, as `jgs.Graph` and `jgs.graph.Graph`, needs one page."""
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
    """The object that a dotted name means, or None."""
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
    """Scripts, styles and the search index lie beside the pages."""
    page = (site / "index.html").read_text()
    for tag in ("<script", "<link"):
        for piece in page.split(tag)[1:]:
            start = piece.split(">")[0]
            assert 'src="http' not in start
            assert 'href="http' not in start or "canonical" in start
    assert "sampl" in (site / "searchindex.js").read_text()


def test_links_lead_somewhere(site):
    """Links between pages, with their anchors, and links of the first pages on GitHub."""
    pages = {path: _Page.of(path) for path in site.rglob("*.html")}
    assert len(pages) > 20
    dead = []
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            anchors = pages[target].anchors if target in pages else ()
            if not target.exists() or (
                anchor and target.suffix == ".html" and anchor not in anchors
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (REPOSITORY / name).read_text()):
            if "://" not in link and not (REPOSITORY / link).exists():
                dead.append(f"{name}: {link}")
    assert not dead


def test_all_samplers_of_the_guide_draw():
    """The program of docs/guides/own_sampler.md runs whole. `PASS` draws by its weights, also
    by other ones, in one compiled program."""
    page = (REPOSITORY / "docs" / "guides" / "own_sampler.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    drew, base = set(), jgs.sampling.matrix.MatrixSampler
    sample = base.sample

    def noting(self, *arguments):
        drew.add(type(self).__name__)
        return sample(self, *arguments)

    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "sample", noting)
        exec(program, names)
    samplers = {
        name for name, thing in names.items() if isinstance(thing, type) and thing is not base
    }
    assert drew == samplers == {"GraphSAGE", "LADIES", "PASS"}
    assert names["draw"]._cache_size() == 1
    for batch in (names["before"], names["after"]):
        assert int(batch.blocks[0].num_edges) > 200


class _Page(HTMLParser):
    """A page's links to files, and the anchors to which others can link."""

    def __init__(self):
        super().__init__()
        self.links, self.anchors = set(), {""}

    @classmethod
    def of(cls, path):
        page = cls()
        page.feed(path.read_text())
        return page

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        link = found.get("href") or found.get("src")
        if link and not re.match(r"[a-z]+:|//", link):
            self.links.add(link.partition("?")[0])


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text().split()) <= 600


def test_the_version_is_the_changelogs_newest():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert all(date for _, date in versions[1:])
    assert jgs.__version__ == project["version"] == versions[1][0]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
