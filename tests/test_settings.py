"""Settings of JAX and of the environment change no sample, and other results to rounding."""

import contextlib
import functools
import gc
import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from flax import nnx
from forks import ended, quick_python, ran

import jgs
from jgs import kernels, ops
from jgs.kernels.call import where_it_is
from jgs.models import MODELS
from jgs.sampling import (
    ASGCN,
    PASS,
    Labor,
    Ladies,
    Loader,
    Neighbors,
    Node2Vec,
    PinSage,
    Saint,
    Seal,
    Seeds,
    Shadow,
    Thanos,
    Walk,
    plan_capacity,
)
from jgs.sampling.loading.sending import Ahead
from jgs.train import exact_inference
from jgs.train.__main__ import main
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

N, E, F, C = 40, 200, 5, 3
SEEDS = np.arange(16, dtype=np.int32)
SAMPLERS = {
    "uniform": Neighbors((3, 2), edge_ids=True),
    "weighted": Neighbors((3, 2), weighted=True, edge_weights=True),
    "repeated": Neighbors((3, 2), replace=True),
    "labor": Labor((3, 2)),
    "ladies": Ladies((8, 8)),
    "shadow": Shadow((3, 2)),
    "seal": Seal((3, 2)),
    "saint": Saint("walk", 5, length=2),
    "pinsage": PinSage((3, 2), 10, 4),
}
WALKERS = {"walk": Walk(3), "node2vec": Node2Vec(3, 2.0, 0.5)}
LEARNERS = {"asgcn": ASGCN((8,)), "pass": PASS((3,), width=4), "thanos": Thanos((3,))}


@functools.cache
def data():
    """The graph, features, labels, and a Threefry key."""
    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, N, (2, E)), rng.random(E).astype(np.float32)
    features, labels = rng.normal(size=(N, F)).astype(np.float32), rng.integers(0, C, N)
    graph = jgs.Graph.from_edges(*ends, N, weight).sorted().with_node_columns(features=features)
    arrays = jax.device_put((features, labels.astype(np.int32)))
    return graph, *arrays, jax.random.key(3, impl="threefry2x32")


@functools.cache
def graph_of(typed, timed):
    """The edges of `data`, each of one of two relations if `typed`, with times if `timed`."""
    ends, time = np.random.default_rng(0).integers(0, N, (2, E)), np.arange(E) * 10**9
    if not typed:
        return jgs.Graph.from_edges(*ends, N, edge_time=time) if timed else data()[0]
    parts = {("node", "ab"[i], "node"): slice(i, None, 2) for i in range(2)}
    edges = {relation: ends[:, part] for relation, part in parts.items()}
    times = {relation: time[part] for relation, part in parts.items()} if timed else None
    return jgs.Graph.from_relations({"node": N}, edges, edge_time=times)


def loader(sampler, **options):
    columns, seeds = getattr(sampler, "edges", ()), SEEDS
    timed, key = "elapsed" in columns, data()[-1]
    if timed:
        seeds = Seeds(SEEDS, np.arange(16) * 15 * 10**9)
    if isinstance(sampler, Seal):
        seeds = np.stack([SEEDS, SEEDS[::-1]], axis=1)
    graph = graph_of("type" in columns, timed)
    return Loader(graph, seeds, 8, sampler, key=key, prefetch=0, **options)


def batches(sampler):
    return lambda: list(loader(sampler, super_batch=2))


def walks(walker):
    def draw():
        graph, *_, key = data()
        state = walker.init(graph)
        return jax.jit(walker.sample)(key, graph, state, jax.device_put(SEEDS))

    return draw


def plan():
    return plan_capacity(data()[0], 8, Neighbors((3, 2)))


def operations():
    """Reductions of gathered rows, and their derivatives."""
    _, features, *_ = data()
    batch = next(iter(loader(SAMPLERS["weighted"])))

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def both(features):
        x = ops.gather(features, batch.nodes)
        found = [ops.aggregate(batch.blocks[0], x, reduce) for reduce in ops.REDUCTIONS]
        return sum(jnp.sum(rows**2) for rows in found), found

    return both(features)


def model_of(name, key, in_features=F):
    """Flax makes parameters of Python's numbers, which no transfer guard lets pass."""
    widths, own = (in_features, 4, C, 2), {}
    if getattr(MODELS[name], "typed", False):
        widths, own = ((in_features,), 4, C, 2), {"schema": graph_of(True, False).schema}
    if name.startswith(("gat", "rgat", "hgt")):
        own["heads"] = 2
    if getattr(MODELS[name], "timed", False):
        widths, own = (*widths[:3], 1), own | {"time_width": 5}
    with jax.transfer_guard("allow"):
        rngs = nnx.Rngs(key)
        return MODELS[name](*widths, dropout=0.5, norm="layer", rngs=rngs, **own)


def training(name):
    """Two steps, and exact evaluation after them if the model has one."""

    def train():
        graph, features, labels, key = data()
        model = model_of(name, key)
        graph = graph_of(True, False) if model.edge_columns else graph
        graphdef, params = nnx.split(model)
        optimizer = make_optimizer(0.01)
        state, step = init_state(params, optimizer), make_train_step(graphdef, optimizer)
        fanouts = (3, 2)[: len(model.layers)]
        if model.timed and "type" in model.edge_columns:  # a draw for each relation
            fanouts = ({"*": 3},)
        for batch in loader(Neighbors(fanouts, edges=model.edge_columns)):
            batch = batch.with_degrees(graph.degrees())
            x = ops.gather(features, batch.nodes)
            state = step(state, key, batch, x, labels)
        if model.timed:
            return state.loss_sum, state.params
        return state.loss_sum, exact_inference(model, graph, features)(state.params, SEEDS)

    return train


def learning(sampler):
    """What an adaptive sampler has learned from one step."""

    def learn():
        _, features, labels, key = data()
        with jax.transfer_guard("allow"):
            rngs = nnx.Rngs(key)
            model = jgs.models.GNN([jgs.models.SAGEConv(F, C, rngs=rngs)], rngs=rngs)
        graphdef, params = nnx.split(model)
        optimizer = make_optimizer(0.01)
        step = make_train_step(graphdef, optimizer, feedback=True)
        drawn = loader(sampler)
        batch = next(iter(drawn))
        x = ops.gather(features, batch.nodes)
        _, feedback = step(init_state(params, optimizer), key, batch, x, labels)
        drawn.source.learning.yielded += 1
        drawn.update(batch, feedback)
        return drawn.sampler_state

    return learn


SAMPLES = {name: batches(sampler) for name, sampler in SAMPLERS.items()}
SAMPLES |= {name: walks(walker) for name, walker in WALKERS.items()} | {"plan": plan}
VALUES = {"operations": operations} | {name: training(name) for name in MODELS}
VALUES |= {name: learning(sampler) for name, sampler in LEARNERS.items()}
PIECES = SAMPLES | VALUES
FEW = ("uniform", "ladies", "walk", "operations", "sage")

SETTINGS = {  # each with the pieces that run under it
    "nothing is done silently": (
        lambda: _all(
            jax.numpy_rank_promotion("raise"),
            jax.numpy_dtype_promotion("strict"),
            jax.transfer_guard("disallow"),
            jax.default_prng_impl("rbg"),
            jax.legacy_prng_key("error"),
        ),
        PIECES,
    ),
    "64 bits": (lambda: jax.enable_x64(True), [*SAMPLES, "operations"]),
    "checks": (
        lambda: _all(
            _anew(), jax.debug_nans(True), jax.enable_checks(True), jax.checking_leaks()
        ),
        FEW,
    ),
    "no compilation": (jax.disable_jit, ("uniform", "weighted", "labor", "operations")),
}
ENVIRONMENT = {
    "JGS_KERNELS": "off",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_LEGACY_PRNG_KEY": "error",
    "JAX_CHECK_TRACER_LEAKS": "1",
}


@contextlib.contextmanager
def _all(*contexts):
    with contextlib.ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield


@contextlib.contextmanager
def _anew():
    """Everything is traced again: a leak is seen by functions that no test traced before. Each
    trace searches the heap for cycles, without the objects that are there already."""
    jax.clear_caches()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def arrays_of(piece):
    leaves = jax.tree.leaves(PIECES[piece]())
    return [np.asarray(leaf) for leaf in jax.device_get(leaves)]


@pytest.fixture(scope="module")
def usual():
    """The arrays of a piece under JAX's defaults. Graphs are made under these alone."""
    for typed, timed in ((False, False), (False, True), (True, False), (True, True)):
        graph_of(typed, timed)
    return functools.cache(arrays_of)


def check_same(piece, found, usual):
    assert len(found) == len(usual)
    for array, expected in zip(found, usual, strict=True):
        if piece in SAMPLES:
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)
        else:
            np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-5)


CASES = [(setting, piece) for setting, (_, pieces) in SETTINGS.items() for piece in pieces]
# Of the models and of the samplers that learn one of a kind: plain, typed, timed, a bandit.
KINDS = {"operations", "sage", "rgcn", "tgat", "thanos"}
OTHERS = [i for i, (_, piece) in enumerate(CASES) if piece in VALUES and piece not in KINDS]


@pytest.mark.parametrize(("setting", "piece"), rarely(CASES, *OTHERS))
def test_a_setting_changes_nothing(setting, piece, usual):
    """Of models only one is compared: all share the step and its keys."""
    with SETTINGS[setting][0]():
        found = arrays_of(piece)
    if piece in SAMPLES or piece in FEW:
        check_same(piece, found, usual(piece))


def test_a_kernel_refers_to_no_traced_array_but_its_operands():
    def product(x, y):
        return where_it_is(lambda x: x * y, lambda x: x * y, x)

    with pytest.raises(TypeError, match="refers to a traced array"):
        jax.jit(product)(1.0, 2.0)


def test_all_at_once_from_the_environment_and_without_kernels(usual, tmp_path):
    pieces = ["uniform", "weighted", "walk", "operations", "sage"]
    command = [quick_python(), __file__, tmp_path, *pieces]
    done = ended(*command, env=os.environ | ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")  # `off` was asked for: no warning
    assert done.stdout == "no kernels\n"
    for piece in pieces:
        with np.load(tmp_path / f"{piece}.npz") as saved:
            check_same(piece, list(saved.values()), usual(piece))


def test_the_loaders_thread_has_the_settings_of_its_maker():
    names = [n for n in dir(jax.config) if n.startswith("jax_")]

    def seen():
        yield {n: getattr(jax.config, n) for n in names}

    usual = next(seen())
    with _all(
        jax.default_matmul_precision("float32"),
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.default_prng_impl("rbg"),
        jax.legacy_prng_key("error"),
        jax.transfer_guard("disallow"),
        jax.enable_x64(True),
        jax.debug_nans(True),
        jax.disable_jit(True),
        jax.check_tracer_leaks(True),
    ):
        here = next(seen())
        ahead = Ahead(seen(), 1)
    there = next(ahead)
    ahead.stop()
    assert sum(here[name] != usual[name] for name in names) >= 10
    for settings in (here, there):  # the three guards that it sets say all
        del settings["jax_transfer_guard"]
    assert there == here


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_lie_where_their_graph_lies(prefetch):
    (src, dst), device = np.random.default_rng(1).integers(0, N, (2, E)), jax.devices()[1]
    key = data()[-1]
    with jax.default_device(device):
        graph = jgs.Graph.from_edges(src, dst, N)
        found = list(Loader(graph, SEEDS, 8, (2,), key=key, prefetch=prefetch))
    devices = {d for leaf in jax.tree.leaves((graph, found)) for d in leaf.devices()}
    assert devices == {device}


if __name__ == "__main__":
    print("kernels" if kernels.available() else "no kernels")
    for name in sys.argv[2:]:
        np.savez(f"{sys.argv[1]}/{name}.npz", *arrays_of(name))


SMALL = """
    --data-options num_nodes=400 num_edges=3000 num_features=8 num_classes=3 --fanouts 3
    --hidden 8 --batch-size 40 --epochs 1 --no-progress
"""


def train(run_dir, **variables):
    argv = [quick_python(), "-m", "jgs.train", *SMALL.split(), "--run-dir", run_dir]
    return ended(*argv, env=os.environ | variables)


def test_settings_of_jax_and_matplotlib_change_nothing(tmp_path, capsys):
    assert main([*SMALL.split(), "--run-dir", str(tmp_path / "plain")]) == 0
    plain = json.loads(capsys.readouterr().out)
    other = train(
        tmp_path / "other",
        JAX_NUMPY_DTYPE_PROMOTION="strict",
        JAX_NUMPY_RANK_PROMOTION="raise",
        JAX_TRANSFER_GUARD="disallow",
        JAX_DEFAULT_PRNG_IMPL="rbg",
        JAX_THREEFRY_PARTITIONABLE="0",
        MPLBACKEND="bogus",
    )
    assert other.returncode == 0, other.stderr
    assert json.loads(other.stdout)["params_sha256"] == plain["params_sha256"]
    assert other.stderr.splitlines()[-1].startswith("no curve.png: Key backend: 'bogus'")


def test_a_platform_that_jax_does_not_know(tmp_path):
    done = train(tmp_path / "run", JAX_PLATFORMS="foo")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: JAX must find the platform")
    assert "JAX_PLATFORMS" in line


def test_commands_answer_before_jax_is_imported():
    code = (
        "import sys, jgs, jgs.train.__main__, jgs.partition.__main__, jgs.predict.__main__\n"
        "assert 'jax' not in sys.modules\n"
        "assert 'Graph' in dir(jgs) and jgs.Graph is jgs.graph.Graph\n"
        "from jgs import Block, MiniBatch, SparseFeatures\n"
        "import jgs.train.tasks.task\n"
        # `import scipy` is quick: SciPy imports its own packages when they are first used.
        "assert 'scipy.sparse' not in sys.modules and 'scipy.special' not in sys.modules"
    )
    # A fork of `quick_python` has imported JAX.
    ran(sys.executable, "-c", code)
