"""The kernels for NVIDIA GPUs. Here their steps run on the host (`host_launcher.h`), behind the
same bindings, and draw what plain JAX draws. On a GPU they run with JGS_CUDA=1."""

import ctypes
import os
import shutil
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
from blocks import random_block
from cases import cases, rarely
from compiling import SOURCES, TESTS, compiled, run
from derivatives import pulled_aggregate
from forks import quick_python

import jgs
from jgs import kernels
from jgs.kernels import call
from jgs.sampling import Neighbors
from jgs.sampling.capacity import Capacity

pytestmark = [
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler"),
    pytest.mark.skipif(not kernels.available(), reason="kernels are not in use"),
]
HEADERS = os.path.join(os.path.dirname(jaxlib.__file__), "include")
TARGETS = kernels._CUDA_HANDLERS
GPUS = [d for d in jax.devices() if d.platform == "gpu"] if kernels.registered("cuda") else []


@pytest.fixture(scope="session")
def library():
    source = ("-x", "c++", SOURCES / "device_ffi.cu", "-DJGS_EMULATED")
    flags = ("-O0", "-shared", "-fPIC", "-I", TESTS, "-isystem", HEADERS)
    if sanitizers := os.environ.get("JGS_SANITIZE"):  # in `make sanitize`
        flags += (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    name = f"libjgs_device{'_sanitized' if sanitizers else ''}.so"
    return compiled(name, *flags, *source)


_HANDLER = jax.make_user_context()  # JAX reuses no function that was traced with another value
_emulated: list = []


@pytest.fixture(params=["emulated", *["gpu"] * bool(GPUS)])
def device(request, library, monkeypatch):
    """The device that a kernel runs on."""
    if request.param == "gpu":
        return GPUS[0]
    if not _emulated:
        _emulated.append(ctypes.CDLL(str(library)))
        for target, symbol in TARGETS.items():
            handler = jax.ffi.pycapsule(getattr(_emulated[0], symbol))
            jax.ffi.register_ffi_target(f"emulated_{target}", handler, platform="cpu")
    handler = call.handler

    def emulated(target, out, **options):
        return handler(f"emulated_{target}" if target in TARGETS else target, out, **options)

    monkeypatch.setattr(call, "handler", emulated)
    return jax.devices("cpu")[0]


def both(device, program, *operands):
    """What a program computes by the kernels of the device, and in plain JAX."""
    operands = jgs.to_device(operands, device)
    with _HANDLER(str(device)):
        lowered = jax.jit(program).lower(*operands)
        found = jax.device_get(lowered.compile()(*operands))
    prefix = "emulated_jgs_" if device.platform == "cpu" else "jgs_"
    assert f"@{prefix}" in lowered.as_text()
    with kernels.plain():
        return found, jax.device_get(jax.jit(program)(*operands))


KEY, KEYS = jax.random.key(3), jax.random.split(jax.random.key(3), 4)
SEEDS = np.array([3, 50, 0, 60, 3, 12, 59, 60], np.int32)  # 60 is padding
COLUMNS = {"edge_ids": True, "edge_weights": True}
SAMPLES = {
    "columns": (Neighbors((3, 2), **COLUMNS), KEY, SEEDS, None),
    "replace": (Neighbors((3, 2), replace=True), KEY, SEEDS, None),
    "all": (Neighbors((-1, 2), edge_ids=True), KEY, SEEDS, None),
    "many, direct": (Neighbors((2, 40), relabel_inputs=False, **COLUMNS), KEY, SEEDS, None),
    "edges do not fit": (Neighbors((3, 2)), KEY, SEEDS, Capacity((40, 5), (40, 60))),
    "sources do not fit": (Neighbors((3, 2)), KEY, SEEDS, Capacity((40, 60), (9, 60))),
    "no node": (Neighbors((3, 2)), KEY, np.array([3, -1, 2], np.int32), None),
    "batches": (Neighbors((3, 2)), KEYS, np.arange(32, dtype=np.int32).reshape(4, 8), None),
}


@pytest.mark.parametrize("case", rarely(SAMPLES, 1, 4, 6))
def test_samples_are_those_of_plain_jax(case, device, same_bits, make_graph):
    sampler, key, seeds, room = SAMPLES[case]
    size = 4000 if case == "columns" else 60  # many nodes are hashed
    graph, seeds = make_graph(size, 8 * size), np.where(seeds == 60, size, seeds)
    room = room or sampler.bound(jgs.sampling.GraphShape.of(graph), seeds.shape[-1])

    def draw(key, graph, seeds):
        return sampler.sample(key, graph, (), seeds, room)

    found, plain = both(device, draw, jax.random.key_data(key), graph, seeds)
    same_bits(found, plain)
    overflows = case in ("edges do not fit", "sources do not fit", "no node")
    assert np.all(found.overflow) == overflows


@cases("reduce, weighted", ("sum", True), ("mean", False), ("max", True))
def test_sums_and_gradients_are_those_of_plain_jax(reduce, weighted, device):
    rng = np.random.default_rng(4)
    block = random_block(rng, weighted, num_targets=150)
    indices = np.asarray(block.indices).copy()
    indices[:500] = 7  # so many edges are more than a piece
    block = replace(block, indices=jnp.asarray(indices))
    rows = [rng.standard_normal((n, 6)).astype(np.float32) for n in (154, 154)]
    found, plain = both(device, pulled_aggregate(reduce), block, *rows)
    for got, want in zip(*map(jax.tree.leaves, (found, plain)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_the_steps_in_any_order_and_without_undefined_behaviour():
    """Offsets beyond 2**31, hashed nodes and damaged arrays, too."""
    flags = ("-O0", "-Wall", "-Wextra", "-fsanitize=address,undefined")
    flags += ("-fno-sanitize-recover=all", "-I", TESTS)
    library = kernels.library()
    program = compiled("device_test", *flags, TESTS / "device_test.cc", library)
    assert "runs equal" in run(program, LD_LIBRARY_PATH=str(library.parent))


LOWERED = """
import jax, jax.numpy as jnp
from jgs import Graph, kernels, ops
from jgs.sampling import Neighbors

graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3, [1.0, 2.0, 3.0])

def loss(x, key, graph, weighted):
    sampler = Neighbors((2,), weighted=weighted)
    batch = sampler.sample(key, graph, (), jnp.arange(2), None)
    return ops.aggregate(batch.blocks[0], x, "sum").sum()

for weighted in (False, True):
    traced = jax.jit(jax.grad(loss), static_argnums=3).trace(
        jnp.ones((5, 4)), jax.random.key(0), graph, weighted)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        print(platform, *[name for name in kernels.HANDLERS if f"@{name}(" in text])
"""


def test_programs_for_gpus_have_the_kernels_if_asked(library):
    def lines(**environment):
        return run(quick_python(), "-c", LOWERED, **environment).splitlines()

    sums = "jgs_aggregate jgs_aggregate_grad"
    with_kernels = [f"cuda {sums} jgs_sample_uniform", "tpu", f"cuda {sums}", "tpu"]
    assert lines(JGS_CUDA=str(library)) == with_kernels
    with pytest.raises(AssertionError, match="InputError: JGS_CUDA must be 1 where"):
        lines(JGS_CUDA=str(SOURCES / "draw.h"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no CUDA compiler")
def test_nvcc_compiles_them(tmp_path):
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-S", SOURCES, "-B", tmp_path, python, "-DJGS_CUDA=ON")
    run("cmake", "--build", tmp_path, "--target", "jgs_cuda")
    library = tmp_path / "libjgs_cuda.so"
    text = run(quick_python(), "-c", LOWERED, JGS_CUDA=str(library))
    assert text.splitlines()[0] == "cuda jgs_aggregate jgs_aggregate_grad jgs_sample_uniform"
    found = library.read_bytes()
    assert all(name.encode() in found for name in ("sm_80", "sm_90", "compute_90"))
