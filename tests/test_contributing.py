"""CONTRIBUTING.md is true: its diffs apply to the package, and the additions work."""

import os
import re
import shutil
from pathlib import Path

from forks import quick_python, ran

from jgs import kernels

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()

# Run beside a copy of the package to which all diffs were applied.
CHECK = '''
import contextlib
import importlib.machinery
import io
import json
import sys
from pathlib import Path

sys.meta_path.insert(0, importlib.machinery.PathFinder)  # before that of an editable install

import jax
import numpy as np
from flax import nnx

import jgs
from jgs.data.__main__ import main as data_main
from jgs.data.plain import load_plain
from jgs.partition.__main__ import main as partition_main
from jgs.sampling import Loader
from jgs.tables import SAMPLERS
from jgs.train.flags import help_page

HERE = Path(__file__).parent
assert Path(jgs.__file__).is_relative_to(HERE)


def layer_and_task():
    """One run of both, whose layer is evaluated as it is trained."""
    options = ("num_nodes=400", "num_edges=3000", "num_features=6", "num_classes=3")
    config = jgs.train.Config(
        task="balanced", power=0.5, model="pool", data_options=options, fanouts=(-1, -1),
        hidden=8, batch_size=20, epochs=2, progress=False, run_dir=str(HERE / "run"),
    )
    run = jgs.train.run(config)
    nodes = np.arange(50)
    np.testing.assert_allclose(
        run.logits(nodes, fanouts=(-1, -1)), run.logits(nodes), rtol=1e-4, atol=1e-5
    )
    assert run.metrics["train_loss"][1] < run.metrics["train_loss"][0]


def uses_of_a_format():
    """The format is read by every command and task that reads data, and has one file and one
    line."""
    folder = HERE / "linqs-cora"
    folder.mkdir()
    draws = np.random.default_rng(0)
    papers = [f"p{i}\\t{i % 2}\\t{1 - i % 2}\\t{'ab'[i % 2]}\\n" for i in range(40)]
    cited = draws.integers(0, 40, 200)
    citing = (cited + 2 * draws.integers(1, 20, 200)) % 40
    (folder / "cora.content").write_text("".join(papers))
    pairs = zip(cited, citing, strict=True)
    (folder / "cora.cites").write_text("".join(f"p{a} p{b}\\n" for a, b in pairs))
    named = dict(dataset="linqs-cora", root=str(HERE))
    drawn = "split=0.6,0.2,0.2"

    data = jgs.data.load("linqs-cora", HERE, split="0.6,0.2,0.2")
    src, dst = data.graph.edge_index()
    assert sorted(zip(src, dst)) == sorted(zip(citing, cited))
    assert data.node_ids.values[:2].tolist() == ["p0", "p1"]
    assert (data.class_names, data.labels[:3].tolist()) == (("a", "b"), [0, 1, 0])
    assert (data.train_idx.size, data.val_idx.size, data.test_idx.size) == (24, 8, 8)
    np.testing.assert_array_equal(data.features[:2], [[0, 1], [1, 0]])
    by_path = load_plain(folder, HERE)  # known by its files, and without a split
    assert (by_path.class_names, by_path.train_idx) == (("a", "b"), None)
    by_name = load_plain("linqs-cora", HERE)
    assert (by_name.graph.num_edges, by_name.train_idx) == (200, None)

    few = dict(fanouts=(3,), hidden=4, batch_size=10, epochs=1, progress=False)
    run = jgs.train.run(jgs.train.Config(**named, **few, data_options=(drawn,)))
    assert run.logits(np.arange(3)).shape == (3, 2)
    run = jgs.train.run(jgs.train.Config(task="links", **named, **few))
    assert run.scores(np.array([[0, 2], [4, 6]])).shape == (2,)

    where = ["linqs-cora", "--root", str(HERE)]
    listed = said(data_main, "list")["datasets"]
    assert listed[-1]["name"] == "linqs-cora" and "LINQS" in listed[-1]["about"]
    described = said(data_main, "describe", *where)
    assert (described["nodes"], described["edges"], described["classes"]) == (40, 200, 2)
    split = ["--method", "random", "--data-options", drawn]
    parts = str(HERE / "parts")
    said(partition_main, "--dataset", *where, "--parts", "2", "--out", parts, *split)
    run = jgs.train.run(jgs.train.Config(partition=parts, **few))
    assert run.logits(np.arange(3)).shape == (3, 2)

    named = [p for p in (HERE / "jgs").rglob("*.py") if "linqs" in p.read_text()]
    assert sorted(p.name for p in named) == ["layouts.py", "linqs.py"]
    table = (HERE / "jgs/data/layouts.py").read_text()
    assert sum("linqs" in line for line in table.splitlines()) == 1


def said(main, *words):
    """What a command says as its line of JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0
    return json.loads(out.getvalue())


def sampler():
    made = SAMPLERS["bydegree"]((10, 10), power=0.5)
    src, dst = np.random.default_rng(0).integers(0, 90, (2, 900))
    graph = jgs.Graph.from_edges(src, dst, num_nodes=90)
    with Loader(graph, np.arange(60), 30, made, key=jax.random.key(0)) as loader:
        for batch in loader:
            assert np.diff(batch.blocks[-1].indptr).max() == 10
    config = jgs.train.Config(sampler="bydegree", sizes=(4,), power=2.0)
    assert config.made("sampler").power == 2
    assert "--power" in help_page("bydegree")
    assert "bydegree" in help_page()


def decoder():
    from jgs.models.transe import TransE

    score = TransE(2, 1, order=1, rngs=nnx.Rngs(0))
    score.relations[...] = jax.numpy.array([[1.0, 0.0]])
    rows = jax.numpy.array([[0.0, 0.0], [1.0, 3.0]])
    pair = score(rows[:1], rows[1:], jax.numpy.array([0]))
    np.testing.assert_allclose(pair, [-3])
    config = jgs.train.Config(task="links", decoder="transe", order=1)
    assert config.order == 1 and "--order" in help_page("transe")


for check in (layer_and_task, uses_of_a_format, sampler, decoder):
    check()
    print(check.__name__)
'''


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_what_the_page_adds_works(tmp_path):
    shutil.copytree(
        REPOSITORY / "jgs", tmp_path / "jgs", ignore=shutil.ignore_patterns("__*__")
    )
    diffs = blocks("diff")
    assert len(diffs) == 5
    for diff in diffs:
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        ran("git", "apply", "--unidiff-zero", "--verbose", input=diff, cwd=tmp_path, env=env)
    (tmp_path / "check.py").write_text(CHECK)
    library = {"JGS_KERNELS": str(kernels.library() or "off")}
    said = ran(quick_python(), tmp_path / "check.py", cwd=tmp_path, env=os.environ | library)
    assert said.split() == ["layer_and_task", "uses_of_a_format", "sampler", "decoder"]
