"""Items in vanilla mode: what ranks that split the topology draw, and what they leave out."""

import functools
import pickle
from itertools import chain, pairwise
from pathlib import Path

import check_items
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from check_items import BATCH, ITEMS, LINKS, SAMPLER, N, drawn, links_of, loader
from ranks import run_ranks

from jgs import InputError
from jgs.dist import RankParts, open_parts
from jgs.dist.communicators.collect import all_out_degrees
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import Labor, Links, Neighbors, Saint, join_nodes

SCRIPT = Path(check_items.__file__)
EVERY = Neighbors((-1, -1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return check_items.write(tmp_path_factory.mktemp("items") / "parts")


def ranks_of(size):
    return Mesh(jax.devices()[:size]) if size > 1 else Alone()


def of_all(steps, name):
    """A column of the items of each step, of all ranks together."""
    return [np.concatenate([one["items"][name] for one in step]) for step in steps]


def neighbors(step):
    """{(hop, node): its neighbours} of all ranks; a node draws the same on all of them."""
    found = {}
    for one in step:
        ids = np.append(one["nodes"], N)
        for hop, (indptr, indices, _) in enumerate(one["blocks"][::-1]):
            for t, (begin, end) in enumerate(pairwise(indptr)):
                row = ids[indices[begin:end]].tolist()
                assert found.setdefault((hop, int(ids[t])), row) == row
    return found


def negative_nodes(step):
    """The nodes of the negatives of all ranks."""
    return np.concatenate(
        [np.append(one["seeds"], N)[one["items"]["negative_rows"]] for one in step]
    )


@functools.cache
def drawn_by(folder, size, mode, sampler=SAMPLER, before=LINKS, **options):
    comm = ranks_of(size)
    with loader(comm, folder, mode, sampler, before, **options) as batches:
        return drawn(comm, batches)


CASES = [
    (1, SAMPLER, LINKS),
    (2, SAMPLER, LINKS),
    (3, SAMPLER, LINKS),
    (3, Neighbors((3, 2), weighted=True), Links(4, "degree", copies=8, shared=True)),
    (3, Neighbors((3, 2), replace=True, relabel_inputs=False), Links(2, copies=8, sides="dst")),
    (3, Labor((3, 2)), LINKS),
    (2, Labor((3, 2), layer_dependency=True, period=3), Links(exclude=False)),
]


@pytest.mark.parametrize(("size", "sampler", "links"), CASES, ids=str)
def test_the_batches_are_those_of_hybrid_mode_and_of_one_rank(folder, size, sampler, links):
    vanilla, hybrid, whole = (
        drawn_by(folder, num, mode, sampler, links)
        for num, mode in ((size, "vanilla"), (size, "hybrid"), (1, "hybrid"))
    )
    jax.tree.map(np.testing.assert_array_equal, vanilla, hybrid)
    assert len(vanilla) == len(whole) == -(-ITEMS // BATCH)
    np.testing.assert_array_equal(of_all(vanilla, "label"), of_all(whole, "label"))
    for ranks, one in zip(vanilla, whole, strict=True):
        ranks = ranks[:1] if links.shared else ranks  # each has the one set of negatives
        np.testing.assert_array_equal(negative_nodes(ranks), negative_nodes(one))
    if sampler.relabel_inputs:
        assert list(map(neighbors, vanilla)) == list(map(neighbors, whole))


@pytest.mark.parametrize("sampler", [Neighbors((4, 3), latest=True), Labor((3, 2), window=30)])
def test_links_at_their_times(tmp_path, sampler):
    """All nodes of a link have its cutoff on all ranks, however the topology is split."""
    folder, found = check_items.write(tmp_path / "parts", timed=True), []
    for size, mode in ((3, "vanilla"), (3, "hybrid")):
        comm = ranks_of(size)
        with loader(comm, folder, mode, sampler, Links(3, copies=8)) as batches:
            found.append(drawn(comm, batches))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert all(len({*one["cutoff"].tolist()}) > 1 for one in found[0][0])
    assert sum(one["blocks"][0][1].size for step in found[0] for one in step) > 500


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_hop_has_an_edge_of_the_whole_batch(folder, size):
    """All other edges are there, each copy once."""
    graph = open_parts(folder).graph
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    left_out = [0, 0]
    for step in drawn_by(folder, size, "vanilla", EVERY):
        (src,), (dst,) = of_all([step], "src"), of_all([step], "dst")
        gone = {*zip(src, dst, strict=True), *zip(dst, src, strict=True)}
        for (hop, node), row in neighbors(step).items():
            whole = indices[indptr[node] : indptr[node + 1]].tolist()
            assert row == [v for v in whole if (v, node) not in gone]
            left_out[hop] += len(whole) - len(row)
    assert min(left_out) > 100


@pytest.mark.parametrize(("kind", "n"), [("mpi", 3), ("jax", 2)])
def test_every_communicator_draws_them(folder, tmp_path, kind, n):
    run_ranks(SCRIPT, kind, n, folder, tmp_path)
    ranks = [pickle.loads(Path(tmp_path, f"{r}.pickle").read_bytes()) for r in range(n)]
    steps = [list(chain(*step)) for step in zip(*ranks, strict=True)]
    want = drawn_by(folder, n, "hybrid")
    jax.tree.map(np.testing.assert_array_equal, steps, want)


@pytest.mark.parametrize("cache", ["trial", "degree", "planned"])
def test_a_cache_changes_nothing(folder, cache):
    want = drawn_by(folder, 3, "hybrid")
    found = drawn_by(folder, 3, "vanilla", cache=cache)
    jax.tree.map(np.testing.assert_array_equal, found, want)


def test_rounds_of_a_step(folder):
    """Two for each hop, and two for the features."""
    for sampler in (SAMPLER, Neighbors((4,))):
        with loader(ranks_of(2), folder, "vanilla", sampler, prefetch=0) as batches:
            num, source = sum(1 for _ in batches), batches.source
            assert source.rounds - source.extra_rounds == num * 2 * (sampler.num_hops + 1)


def test_another_number_of_ranks_and_mode_resume(folder):
    want = list(map(neighbors, drawn_by(folder, 1, "hybrid")))
    with loader(ranks_of(2), folder, "vanilla", prefetch=0) as batches:
        for _ in range(2):
            next(iter(batches))
        state = batches.state_dict()
    for size, mode in ((3, "vanilla"), (2, "hybrid")):
        comm = ranks_of(size)
        with loader(comm, folder, mode) as batches:
            batches.load_state_dict(state)
            assert list(map(neighbors, drawn(comm, batches))) == want[2:]


def halved(key, graph, items):
    """A stage that is a function, and excludes nothing."""
    seeds, _, _ = join_nodes(graph, jnp.concatenate([items["nodes"], items["nodes"] // 2]))
    return seeds


@pytest.mark.parametrize(("before", "named"), [(None, False), (None, True), (halved, True)])
def test_nodes_of_any_part(folder, before, named):
    """Ids that repeat, named ones, and what a function makes of them."""
    nodes = np.arange(100) // 2 * 3 % N
    items, found = {"nodes": nodes, "label": nodes % 5} if named else nodes, []
    for size, mode in ((3, "vanilla"), (3, "hybrid")):
        comm = ranks_of(size)
        with loader(comm, folder, mode, SAMPLER, before, items) as batches:
            found.append(drawn(comm, batches))
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_out_degrees_of_all_ranks(folder):
    whole = np.bincount(open_parts(folder).graph.indices, minlength=N)
    for size in (1, 2, 3):
        ranks = RankParts(ranks_of(size), open_parts(folder))
        graphs = ranks.graphs("vanilla")
        got = all_out_degrees(ranks_of(size), graphs, ranks.offsets)
        np.testing.assert_array_equal(got, whole)


class Prepared:
    """A stage that can be prepared of the whole graph alone."""

    def __repr__(self):
        return "Prepared()"

    def prepare(self, graph):
        return graph

    def __call__(self, key, graph, items):
        return items["src"]


TIMED = {"nodes": np.arange(60), "time": np.arange(60)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"before": Links(filtered=True)},
            "filtered negatives must be drawn .* whole topology",
        ),
        ({"before": Prepared()}, r"prepare_split too, .* got Prepared\(\)"),
        ({"before": Links(copies=1)}, "give edges_between more room"),
        ({"sampler": Labor((3,), importance=1)}, "whose draws belong to a node"),
        ({"sampler": Saint("node", 9)}, "no stage"),
        ({"sampler": Neighbors((3,), edge_ids=True)}, "no ids, weights or columns"),
        ({"before": None, "items": TIMED}, "need a graph whose edges have times"),
        (
            {"items": {"src": np.r_[-7, 1:18], "dst": np.arange(18)}},
            "seeds must be nodes",
        ),
    ],
    ids=str,
)
def test_what_is_refused_in_one_line(folder, options, said):
    """By all ranks alike: where one rank alone sees it, too."""
    for size in (1, 2):
        with pytest.raises(InputError, match=said) as caught:
            loader(ranks_of(size), folder, "vanilla", **options)
        assert "\n" not in str(caught.value)


def test_links_are_left_out_of_rows_of_all_parts(folder):
    """The tests above mean something: links have copies, and ends that two ranks own."""
    parts = open_parts(folder)
    items = links_of(parts.graph)
    owners = parts.owner(np.stack([items["src"], items["dst"]])) // 2
    assert (owners[0] != owners[1]).sum() > 20
    assert set(owners.flat) == {0, 1, 2}
