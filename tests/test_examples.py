"""Every code block of the README and of the pages, and every file in examples/, runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from jgs.train.config import OWNERS
from jgs.train.config import PAGES as TOPICS
from jgs.train.flags import help_page

REPOSITORY = Path(__file__).parents[1]
KINDS = {".py", ".ipynb"}
EXAMPLES = sorted(p for p in (REPOSITORY / "examples").iterdir() if p.suffix in KINDS)
EXAMPLES.remove(REPOSITORY / "examples" / "serve.py")  # tests/export/test_serve.py runs it
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
]


def run(*command: str, cwd=REPOSITORY) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_something_to_run():
    assert {path.suffix for path in EXAMPLES} == KINDS  # `__pycache__` does not count
    assert any(language == "python" for language, _ in BLOCKS)


@pytest.mark.parametrize(
    "source", [text for language, text in BLOCKS if language == "python"], ids=lambda s: s[:20]
)
def test_python_of_the_pages(source, tmp_path):
    run(sys.executable, "-c", source, cwd=tmp_path)


def _pages():
    """All pages of the help of `jgs.train` but the first."""
    names = (*TOPICS, *(name for table in OWNERS.values() for name in table))
    return "".join(map(help_page, names))


def test_commands_name_what_exists():
    """Commands too long to run here: their make targets and flags must exist."""
    helps = {}
    for language, text in BLOCKS:
        for line in text.splitlines() if language in ("sh", "bash") else ():
            line = line.partition("#")[0].strip()
            if line.startswith("make "):
                run("make", "--dry-run", *line.split()[1:])
            elif module := re.search(r"-m (jgs\.\w+)", line):
                if module[1] not in helps:
                    helps[module[1]] = run(sys.executable, "-m", module[1], "--help")
                    if module[1] == "jgs.train":
                        helps[module[1]] += _pages()
                # A class of the user's has flags, too.
                line = line.partition(" -- ")[0].partition(" mine:")[0]
                for flag in re.findall(r" (--[\w-]+)", line):
                    assert flag in helps[module[1]], line
    assert len(helps) >= 4


def test_the_newcomers_notebook_shows_what_it_did_and_is_small():
    path = REPOSITORY / "examples" / "newcomer.ipynb"
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    shown = [output.get("data", {}) for cell in cells for output in cell.outputs]
    assert sum("image/png" in data for data in shown) == 3
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example(path, tmp_path):
    if path.suffix == ".ipynb":
        notebook = nbformat.read(path, as_version=4)
        strict = "import warnings; warnings.simplefilter('error')"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(strict))
        NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
        ).execute()
    else:
        run(sys.executable, str(path), "1", cwd=tmp_path)


def test_the_example_of_links_learns_and_sees_no_target(data_folder, neighbors_of, monkeypatch):
    """60 epochs of seed 1 on USAir give an AUC of 0.976. The AUC does not show whether target
    edges are left out, so the drawn edges of the first batches are compared with their
    pairs."""
    path = REPOSITORY / "examples" / "link_prediction.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    step, drawn = example.train_step, []

    def watched(model, optimizer, batch, x, key):
        if len(drawn) < 8:
            ends = np.stack([batch.items["src"], batch.items["dst"]], axis=1)
            hops = neighbors_of(batch)
            drawn.append({(u, v) for hop in hops for v, row in hop.items() for u in row})
            assert drawn[-1].isdisjoint(map(tuple, np.r_[ends, ends[:, ::-1]].tolist()))
        return step(model, optimizer, batch, x, key)

    monkeypatch.setattr(example, "train_step", watched)
    with np.load(data_folder / "usair.npz") as file:
        ends, num_nodes = file["edge_index"], int(file["num_nodes"])
    pairs = np.unique(np.sort(ends.T, axis=1), axis=0)
    assert example.held_out_auc(pairs, num_nodes, seed=1, epochs=60) > 0.93
    assert min(map(len, drawn)) > 1000


ACCELERATED = """
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


def test_they_run_where_the_default_device_is_not_the_hosts():
    """As on a machine with a GPU, which device 1 is here: arrays that are committed to two
    devices would not meet in one program."""
    names = ["flax_loop", "equinox_model", "rgcn_loop", "typed_tables", "node_embeddings"]
    done = subprocess.run(
        [sys.executable, "-c", ACCELERATED, str(REPOSITORY / "examples"), *names],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert [word for word in said if word in names] == names
