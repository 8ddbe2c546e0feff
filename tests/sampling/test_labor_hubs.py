"""The index of the hubs' edges, with which `Labor` need not read their rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely

from jgs import Graph, InputError, kernels
from jgs.sampling import Capacity, Labor
from jgs.sampling.algorithms import labor

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")

N, HUBS, DEGREE = 3001, 20, 1500
IDS = np.arange(HUBS) * 150


@pytest.fixture
def graph(monkeypatch):
    """Every 150th node is a hub of 1,500 neighbours or a few more, some of them twice."""
    monkeypatch.setattr(labor, "LEAST_DEGREE", DEGREE)
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 70, N)
    degrees[IDS] = DEGREE + 7 * np.arange(HUBS)
    indptr = np.append(0, np.cumsum(degrees))
    return Graph(indptr, rng.integers(0, N, indptr[-1]).astype(np.int32))


def hub_rows(graph):
    indptr = np.asarray(graph.indptr)
    return [slice(*indptr[[hub, hub + 1]]) for hub in IDS]


@pytest.mark.parametrize("period", rarely([1, 6], 0))
def test_it_changes_no_draw(graph, period, same_bits, implemented):
    """Hubs are among the seeds, some twice, some of fewer edges than the second fanout."""
    sampler = Labor((12, 1600), period=period, edge_ids=True, edge_weights=True)
    rng = np.random.default_rng(2)
    seeds = rng.integers(0, N + 1, (3, 80)).astype(np.int32)
    seeds[:, :50] = IDS[np.arange(50) % HUBS]
    keys = sampler.step_keys(np.uint32([3, 4]), np.arange(4, 7))
    capacity = Capacity((2000, 200_000), (2000, N + 80))
    arguments = jnp.asarray(keys), graph
    implemented(False)
    plain = sampler.sample(*arguments, (), seeds, capacity)
    assert not np.asarray(plain.overflow).any()
    hubs = labor.HubEdges(*map(jnp.asarray, index_of(graph)))
    same_bits(sampler.sample(*arguments, hubs, seeds, capacity), plain)  # which ignores it
    for threads, states in ((1, ((), hubs)), (4, (hubs,))):
        implemented(True, threads)
        same_bits(jax.tree.leaves(sampler.init(graph)), jax.tree.leaves(hubs))
        draw = jax.jit(sampler.sample, static_argnums=4)
        for state in states:
            same_bits(draw(*arguments, state, seeds, capacity), plain)
        one = draw(arguments[0][1], graph, hubs, seeds[1], capacity)
        same_bits(one, jax.tree.map(lambda a: a[1], plain))
    each = sampler.sample_separately(*arguments, hubs, seeds, capacity)
    same_bits(each, [jax.tree.map(lambda a, i=i: a[i], plain) for i in range(3)])


def index_of(graph):
    """The arrays of the index, sorted by NumPy."""
    sources = np.concatenate([np.asarray(graph.indices)[row] for row in hub_rows(graph)])
    indptr = np.append(0, np.cumsum(np.bincount(sources, minlength=N)))
    edges = np.argsort(sources, kind="stable")
    return tuple(a.astype(np.int32) for a in (IDS, indptr, edges))


def test_a_wrong_one_is_noticed(graph):
    """One with half of the edges twice gives another batch, so the kernel draws by it."""
    sampler, seeds = Labor((4,)), IDS.astype(np.int32)
    hubs, key = sampler.init(graph), jax.random.key(0)

    def drawn(state):
        return np.asarray(sampler.sample(key, graph, state, seeds, None).nodes)

    with pytest.raises(InputError, match="what init returned for this graph"):
        sampler.sample(key, graph, hubs._replace(indptr=hubs.indptr[1:]), seeds, None)
    other, invalid = r"must be what Labor\.init returned", "arrays must be valid"
    for name, wrong, says in (
        ("nodes", hubs.nodes[:-1], other),
        ("nodes", hubs.nodes + 1, other),
        ("nodes", hubs.nodes.at[0].set(N), other),
        ("edges", hubs.edges[:-1], other),
        ("edges", jnp.full_like(hubs.edges, -1), invalid),
        ("edges", jnp.full_like(hubs.edges, 2**31 - 1), invalid),
        ("indptr", hubs.indptr - 2**20, invalid),
        ("indptr", hubs.indptr * 2, invalid),
    ):
        with pytest.raises(Exception, match=says):
            drawn(hubs._replace(**{name: wrong}))
    assert (drawn(hubs) != drawn(hubs._replace(edges=hubs.edges // 2))).any()


def test_there_is_none_where_it_saves_nothing(graph, monkeypatch):
    monkeypatch.setattr(labor, "LEAST_DEGREE", DEGREE + 7 * (HUBS - 1))
    assert Labor((3,)).init(Graph(graph.indptr, graph.indices)) == ()  # 1,633 edges
    monkeypatch.setattr(labor, "LEAST_DEGREE", 1)
    assert Labor((3,), importance=1).init(graph) == ()  # which draws otherwise
    hubs = Labor((3,)).init(Graph(graph.indptr, graph.indices))
    assert graph.num_edges // 4 - 1700 < len(hubs.edges) <= graph.num_edges // 4
    assert {*IDS.tolist()} < {*np.asarray(hubs.nodes).tolist()}  # the largest
    strange = np.asarray(graph.indices).copy()
    strange[hub_rows(graph)[3].start] = N
    monkeypatch.setattr(labor, "LEAST_DEGREE", DEGREE)
    damaged = object.__new__(Graph)
    damaged.__dict__.update(vars(graph) | {"indices": jnp.asarray(strange)})
    assert labor.hubs_of(damaged) == ()
    assert jax.eval_shape(Labor((3,)).init, graph) == ()
