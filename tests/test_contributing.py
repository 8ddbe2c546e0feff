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
import importlib.machinery
import sys
from pathlib import Path

sys.meta_path.insert(0, importlib.machinery.PathFinder)  # before that of an editable install

import jax
import numpy as np
from flax import nnx

import jgs
from jgs.data.__main__ import ABOUT
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


def data_set():
    folder = HERE / "texas"
    folder.mkdir()
    nodes = ["node_id\\tfeature\\tlabel", "1\\t0,1,1\\t2", "0\\t1,0,0\\t0", "2\\t0,0,1\\t1"]
    (folder / "out1_node_feature_label.txt").write_text("\\n".join(nodes))
    (folder / "out1_graph_edges.txt").write_text("node_id\\tnode_id\\n0\\t1\\n2\\t1\\n")
    eye = np.eye(3, dtype=int)
    masks = {"train_mask": eye[0], "val_mask": eye[1], "test_mask": eye[2]}
    np.savez(folder / "texas_split_0.6_0.2_0.npz", **masks)
    data = jgs.data.load("texas", HERE)
    assert data.graph.edge_index().tolist() == [[0, 2], [1, 1]]
    assert np.asarray(data.features).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert (data.labels.tolist(), data.val_idx.tolist()) == ([0, 2, 1], [1])
    assert list(ABOUT) == list(jgs.data.LOADERS)


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


for check in (layer_and_task, data_set, sampler, decoder):
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
    library = {"JGS_KERNELS": str(kernels.library() or "off")}
    said = ran(quick_python(), tmp_path / "check.py", cwd=tmp_path, env=os.environ | library)
    assert said.split() == ["layer_and_task", "data_set", "sampler", "decoder"]
    (tmp_path / "own_tests.py").write_text(OWN_TESTS)
    command = (quick_python(), tmp_path / "own_tests.py", tmp_path, REPOSITORY / "tests")
    said = ran(*command, cwd=tmp_path, env=os.environ | library)
    passed = int(re.search(r"(\d+) passed", said)[1])
    assert passed >= 20, said
