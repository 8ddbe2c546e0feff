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
from jgs.data import Dataset
from jgs.data.__main__ import main as data_main
from jgs.data.plain import load_plain
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.partition import write_parts
from jgs.partition.__main__ import main as partition_main
from jgs.predict.__main__ import main as predict
from jgs.sampling import Loader
from jgs.tables import SAMPLERS
from jgs.train import Config
from jgs.train.flags import help_page
from jgs.train.loop import training
from jgs.train.tasks.task import open_job

HERE = Path(__file__).parent
assert Path(jgs.__file__).is_relative_to(HERE)


def layer_and_task():
    """One run of both: it trains, resumes and is evaluated as it is trained."""
    numbers().save(HERE / "numbers")
    run = trained("run", epochs=1)
    assert (run.best_epoch, run.metrics["metric"].tolist()) == (1, ["pinball loss"])
    run, whole = trained("run", epochs=2, resume=True), trained("whole", epochs=2)
    for a, b in zip(*(jax.tree.leaves(r.last_params) for r in (whole, run)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert run.metrics["train_loss"][1] < run.metrics["train_loss"][0]
    nodes = np.arange(50)
    np.testing.assert_allclose(
        run.logits(nodes, fanouts=(-1, -1)), run.logits(nodes), rtol=1e-4, atol=1e-5
    )
    assert (np.diff(run.logits(nodes)) > 0).all()  # the task's head
    text = {path: path.read_text() for path in (HERE / "jgs").rglob("*.py")}
    named = "Quantiles", "q0.", '"quantiles', "tasks.quantiles", "task quantiles"
    naming = {path.name for path in text if any(name in text[path] for name in named)}
    assert naming == {"quantiles.py", "tables.py"}


def numbers():
    """300 nodes, whose number is a feature, and noise that grows with another one."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4)).astype(np.float32)
    y = 30 + 3 * x[:, 0] + (0.3 + np.abs(x[:, 1])) * rng.standard_normal(300)
    graph = jgs.Graph.from_edges(*rng.integers(0, 300, (2, 1500)), num_nodes=300)
    splits = {name: np.arange(300)[i::3] for i, name in enumerate(("train", "val", "test"))}
    return Dataset.from_arrays(graph, x, y.astype(np.float32), splits, name="numbers")


def settings(name, **more):
    of = {"task": "quantiles", "quantiles": (0.1, 0.5, 0.9), "model": "pool", "hidden": 8}
    of |= {"fanouts": (-1, -1), "batch_size": 40, "progress": False, "dropout": 0.0}
    return Config(run_dir=str(HERE / name), **of | more)


def trained(name, **more):
    return jgs.train.run(settings(name, dataset=str(HERE / "numbers"), **more))


def ranks():
    """Two learn what one learns."""
    write_parts(HERE / "parts", numbers(), np.arange(300) % 2, 2, method="random")
    results, of = [], {"partition": str(HERE / "parts"), "epochs": 1}
    for comm in (Alone(), Mesh(jax.devices()[:2])):
        size = comm.size
        config = settings(f"ranks{size}", ranks=size, batch_size=40 // size, **of)
        results.append(training.run(config, lambda config: open_job(config, comm)))
    np.testing.assert_allclose(*(r["test_accuracy"] for r in results), rtol=1e-4)
    found = [jgs.open_run(r["run_dir"], progress=False).predict(np.arange(9)) for r in results]
    np.testing.assert_allclose(*found, rtol=1e-3)


def answers():
    """Columns of a prediction, figures of a report, and an artifact."""
    run, names = jgs.open_run(HERE / "run", progress=False), ["q0.1", "q0.5", "q0.9"]
    argv = f"--run-dir {HERE / 'run'} --out {HERE / 'out.npy'} --split test --no-progress"
    assert predict(argv.split()) == 0
    table, truth = np.load(HERE / "out.npy"), numbers().labels
    assert list(table.dtype.names) == ["node", *names]
    rows = np.stack([table[name] for name in names], axis=1)
    np.testing.assert_array_equal(rows, run.predict(table["node"]))
    truth = truth[table["node"]]
    said = jgs.report.write_report(HERE / "run", progress=False, examples=1)
    rmse = np.sqrt(np.mean((table["q0.5"] - truth) ** 2))
    assert (said["metric"], said["nodes"]) == ("RMSE", 100)
    np.testing.assert_allclose(said["value"], rmse, rtol=1e-5)
    inside = np.mean((table["q0.1"] <= truth) & (truth <= table["q0.9"]))
    page = (HERE / "run" / "report.html").read_text()
    assert f"<dt>share from q0.1 to q0.9</dt><dd>{inside:g}</dd>" in page
    jgs.export_run(run, HERE / "made", fanouts=(4, 4), batch_sizes=(16,), with_graph=True)
    made, nodes = jgs.load_exported(HERE / "made"), np.arange(50)
    found = made.predict(nodes)
    np.testing.assert_allclose(found, run.predict(nodes, fanouts=(4, 4)), rtol=1e-5)
    assert list(made.answer.columns(found)) == names


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
    parts = str(HERE / "linqs-parts")
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


for check in (layer_and_task, ranks, answers, uses_of_a_format, sampler, decoder):
    check()
    print(check.__name__)
'''


# The tests of every row table and of its uses, for the one that is added.
OWN_TESTS = """
import importlib.machinery
import sys

sys.meta_path.insert(0, importlib.machinery.PathFinder)
sys.path.insert(0, sys.argv[1])
import pytest

tests = ["graph/test_row_tables.py", "train/test_feature_dtype.py"]
uses = "bfloat16 or new_nodes or ranks or disk or device or (types and all)"
sys.exit(pytest.main([*(f"{sys.argv[2]}/{name}" for name in tests), "-qk", uses]))
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_what_the_page_adds_works(tmp_path):
    shutil.copytree(
        REPOSITORY / "jgs", tmp_path / "jgs", ignore=shutil.ignore_patterns("__*__")
    )
    diffs = blocks("diff")
    assert len(diffs) == 6
    for diff in diffs:
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        ran("git", "apply", "--unidiff-zero", "--verbose", input=diff, cwd=tmp_path, env=env)
    (tmp_path / "check.py").write_text(CHECK)
    library = {"JAX_NUM_CPU_DEVICES": "2", "JGS_KERNELS": str(kernels.library() or "off")}
    said = ran(quick_python(), tmp_path / "check.py", cwd=tmp_path, env=os.environ | library)
    checks = ["layer_and_task", "ranks", "answers", "uses_of_a_format", "sampler", "decoder"]
    assert [line for line in said.split() if line in checks] == checks
    (tmp_path / "own_tests.py").write_text(OWN_TESTS)
    command = (quick_python(), tmp_path / "own_tests.py", tmp_path, REPOSITORY / "tests")
    said = ran(*command, cwd=tmp_path, env=os.environ | library)
    passed = int(re.search(r"(\d+) passed", said)[1])
    assert passed >= 20, said
