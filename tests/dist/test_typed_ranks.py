"""`rank_loader` on parts of a typed graph: N ranks get what one gets, in 2 rounds a step."""

import jax
import numpy as np
import pytest
import scipy.sparse
from check_training import draws
from small_ranks import dense_rows, ranks_of

from jgs import Graph
from jgs.data import Dataset
from jgs.dist import RankParts, open_parts, rank_loader
from jgs.dist.batches.plan import CachePlan
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.partition.folder import write_parts
from jgs.sampling import HetGNN, Neighbors

COUNTS = {"author": 400, "paper": 200, "tag": 300, "venue": 20}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    rng = np.random.default_rng(0)

    def ends(src, dst, num):
        skewed = (COUNTS[src] * rng.random(num) ** 3).astype(int)
        return skewed, rng.integers(0, COUNTS[dst], num)

    edges = {
        ("author", "writes", "paper"): ends("author", "paper", 1500),
        ("paper", "has", "tag"): ends("paper", "tag", 900),
        ("paper", "at", "venue"): ends("paper", "venue", 200),
    }
    graph = Graph.from_relations(COUNTS, edges, both_ways=True)
    features = {
        "author": rng.standard_normal((400, 3)).astype(np.float32),
        "paper": scipy.sparse.random(200, 40, 0.1, "csr", np.float32, rng),
        "tag": rng.standard_normal((300, 5)).astype(np.float16),
    }
    labels, splits = {"paper": np.arange(200) % 3}, {"train": np.arange(120)}
    data = Dataset.from_arrays(graph, features, labels, splits, name="typed")
    folder = tmp_path_factory.mktemp("ranks") / "parts"
    assignment = rng.integers(0, 2, graph.num_nodes).astype(np.int32)
    write_parts(folder, data, assignment, 2, method="random")
    return open_parts(folder)


def run(comm, parts, batch_size, devices=None, **options):
    """The rows of each step's nodes by id, the rounds, those in excess, and the bytes."""
    where = devices or comm
    sampler = Neighbors((4, 3), edges=("type",))
    of_run = {"key": jax.random.key(3), "prefetch": 0} | options
    seen, sent = [], []
    with rank_loader(comm, RankParts(comm, parts), batch_size, sampler, **of_run) as batches:
        source = batches.source
        for _ in range(2):
            before = source.counters.bytes
            for batch, x in batches:
                step = {}
                for own, rows in zip(where.local(batch), where.local(x), strict=True):
                    nodes = np.asarray(own.nodes)
                    if devices is not None:
                        assert all(t is None or t.shape[0] < 300 for t in rows.tables)
                    kinds, places = np.asarray(rows.kind), np.asarray(rows.place)
                    for number, table in enumerate(rows.tables):
                        at = np.flatnonzero(kinds == number)
                        found = dense_rows(table, places[at]).tolist()
                        step |= dict(zip(nodes[at].tolist(), found, strict=True))
                seen.append(step)
            sent.append(source.counters.bytes - before)
        return seen, source.rounds, source.extra_rounds, sent[1]


@pytest.fixture(scope="module")
def alone(parts):
    seen, rounds, *_ = run(Alone(), parts, 20)
    assert rounds == 0
    return seen


def test_ranks_read_the_rows_that_one_reads(parts, alone):
    """Also with each cache, which asks for less; that of a trial keeps too few rows here."""
    comm, sent = ranks_of(2), {}
    for cache in ("none", "trial", "degree", "planned"):
        seen, rounds, extra, sent[cache] = run(comm, parts, 10, cache=cache)
        assert seen == alone, cache
        assert rounds - extra == 2 * len(seen) == 24
    assert max(sent["degree"], sent["planned"]) < sent["none"]
    assert sent["trial"] <= sent["none"]


def test_devices_that_share_a_batch_read_the_rows_that_one_reads(parts, alone):
    """Without the tables that they lie in."""
    two = Mesh(jax.devices()[1:3])
    seen, *_ = run(Alone(), parts, 20, devices=two, device=two.sharding)
    assert seen == alone


def test_ranks_draw_neighbors_of_each_type_as_one_does(parts):
    """A node draws the same on whichever rank it is drawn."""
    drawn, sampler = [], HetGNN((3, 2), 30, 4)
    for size in (1, 2):
        comm, found = ranks_of(size), {}
        options = {"key": jax.random.key(3), "prefetch": 0}
        with rank_loader(
            comm, RankParts(comm, parts), 20 // size, sampler, **options
        ) as batches:
            for step, (batch, _) in enumerate(batches):
                for own in comm.local(batch):
                    for at, row in draws(own).items():
                        assert found.setdefault((step, *at), row) == row
        drawn.append(found)
    assert drawn[0] == drawn[1]
    for (_, hop, _), row in drawn[0].items():
        types = parts.schema.numbers(np.array(row, int))
        assert np.bincount(types, minlength=4).max() <= sampler.sizes[hop]


def test_the_memory_of_a_cache_is_shared_by_reads_for_each_byte(parts):
    """Rows of 12 bytes are kept rather than rows of 100, unless these are read more often."""
    of_rows = (Alone(), parts.schema, 920, (12, 100, 20, 0))
    kinds = parts.schema.numbers(np.arange(920))
    count = np.choose(kinds, [2, 5, 2, 9])
    for memory, want in (
        (2400, [200, 0, 0, 0]),
        (4900, [400, 0, 5, 0]),
        (20_000, [400, 92, 300, 0]),
    ):
        plan = CachePlan(*of_rows, memory, spare=False)
        ids = plan.ids(plan.chosen([count], 1 << 62))[0]
        assert np.bincount(kinds[ids], minlength=4).tolist() == want
        # With room to spare the memory is kept too.
        plan = CachePlan(*of_rows, memory, spare=True)
        plan.chosen([count], 1 << 62)
        assert plan.rooms @ of_rows[-1] <= memory
    plan = CachePlan(*of_rows, 20_000, spare=False)
    plan.chosen([count], 7)
    assert plan.rooms.tolist() == [7, 0, 0, 0]
