"""Every code block of the README and of the pages, and every file in examples/, runs."""

import json
import os
import re
from pathlib import Path

import nbformat
import programs
import pytest
from forks import quick_python, ran
from nbclient import NotebookClient

from jgs.train.config import OWNERS
from jgs.train.config import PAGES as TOPICS
from jgs.train.flags import help_page

REPOSITORY = Path(__file__).parents[1]
KINDS = {".py", ".ipynb"}
EXAMPLES = sorted(p for p in (REPOSITORY / "examples").iterdir() if p.suffix in KINDS)
EXAMPLES.remove(REPOSITORY / "examples" / "serve.py")  # tests/export/test_serve.py runs it
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


# Other tests run these: test_docs.py and test_jobs.py.
ELSEWHERE = {"own_sampler", *(path.stem for path in (REPOSITORY / "docs/jobs").glob("*.md"))}
WITH_PYTHON = [p for p in PAGES if blocks(p, "python") and p.stem not in ELSEWHERE]
LONG = 40  # lines of a block
# Each block has names of its own; all of a page share a process, and so what JAX compiled.
EACH = """
import json, sys
for number, block in enumerate(json.loads(sys.argv[1]), 1):
    exec(compile(block, f"block {number}", "exec"), {"__name__": "__main__"})
"""
# These take as long as all others.
SLOW = {"labels_at_a_time", "link_prediction", "newcomer", "next_message", "ratings_by_time"}
SLOW |= {"database", "jitted_sampler", "regression", "top_items"}
# These run where JAX has another device, as on a machine with a GPU.
ACCELERATED = ["flax_loop", "node_embeddings"]
ACCELERATED_TOO = ["equinox_model", "rgcn_loop", "typed_tables"]
HERE = [path for path in EXAMPLES if path.stem not in ACCELERATED + ACCELERATED_TOO]


def slow(value, is_slow=True):
    return pytest.param(value, marks=pytest.mark.slow) if is_slow else value


@pytest.mark.parametrize("long", [False, slow(True)], ids=["short", "long"])
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_of_the_pages(page, long, tmp_path):
    chosen = [b for b in blocks(page, "python") if (len(b.splitlines()) > LONG) == long]
    ran(quick_python(), "-c", EACH, json.dumps(chosen), cwd=tmp_path)


def _pages():
    """All pages of the help of `jgs.train` but the first."""
    names = (*TOPICS, *(name for table in OWNERS.values() for name in table))
    return "".join(map(help_page, names))


def test_commands_name_what_exists():
    """Commands too long to run here: their make targets and flags must exist."""
    helps = {}
    lines = [
        line for p in PAGES for text in blocks(p, "sh", "bash") for line in text.splitlines()
    ]
    for line in (line.partition("#")[0].strip() for line in lines):
        if line.startswith("make "):
            ran("make", "--dry-run", *line.split()[1:], cwd=REPOSITORY)
        elif module := re.search(r"-m (jgs\.\w+)", line):
            if module[1] not in helps:
                helps[module[1]] = ran(quick_python(), "-m", module[1], "--help")
                if module[1] == "jgs.train":
                    helps[module[1]] += _pages()
            # A class of the user's has flags, too.
            line = line.partition(" -- ")[0].partition(" mine:")[0]
            for flag in re.findall(r" (--[\w-]+)", line):
                assert flag in helps[module[1]], line
    assert len(helps) >= 4


@pytest.mark.parametrize("path", [slow(p, p.stem in SLOW) for p in HERE], ids=lambda p: p.stem)
def test_example(path, tmp_path):
    if path.suffix == ".ipynb":
        notebook = nbformat.read(path, as_version=4)
        strict = "import warnings; warnings.simplefilter('error')"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(strict))
        NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
        ).execute()
    else:
        ran(quick_python(), path, "1", cwd=tmp_path)


ON_ANOTHER = """
import importlib, sys
import jax
import jgs.devices as devices

host, other = jax.devices()
jax.config.update("jax_default_device", other)


def default_device():
    chosen = jax.config.jax_default_device
    return host if isinstance(chosen, str) else chosen


devices.default_device = default_device
devices.host_device = lambda: host
devices.computes_on_cpu = lambda: default_device() == host
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    print(name, importlib.import_module(name).main(1))
"""


@pytest.mark.parametrize("names", [ACCELERATED, slow(ACCELERATED_TOO)], ids=" ".join)
def test_they_run_where_the_default_device_is_not_the_hosts(names):
    """As with a GPU, which device 1 is here: no program has arrays of two devices."""
    flags = {"XLA_FLAGS": programs.quickly(devices=2)}
    command = [quick_python(), "-c", ON_ANOTHER, REPOSITORY / "examples", *names]
    lines = ran(*command, env=os.environ | flags).splitlines()
    said = [line.split()[0] for line in lines if line.strip()]
    assert [word for word in said if word in names] == names
