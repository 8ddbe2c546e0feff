"""An exported model gives the run's bits: for its nodes, for new ones, from many threads."""

import dataclasses
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import jax
import numpy as np
import pytest
import scipy
from cases import cases, rarely
from flax import nnx
from forks import quick_python
from refusals import refused
from trained import CLASSES, F, N
from trained import untrained as run_of_model

import jgs
from jgs import kernels
from jgs.export import NewNodes
from jgs.export.__main__ import main as export
from jgs.models import GNN, GINEConv
from jgs.sampling.edges.random import threefry
from jgs.train.config import Config
from jgs.train.loop.model import make_model

NEW, WIDE = 5, 12  # new nodes, and features wider than the layers
SEVERAL = {"numbers": True, "mean": [2.5, 0.0, 9.0], "deviation": [3.0, 1.0, 0.5]}


def features_of(rng, num, sparse):
    dense = rng.random((num, WIDE), dtype=np.float32)
    return dense * (rng.random((num, WIDE)) < 0.5) if sparse else dense


@pytest.fixture(scope="module")
def later():
    """A graph with weights whose last nodes are new: the arrays of its edges, the old first."""
    rng = np.random.default_rng(0)
    old = rng.integers(0, N, (2, 2500))
    into = np.stack([rng.integers(0, N + NEW, 40), rng.integers(N, N + NEW, 40)])
    back = np.stack([rng.integers(N, N + NEW, 30), rng.integers(0, N, 30)])
    weight = rng.random(2570, dtype=np.float32)
    return old, into, back, weight


def untrained(model, features, fanouts=(4, 3), **options):
    """A run of a model with its first parameters."""
    known = "gin" if model == "gine" else model
    flags = {"task": "nodes", "model": known, "fanouts": fanouts, "hidden": 8, "seed": 3}
    own = {name: options.pop(name) for name in ("weighted", "replace") if name in options}
    config = Config(**flags, **own)
    sparse = isinstance(features, jgs.SparseFeatures)
    made = make_model(config, WIDE, 3, sparse, threefry(1))
    if model == "gine":  # its layers read the edges' weights
        edge = {"edge_columns": ("weight",), "edge_width": 1, "rngs": nnx.Rngs(1)}
        made = GNN([GINEConv(WIDE, 8, **edge), GINEConv(8, 3, **edge)], rngs=nnx.Rngs(1))
    return run_of_model(made, WIDE, 3, config, sparse=sparse, class_names=None, **options)


MODELS = [
    ("sage", False, {"weighted": True, "multilabel": True}),
    ("gcn", True, {"replace": True, **SEVERAL}),
    ("gatv2", True, {}),
    ("gine", False, {"numbers": True, "mean": 2.5, "deviation": 3.0}),
]


@cases("model, sparse, options", *rarely(MODELS, 2))
def test_answers_have_the_runs_bits(model, sparse, options, later, tmp_path):
    """Whatever the batch sizes, with new nodes too, also where edges lead back from them."""
    old, into, back, weight = later
    rng = np.random.default_rng(1)
    x = features_of(rng, N + NEW, sparse)

    def graph_of(*edges):
        src, dst = np.concatenate(edges, axis=1)
        num = N + NEW if len(edges) > 1 else N
        return jgs.Graph.from_edges(src, dst, num, weight[: src.size])

    def rows(num):
        if not sparse:
            return jax.device_put(x[:num])
        return jgs.SparseFeatures.from_scipy(scipy.sparse.csr_array(x[:num]))

    run = untrained(model, rows(N), **options)
    now = {"graph": graph_of(old), "features": rows(N)}
    sizes = (1, 16) if model == "sage" else (16,)
    spec = jgs.export_run(run, tmp_path / "model", batch_sizes=sizes, **now)
    assert spec.kernel == kernels.available()
    served = jgs.load_exported(tmp_path / "model", **now)
    nodes, key = np.array([7, 250, 7, 0, *range(100, 140)]), jax.random.key(5)
    want = run.predict(nodes, fanouts=(4, 3), key=key, **now)
    jax.tree.map(np.testing.assert_array_equal, served.predict(nodes, key=key), want)
    few = [served.logits(nodes[begin:end]) for begin, end in pairwise((0, 1, 4, 20, 44))]
    want = run.logits(nodes, fanouts=(4, 3), **now)  # the key of the run's seed
    np.testing.assert_array_equal(np.concatenate(few), want)
    ids = np.array([N + 4, 3, N, *back[1], *into[0]])
    for edges in ((into,), (into, back)) if model == "sage" else ((into, back),):
        src, dst = np.concatenate(edges, axis=1)
        new = NewNodes(x[N:], src, dst, weight[2500 : 2500 + src.size])
        then = {"graph": graph_of(old, *edges), "features": rows(N + NEW)}
        want = run.logits(ids, fanouts=(4, 3), key=key, **then)
        np.testing.assert_array_equal(served.logits(ids, new=new, key=key), want)
        of_new = run.predict(np.arange(N, N + NEW), fanouts=(4, 3), **then)
        jax.tree.map(np.testing.assert_array_equal, served.predict(new=new), of_new)
    if model == "sage":
        assert not spec.direct  # features wider than the layer: the last bits would change
        jgs.export_run(run, tmp_path / "direct", direct=True, **now)
        direct = jgs.load_exported(tmp_path / "direct", **now).logits(nodes)
        want = run.logits(nodes, fanouts=(4, 3), **now)
        np.testing.assert_allclose(direct, want, rtol=1e-5, atol=1e-5)
    alone = run.logits(nodes, fanouts=(4, 3), key=key, **now)  # new nodes leave no trace
    np.testing.assert_array_equal(served.logits(nodes, key=key), alone)


_SERVE = """
import json, sys
before = {*sys.modules}  # in a fork, Flax and others
import numpy as np
import jgs
model = jgs.load_exported(sys.argv[1])
training = {"flax", "optax", "orbax", "jgs.train", "jgs.models", "jgs.sampling"}
assert not training & (sys.modules.keys() - before)
np.save(sys.argv[2], model.logits(np.arange(40)))
print(json.dumps([model.kernel, model.class_names[model.predict([3]).prediction].tolist()]))
"""


def test_an_artifact_is_served_without_training_code_or_kernels(
    whole, artifact, tmp_path, monkeypatch, caplog
):
    out, said = artifact
    assert said == {"out": str(out), "bytes": said["bytes"], "run_dir": str(whole.folder)} | (
        json.loads((out / "spec.json").read_text())
    )
    assert said["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert said["inputs"]["features"] == f"float32[n, {F}]"
    assert said["normalization"] == "rows sum to 1"
    assert said["class_names"] == list(CLASSES)
    assert said["direct"]  # features no wider than the layer: the bits below are the same
    run = jgs.open_run(whole.folder, progress=False)
    want = run.logits(np.arange(40), fanouts=(3, 3))
    for off in (True, False) if kernels.available() else (True,):
        more = {"JGS_KERNELS": "off"} if off else {}
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", **more}
        python = sys.executable if off else quick_python()
        command = [python, "-c", _SERVE, str(out), str(tmp_path / "logits.npy")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        best = run.predict([3], fanouts=(3, 3)).prediction
        assert json.loads(done.stdout) == [not off, run.class_names[best].tolist()]
        found = np.load(tmp_path / "logits.npy")
        if off:
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, want)
    # The programs of kernels belong to their version.
    monkeypatch.setattr(jgs, "__version__", "9.9.9")
    other = jgs.load_exported(out)
    assert not other.kernel
    assert not kernels.available() or "without the kernels of jgs 9.9.9" in caplog.text
    np.testing.assert_allclose(other.logits(range(40)), want, rtol=1e-5, atol=1e-5)
    # A raw row is normalised as the run's were: node 9 again, with its edges, is like node 9.
    model, source = jgs.load_exported(out), run.source()
    begin, end = np.asarray(source.graphs[0].indptr)[9:11]
    src = np.asarray(source.graphs[0].indices)[begin:end]
    again = NewNodes(whole.raw[9:10] * 8, src[:4], np.full(src[:4].size, N), raw=True)
    own = NewNodes(np.asarray(source.every_row)[9:10], src[:4], np.full(src[:4].size, N))
    np.testing.assert_allclose(model.logits(new=again), model.logits(new=own), rtol=1e-5)


def test_many_threads_get_the_same_bits_and_compile_nothing(whole, artifact, caplog):
    model = jgs.load_exported(artifact[0], new_nodes=4, new_edges=9, concurrency=2)
    raw = whole.raw
    rng = np.random.default_rng(4)
    requests: list = [(rng.integers(0, N, rng.integers(1, 30)), None) for _ in range(40)]
    for at in range(0, 40, 2):  # half of them bring new nodes
        ends = rng.integers(0, N + 2, 9), rng.integers(0 if at % 4 else N, N + 2, 9)
        requests[at] = (None, NewNodes(raw[at : at + 2], *ends))
    want = [model.logits(nodes, new=new) for nodes, new in requests]
    with jax.log_compiles(), caplog.at_level(logging.WARNING), ThreadPoolExecutor(16) as pool:
        jax.jit(lambda x: x * 2)(3)  # what a compilation looks like
        assert "Compiling" in caplog.text
        caplog.clear()
        found = list(pool.map(lambda each: model.logits(each[0], new=each[1]), requests * 4))
        assert "Compiling" not in caplog.text
    for rows, expected in zip(found, want * 4, strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_a_run_on_parts_serves_the_whole_graph(in_parts, tmp_path):
    """Parts number nodes their own way; an artifact takes the graph in the user's."""
    jgs.export_run(in_parts.folder, tmp_path / "model", batch_sizes=(64,))
    of = {"graph": in_parts.data.graph, "features": in_parts.data.features}
    model = jgs.load_exported(tmp_path / "model", **of)
    run, key, nodes = jgs.open_run(in_parts.folder), threefry(5), np.arange(0, N, 7)
    want = run.logits(nodes, fanouts=(3, 3), key=key, **of)
    np.testing.assert_array_equal(model.logits(nodes, key=key), want)


def test_what_cannot_be_served_is_refused_in_one_line(whole, artifact, tmp_path, capsys):
    out, raw = artifact[0], whole.raw
    model = jgs.load_exported(out, new_nodes=2, new_edges=3)
    one, in_parts = raw[:1], untrained("sage", raw)
    in_parts.config = dataclasses.replace(in_parts.config, partition="parts")
    for words, call in {
        f"node ids in [0, {N})": lambda: model.predict([N]),
        "a Threefry key": lambda: model.predict([1], key=7),
        f"numbers [n, {F}]": lambda: model.predict(new=NewNodes(one[:, 1:], [], [])),
        "at most 2 new nodes": lambda: model.predict(new=NewNodes(raw[:3], [], [])),
        "at most 3 new edges": lambda: model.predict(new=NewNodes(one, [0] * 4, [N] * 4)),
        "the features of the graph must be finite": lambda: jgs.load_exported(
            out, graph=whole.data.graph, features=np.where(raw == raw[3], np.nan, raw)
        ),
        "the features of new nodes must be finite": lambda: model.predict(
            new=NewNodes(one * np.nan, [], [])
        ),
        f"got {N + 1}": lambda: model.predict(new=NewNodes(one, [0], [N + 1])),
        "the exported model's: cpu": lambda: jgs.load_exported(out, platform="rocm"),
        "concurrency must be": lambda: jgs.load_exported(out, concurrency=0),
        f"on the parts in {os.path.abspath('parts')}": lambda: jgs.export_run(
            in_parts, tmp_path / "no", with_graph=True
        ),
        "one of them": lambda: jgs.load_exported(out, features=raw),
        f"[{N}, {F}]": lambda: jgs.load_exported(
            out, graph=whole.data.graph, features=raw[:, 1:]
        ),
        "must be the folder of an exported model": lambda: jgs.load_exported(whole.folder),
        "fanouts of an exported model must be positive": lambda: jgs.export_run(
            whole.folder, tmp_path / "no", fanouts=(4, -1)
        ),
        "platforms must be some of": lambda: jgs.export_run(
            whole.folder, tmp_path / "no", platforms=["abacus"]
        ),
    }.items():
        refused(words, call)
    live, run = jgs.Live(whole.data.graph, raw), jgs.open_run(whole.folder, progress=False)
    for call in (
        lambda: jgs.load_exported(out, graph=live.graph, features=raw),
        lambda: run.predict([1], graph=live.graph, features=raw),
        lambda: jgs.models.top_k(None, raw, [1], [2], 1, known=live.graph),
        lambda: jgs.partition.write_parts(
            tmp_path / "no",
            dataclasses.replace(whole.data, graph=live.graph),
            np.zeros(N, np.int32),
            1,
            method="random",
        ),
    ):
        refused("rows without room", call)
    assert not (tmp_path / "no").exists()
    asked = ["--run-dir", str(whole.folder), "--out"]
    assert export([*asked, str(whole.folder)]) == 2  # what is there is no artifact
    assert export([*asked, str(tmp_path / "no"), "--batch-sizes", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line[:6] for line in lines] == ["error:", "error:"]


@cases(
    "name, change, words",
    ("program.plain.1.npy", lambda b: b[:-9] + bytes(9), "checksum"),
    ("param.0.npy", lambda b: b[:-1], "param.0.npy"),
    ("spec.json", lambda b: b.replace(b'"rows', b'"Rows'), "as it was written"),
    ("spec.json", lambda b: b[:99], "must be whole"),
    ("spec.json", lambda b: b.replace(b'"format": 2', b'"format": 3'), "format 3, written"),
    ("manifest.json", lambda b: b[:-9], "must be whole"),
)
def test_a_damaged_or_newer_artifact_is_one_line(artifact, tmp_path, name, change, words):
    copy = tmp_path / "model"
    copy.mkdir()
    for path in artifact[0].iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / name).write_bytes(change((copy / name).read_bytes()))
    refused(words, jgs.load_exported, copy)
