"""A graph whose rows are read ahead: the same samples, by whatever draws them."""

import re
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from refusals import refused

import jgs
from jgs import kernels
from jgs.graph import read_ahead
from jgs.sampling import Labor, Loader, Neighbors

N = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, 60_000))
    dst[:20_000] = 7  # a row of 20 pages
    where = tmp_path_factory.mktemp("graph") / "g"
    times = rng.integers(0, 100, src.size)
    jgs.Graph.from_edges(src, dst, N, rng.random(src.size), edge_time=times).save(where)
    return where


@pytest.fixture(autouse=True)
def ended(folder):
    yield
    read_ahead(jgs.Graph.open(folder), threads=0)


@pytest.mark.parametrize(
    ("sampler", "threads"),
    [
        (Neighbors((4, 3)), 1),
        (Neighbors((3, 3), weighted=True), 32),
        (Neighbors((400, 2), replace=True), 32),  # of more edges than are read ahead together
        (Labor((4, 3)), 32),
    ],
    ids=repr,
)
def test_samples_are_the_same(folder, sampler, threads, same_bits):
    graph = jgs.Graph.open(folder)
    items = {"nodes": np.arange(N), "time": np.full(N, 60)}
    for seeds in (np.arange(N), items)[: 1 if "weighted=True" in repr(sampler) else 2]:
        graphs = graph, read_ahead(graph, threads)
        same_bits(*(batches(each, seeds, sampler) for each in graphs))


def batches(graph, seeds, sampler):
    return list(Loader(graph, seeds, 200, sampler, key=jax.random.key(0)))


@pytest.mark.skipif(not kernels.available(), reason="only the kernels read ahead")
@pytest.mark.parametrize("sampler", [Neighbors((4,)), Labor((4,))], ids=repr)
def test_what_is_drawn_is_read_in_a_mapping_of_its_own(folder, sampler):
    def in_memory():
        """Bytes of the edges' pages that the mapping for reading ahead has in memory."""
        mappings = Path("/proc/self/smaps").read_text().split("VmFlags:")
        texts = pairwise(mappings)
        own = [text for text, flags in texts if " rr " in flags.partition("\n")[0] + " "]
        sizes = [re.search(r"Rss: +(\d+)", each)[1] for each in own if str(folder) in each]
        return sum(map(int, sizes)) << 10

    ahead = read_ahead(jgs.Graph.open(folder))
    assert in_memory() == 0
    seeds = np.arange(8, 20)  # of short rows
    next(iter(Loader(ahead, seeds, 12, sampler, key=jax.random.key(0), prefetch=0)))
    assert 0 < in_memory() <= 4 * 60_000


def test_other_graphs(folder):
    graph = jgs.Graph.open(folder)
    ahead = read_ahead(graph)
    rng = np.random.default_rng(1)
    other = jgs.Graph.from_edges(*rng.integers(0, N, (2, 900)), N)  # in memory
    for each in (other, graph, ahead):
        batch = next(iter(Loader(each, np.arange(N), 20, (3,), key=jax.random.key(0))))
        assert batch.num_nodes == N
    if kernels.available():  # a second mapping of the file, for the touches, until it ends
        mapped = Path("/proc/self/maps").read_text().count(f"{folder}/indices.npy")
        read_ahead(graph, threads=0)
        left = Path("/proc/self/maps").read_text().count(f"{folder}/indices.npy")
        assert mapped == left + 1
    refused("must be memory-mapped", read_ahead, other)


def test_draws_by_relation_are_the_same(tmp_path, same_bits):
    rng = np.random.default_rng(0)
    relations = {
        ("user", "buys", "item"): rng.integers(0, (200, 90), (9000, 2)).T,
        ("item", "of", "user"): rng.integers(0, (90, 200), (9000, 2)).T,
    }
    jgs.Graph.from_relations({"user": 200, "item": 90}, relations).save(tmp_path / "g")
    graph = jgs.Graph.open(tmp_path / "g")
    sampler = Neighbors(({("user", "buys", "item"): 9, ("item", "of", "user"): 5},) * 2)
    same_bits(*(batches(each, np.arange(200), sampler) for each in (graph, read_ahead(graph))))
    read_ahead(graph, threads=0)
