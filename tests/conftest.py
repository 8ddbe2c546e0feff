"""What tests share: the folder of the real graphs, and how to draw in each implementation."""

import ctypes
import functools
import gc
import os
import re
import signal
from pathlib import Path

import programs

# Set before JAX starts: this process has a mesh of four devices. Other tests use the first.
os.environ.setdefault("XLA_FLAGS", programs.quickly(devices=4))
os.environ.update(programs.kept(Path(__file__).parents[1] / "build" / "programs"))
# Processes that the tests start keep their byte code, too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import jax
import numpy as np
import pytest
from xdist.scheduler import LoadFileScheduling

import jgs
from jgs import kernels
from jgs.devices import compute_on_host

REPOSITORY = Path(__file__).parents[1]
# Tracing makes millions of small objects that live on: fewer searches among them for cycles.
gc.set_threshold(50_000, *gc.get_threshold()[1:])


@functools.cache
def _starts_ranks(path: Path) -> bool:
    return bool(re.search("^from ranks import", path.read_text(), re.MULTILINE))


class _Scheduler(LoadFileScheduling):
    """One set of ranks runs at a time. `test_protocol.py`, the longest, is in pieces."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file.endswith("test_protocol.py"):
            return file + nodeid.partition("[")[2].partition("(")[0]
        return "ranks" if _starts_ranks(self.config.rootpath / file) else file


def pytest_xdist_auto_num_workers(config):
    """One process more than CPUs: those that wait for ranks leave theirs to others."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_xdist_make_scheduler(config, log):
    return _Scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items):
    """The longest files come first: those that start ranks, that of every sampler, those of
    training. So no process works alone at the end."""
    long = (lambda p: p.name == "test_protocol.py"), (lambda p: p.parent.name == "train")
    items.sort(
        key=lambda i: (not _starts_ranks(i.path), *(not is_it(i.path) for is_it in long))
    )


if jax.default_backend() != "cpu":  # most tests compare with the kernels' bits and sums
    compute_on_host()


_MOST_MAPS, _FEW_BYTES, _MOST_BYTES = 40_000, 1 << 28, 3 << 29
_resident_after = 0  # bytes, since programs were last dropped


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _holds_too_much() -> bool:
    """XLA aborts a process with 65,530 memory maps; what JAX traced holds gigabytes."""
    more = _resident() - _resident_after
    if more < _FEW_BYTES:
        return False
    maps = Path("/proc/self/maps").read_bytes().count(b"\n")
    return maps > _MOST_MAPS or more > _MOST_BYTES


@pytest.fixture(autouse=True)
def _forget_programs():
    """Drops the compiled programs once they are many."""
    global _resident_after
    yield
    if _holds_too_much():
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _resident_after = _resident()


# Tests of these trace for every platform, as users' own programs do.
_EVERY_PLATFORM = {"ops", "kernels", "matrix", "test_lowering.py", "test_neighbors.py"}
_EVERY_PLATFORM |= {"test_examples.py"}


@pytest.fixture(scope="module", autouse=True)
def _for_this_host(request):
    """Other tests trace for this host alone, as the commands do: without the plain forms."""
    with kernels.this_host_only(_EVERY_PLATFORM.isdisjoint(request.path.parts)):
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the real graphs: JGS_TEST_DATA, by default ../shared/data."""
    folder = Path(os.environ.get("JGS_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "cora.npz").is_file():
        pytest.skip(f"no real graphs in {folder}: set JGS_TEST_DATA")
    return folder


@pytest.fixture
def interruptible():
    """Has Ctrl-C act as on a terminal; the background jobs of a shell ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_CHOSEN = jax.make_user_context()  # JAX reuses no program that was traced with another value


@pytest.fixture
def implemented(monkeypatch):
    """`implemented(kernels, threads)`: programs that are called from now on use these two."""

    def choose(available, threads=2):
        monkeypatch.setattr(kernels, "_AVAILABLE", available)
        monkeypatch.setattr(kernels, "NUM_THREADS", threads)
        _CHOSEN.set_global((available, threads))

    yield choose
    _CHOSEN.set_global(None)


@pytest.fixture
def noted(monkeypatch):
    """`noted(owner, name)`: the arguments of each call of a function, which works as before."""

    def noted(owner, name):
        calls, function = [], getattr(owner, name)

        def call(*arguments, **options):
            calls.append(arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, call)
        return calls

    return noted


def assert_same_bits(a, b) -> None:
    """Asserts that two pytrees are equal in structure, dtypes, shapes and every bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True
    ):
        assert x.dtype == y.dtype, jax.tree_util.keystr(path)
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


@pytest.fixture(scope="session")
def same_bits():
    return assert_same_bits


def drawn_neighbors(batch: jgs.MiniBatch) -> list[dict[int, list[int]]]:
    """Per hop, the seeds' first: each target's drawn neighbours as node ids, in order."""
    nodes = np.asarray(batch.nodes)
    hops = []
    for block in batch.blocks[::-1]:
        indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
        rows = {}
        for t in range(int(block.num_targets)):
            rows[int(nodes[t])] = nodes[indices[indptr[t] : indptr[t + 1]]].tolist()
        hops.append(rows)
    return hops


@pytest.fixture(scope="session")
def neighbors_of():
    return drawn_neighbors


@functools.cache
def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> jgs.Graph:
    """A skewed random multigraph with weights, a third of them 0."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, num_nodes, num_edges)
    dst = (rng.random(num_edges) ** 3 * num_nodes).astype(int)
    weight = rng.random(num_edges) ** 4 * (rng.random(num_edges) > 1 / 3)
    return jgs.Graph.from_edges(src, dst, num_nodes, weight.astype(np.float32))


@pytest.fixture(scope="session")
def make_graph():
    return random_graph
