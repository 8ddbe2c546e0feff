"""Items in vanilla mode: what ranks that split the topology draw, and what they leave out."""

import functools
from itertools import chain, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from refusals import refused
from small_ranks import ranks_of, write_graph

from jgs import Graph
from jgs.dist import RankParts, open_parts, rank_loader
from jgs.sampling import Labor, Links, Loader, Neighbors, Saint, join_nodes

N, PARTS, BATCH, ITEMS = 240, 6, 12, 50
LINKS = Links(3, "degree", copies=8)
FILTERED = Links(2, "degree", filtered=True, tries=2, copies=8)
SAMPLER = Neighbors((3, -1))


def write(folder, timed=False):
    """Parts of a graph with hubs, copies and reverses of edges, and nodes without edges."""
    rng = np.random.default_rng(0)
    src, dst = (rng.random((2, 700)) ** [[1], [2]] * (N - 20)).astype(int)
    ends = np.stack([np.append(src, dst[:400]), np.append(dst, src[:400])])
    ends = np.repeat(ends, rng.integers(1, 4, ends.shape[1]), axis=1)
    weight = rng.random(ends.shape[1]) * (rng.random(ends.shape[1]) > 0.2)
    time = rng.integers(-50, 50, ends.shape[1]) if timed else None
    graph = Graph.from_edges(*ends, N, weight.astype(np.float32), edge_time=time)
    return write_graph(folder, graph, 4, PARTS, 5)


def links_of(graph):
    """Edges to predict, of all parts: every so many of the graph."""
    dst = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    some = np.linspace(0, graph.num_edges - 1, ITEMS).astype(int)
    items = {"src": np.asarray(graph.indices)[some], "dst": dst[some], "label": some % 7}
    if graph.edge_time is not None:
        items["time"] = np.asarray(graph.edge_time)[some]
    return items


def loader(comm, folder, mode, sampler=SAMPLER, before=LINKS, items=None, **options):
    parts = open_parts(folder)
    items = links_of(parts.graph) if items is None else items
    options |= {"key": jax.random.key(3), "mode": mode, "items": items, "before": before}
    return rank_loader(comm, RankParts(comm, parts), BATCH // comm.size, sampler, **options)


def drawn(comm, batches):
    """For each step what each local rank drew, without padding, and the rows of features."""
    for batch, x in batches:
        ranks = zip(comm.local(batch), comm.local(x), strict=True)
        yield [_real(one, rows) for one, rows in ranks]


def _real(batch, rows):
    blocks = []
    for block in batch.blocks:
        targets, edges = int(block.num_targets), int(block.num_edges)
        arrays = np.asarray(block.indptr)[: targets + 1], np.asarray(block.indices)[:edges]
        ids = None if block.edge_id is None else np.asarray(block.edge_id)[:edges]
        blocks.append((*arrays, int(block.num_sources), ids))
    nodes = np.asarray(batch.nodes)
    real = nodes < N
    found = {"nodes": nodes[real], "rows": np.asarray(rows)[real], "blocks": blocks}
    if batch.cutoff is not None:
        found["cutoff"] = np.asarray(batch.cutoff)[real]
    return jax.device_get(found | {"seeds": batch.seeds, "items": batch.items})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("items") / "parts")


def of_all(steps, name):
    """A column of the items of each step, of all ranks together."""
    return [np.concatenate([one["items"][name] for one in step]) for step in steps]


def neighbors(step):
    """{(hop, node): its neighbours, or edges} of all ranks, on which a node draws the same."""
    found = {}
    for one in step:
        ids = np.append(one["nodes"], N)
        for hop, (indptr, indices, _, edges) in enumerate(one["blocks"][::-1]):
            sources = ids[indices] if edges is None else edges
            for t, (begin, end) in enumerate(pairwise(indptr)):
                row = sources[begin:end].tolist()
                assert found.setdefault((hop, int(ids[t])), row) == row
    return found


def negative_nodes(step):
    """The nodes of the negatives of all ranks."""
    return np.concatenate(
        [np.append(one["seeds"], N)[one["items"]["negative_rows"]] for one in step]
    )


class Epoch(NamedTuple):
    """What was drawn in an epoch, its rounds, and the loader's state after two steps."""

    steps: list
    rounds: int
    state: Any


@functools.cache
def epoch_of(folder, size, mode, sampler=SAMPLER, before=LINKS, cache="none"):
    comm, steps, state = ranks_of(size), [], None
    with loader(comm, folder, mode, sampler, before, cache=cache) as batches:
        for step in drawn(comm, batches):
            steps.append(step)
            state = batches.state_dict() if len(steps) == 2 else state
        return Epoch(steps, batches.source.rounds - batches.source.extra_rounds, state)


CASES = [
    (2, SAMPLER, LINKS, "none"),
    (3, Neighbors((3, 2), weighted=True), Links(4, "degree", copies=8, shared=True), "planned"),
    (3, Labor((3, 2), layer_dependency=True, period=3), Links(exclude=False), "trial"),
    # In hybrid mode, where all is filtered and edges have ids.
    (2, Neighbors((3, 3), edge_ids=True), FILTERED, "trial"),
]


@pytest.mark.parametrize(("size", "sampler", "links", "cache"), rarely(CASES, 2, 3), ids=str)
def test_the_batches_are_those_of_a_loader(folder, size, sampler, links, cache):
    mode, graph = "hybrid" if links.filtered else "vanilla", open_parts(folder).graph
    vanilla = epoch_of(folder, size, mode, sampler, links, cache).steps
    of = (graph, links_of(graph), BATCH, sampler)
    whole = Loader(*of, before=links, key=jax.random.key(3))
    whole = [[_real(batch, np.zeros((batch.nodes.size, 0)))] for batch in whole]
    assert len(vanilla) == len(whole) == -(-ITEMS // BATCH)
    for name in ("label", *["negative_mask"] * links.filtered):
        np.testing.assert_array_equal(of_all(vanilla, name), of_all(whole, name))
    for ranks, one in zip(vanilla, whole, strict=True):
        ranks = ranks[:1] if links.shared else ranks  # each has the one set of negatives
        np.testing.assert_array_equal(negative_nodes(ranks), negative_nodes(one))
    assert list(map(neighbors, vanilla)) == list(map(neighbors, whole))
    features = np.concatenate(
        [np.asarray(p.features) for p in map(open_parts(folder).part, range(6))]
    )
    for one in chain(*vanilla):
        np.testing.assert_array_equal(one["rows"], features[one["nodes"]])


DIRECT = Neighbors((3, 2), replace=True, relabel_inputs=False)
HYBRID = [(SAMPLER, LINKS, "none"), (DIRECT, Links(2, copies=8, sides="dst"), "degree")]


@pytest.mark.parametrize(("sampler", "links", "cache"), rarely(HYBRID, 1), ids=str)
def test_the_batches_are_those_of_hybrid_mode(folder, sampler, links, cache):
    vanilla = epoch_of(folder, 2, "vanilla", sampler, links, cache)
    hybrid = epoch_of(folder, 2, "hybrid", sampler, links)
    jax.tree.map(np.testing.assert_array_equal, vanilla.steps, hybrid.steps)
    if cache == "none":  # two rounds for each hop, and two for the features
        assert vanilla.rounds == len(vanilla.steps) * 2 * (sampler.num_hops + 1)


def test_another_number_of_ranks_and_mode_resume(folder):
    with loader(comm := ranks_of(1), folder, "hybrid") as batches:
        whole = list(map(neighbors, drawn(comm, batches)))
        batches.load_state_dict(epoch_of(folder, 2, "vanilla").state)
        assert list(map(neighbors, drawn(comm, batches))) == whole[2:]


def in_both_modes(folder, sampler, before, items=None):
    """What two ranks draw in hybrid mode, after asserting that vanilla mode draws the same."""
    found = []
    for mode in ("vanilla", "hybrid"):
        comm = ranks_of(2)
        with loader(comm, folder, mode, sampler, before, items) as batches:
            found.append(list(drawn(comm, batches)))
    jax.tree.map(np.testing.assert_array_equal, *found)
    return found[0]


def test_links_at_their_times(tmp_path):
    """All nodes of a link have its cutoff on all ranks, however the topology is split."""
    folder = write(tmp_path / "parts", timed=True)
    steps = in_both_modes(folder, Neighbors((9,), latest=True), Links(3, copies=8))
    assert all(len({*one["cutoff"].tolist()}) > 1 for one in steps[0])
    assert sum(one["blocks"][0][1].size for one in chain(*steps)) > 200


def halved(key, graph, items):
    """A stage that is a function, and excludes nothing."""
    seeds, _, _ = join_nodes(graph, jnp.concatenate([items["nodes"], items["nodes"] // 2]))
    return seeds


@pytest.mark.parametrize(("before", "named"), [(None, False), (halved, True)])
def test_nodes_of_any_part(folder, before, named):
    """Ids that repeat, and what a function makes of named ones."""
    nodes = np.arange(ITEMS) // 2 * 7 % N
    items = {"nodes": nodes, "label": nodes % 5} if named else nodes
    in_both_modes(folder, Neighbors((3,)), before, items)


def test_no_hop_has_an_edge_of_the_whole_batch(folder):
    """All other edges are there, each copy once."""
    graph = open_parts(folder).graph
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    left_out = [0, 0]
    for step in epoch_of(folder, 2, "vanilla", Neighbors((-1, -1))).steps:
        (src,), (dst,) = of_all([step], "src"), of_all([step], "dst")
        gone = {*zip(src, dst, strict=True), *zip(dst, src, strict=True)}
        for (hop, node), row in neighbors(step).items():
            whole = indices[indptr[node] : indptr[node + 1]].tolist()
            assert row == [v for v in whole if (v, node) not in gone]
            left_out[hop] += len(whole) - len(row)
    assert min(left_out) > 100


class Prepared:
    """A stage that can be prepared of the whole graph alone."""

    def __repr__(self):
        return "Prepared()"

    def prepare(self, graph):
        return graph

    def __call__(self, key, graph, items):
        return items["src"]


TIMED = {"nodes": np.arange(60), "time": np.arange(60)}
REFUSED = [
    ({"before": Links(filtered=True)}, "filtered negatives must be drawn * whole topology"),
    ({"before": Prepared()}, "prepare_split too, * got Prepared()"),
    ({"before": Links(copies=1)}, "give edges_between more room"),
    ({"sampler": Labor((3,), importance=1)}, "whose draws belong to a node"),
    ({"sampler": Saint("node", 9)}, "no stage"),
    ({"sampler": Neighbors((3,), edge_ids=True)}, "no ids, weights or columns"),
    ({"before": None, "items": TIMED}, "need a graph whose edges have times"),
    ({"items": {"src": np.r_[-7, 1:18], "dst": np.arange(18)}}, "seeds must be nodes"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=str)
def test_what_is_refused_in_one_line(folder, options, said):
    """By all ranks alike: where one rank alone sees it, too."""
    refused(said, loader, ranks_of(2), folder, "vanilla", **options)
