"""What samplers and walkers refuse: wrong fields, and graphs that lack what they need."""

import math

import jax
import numpy as np
import pytest
from refusals import refused

from jgs import Graph, Schema
from jgs.sampling import (
    ASGCN,
    GCNBS,
    PASS,
    VRGCN,
    FastGCN,
    Frontier,
    HetGNN,
    Labor,
    Ladies,
    Links,
    Metapath,
    Neighbors,
    Node2Vec,
    PinSage,
    Saint,
    Seeds,
    Shadow,
    Walk,
    draw_negatives,
    edges_between,
    has_edge,
    join_nodes,
)
from jgs.sampling.contexts import ByVisits

KEY = jax.random.key(0)
BARE, UNSORTED = Graph.from_edges([0], [1], 2), Graph([0, 2, 2, 5], [1, 1, 0, 2, 1])
NO_EDGES, NO_NODES = Graph([0, 0], []), Graph([0], [])
TIMED = Graph.from_edges([0, 1], [1, 0], 2, edge_time=[1, 2])
AT = Seeds([0], [3])
NODE_TYPES = Graph(BARE.indptr, BARE.indices, schema=Schema((("a", 1), ("b", 1))))
FLAT = BARE.with_node_columns(features=np.ones(2))
BUYS, LIKES = ("user", "buys", "item"), ("user", "likes", "item")
ENDS = {BUYS: ([0, 1], [1, 0]), LIKES: ([0], [0])}
SHOP = Graph.from_relations({"user": 2, "item": 2}, ENDS, both_ways=True)
OTHER = Graph.from_relations({"user": 3, "item": 2}, ENDS, both_ways=True)
AGES = {BUYS: [1, 2], LIKES: [3]}
BOUGHT = Graph.from_relations({"user": 2, "item": 2}, ENDS, edge_time=AGES)
OTHER_TIMES = Graph.from_relations({"user": 3, "item": 2}, ENDS, edge_time=AGES)
BY_NAME = Neighbors(({"buys": 3},))
STATE = "the state must be what init returned for this graph"

REFUSED = [
    (lambda: Labor((0,)), "fanouts must be static positive"),
    (lambda: Labor((2,), importance=-2), "importance must be an int of at least -1"),
    (lambda: Labor((2,), period=0), "period must be an int of at least 1"),
    (lambda: Labor((2,), unbiased=True), "an unbiased estimate needs the edges' weights"),
    (lambda: Labor(({"bought": 3},)).init(SHOP), "a relation must be one of"),
    (lambda: Labor(({"buys": 3},)).init(BARE), "a graph with relations"),
    (lambda: Labor(("buys=3,user:buys:item=4",)).init(SHOP), "once; got 'buys' and ('user"),
    (lambda: Ladies(({"shop": 3},)).init(SHOP), "must be one of user, item"),
    (lambda: Ladies((3,), by_type=True).init(BARE), "for a graph with node types"),
    (lambda: Ladies(({},)), "sizes of node types must be positive"),
    (lambda: Ladies(({"user": -1},)), "sizes of node types must be positive"),
    (lambda: FastGCN(({"user": 3},)), ""),
    (lambda: PASS((1, 5)), ""),
    (lambda: PASS(width=0), "width"),
    (lambda: PASS(learning_rate=math.nan), "learning"),
    (lambda: PASS().init(FLAT), "with_node_columns"),
    (lambda: ASGCN((-1, 5)), ""),
    (lambda: ASGCN(variance=-1), "variance"),
    (lambda: ASGCN(weighted=True), "weighted"),
    (lambda: ASGCN().init(BARE), "with_node_columns"),
    (lambda: PinSage(()), "a size for each hop; got ()"),
    (lambda: PinSage((0,)), "each size must be an int of at least 1; got 0"),
    (lambda: PinSage(((1, 2),)), "each size must be an int; got ((1, 2),)"),
    (lambda: PinSage((1,), 0), "num_walks must be an int of at least 1; got 0"),
    (lambda: PinSage((1,), 1 << 16, 1 << 16), "must be below 2**31"),
    (lambda: PinSage((1,), relations=("a",)).init(NODE_TYPES), "whose edges have no types"),
    (lambda: PinSage((1,), relations=("rev_buy",)).init(SHOP), "one of (user, buys, item), "),
    (lambda: PinSage((1,), relations=("buys",)).init(SHOP), "item) before (user, buys, item)"),
    (lambda: HetGNN((1,), restart=1.5), "restart must be a probability"),
    (lambda: HetGNN((1,)).init(NO_EDGES), "got one without a schema"),
    (lambda: HetGNN(((1, 2, 3),)).init(SHOP), "each of 2 node types; got (1, 2, 3)"),
    (lambda: Frontier(m=0), "m must be an int of at least 1; got 0"),
    (lambda: Frontier(10, 9), "at least m, and below 2**31; got budget=9, m=10"),
    (lambda: Frontier(degree_cap=0), "degree_cap must be an int of at least 1; got 0"),
    (lambda: Frontier(degree_cap=2**21), "must be below 2**31; got 1000 * 2097152 * 2.0"),
    (lambda: Frontier(enlargement=0.9), "enlargement must be at least 1; got 0.9"),
    (lambda: Frontier(enlargement=math.inf), "must be below 2**31"),
    (lambda: Frontier().init(NO_NODES), "a graph with nodes; got none"),
    (lambda: Saint("nodes", 5), "mode must be one of"),
    (lambda: Saint("node", 0), "budget must be an int"),
    (lambda: Saint("walk", 5), "length must be an int"),
    (lambda: Saint("edge", 5, 2), "a length goes with"),
    (lambda: Saint("walk", 2**20, 2**12), "fewer than 2"),
    (lambda: Saint("degree", 3).node_state(NO_EDGES), "needs a graph with edges"),
    *((lambda e=e: Saint("node", 5, norm_error=e), "norm_error") for e in (1e-9, 2.0, "x")),
    (lambda: Shadow(GCNBS((3,))), "scope"),
    (lambda: Shadow(Neighbors((3,), relabel_inputs=False)), "scope"),
    (lambda: Shadow((3,), edge_weights=True).init(BARE), "edge weights"),
    (lambda: Neighbors((2,), window=0), "the window must be an int of at least 1; got 0"),
    (lambda: Neighbors((2,), window=np.timedelta64(1, "D")), "got np.timedelta64(1,'D')"),
    (lambda: Neighbors((2,), window=2**63), "the window must be below 2**63"),
    (lambda: Neighbors((2,), False, True, latest=True), "without weights; got latest=True"),
    (lambda: Neighbors((2,), True, latest=True), "without replacement"),
    (lambda: Neighbors((3,), latest=2), "latest must be True or False"),
    (lambda: Neighbors((2,), half_life=0), "at least 1"),
    (lambda: Neighbors((2,), half_life=2**63), "must be below 2**63"),
    (lambda: Neighbors((2,), half_life=5, weighted=True), "drawn by weight, or by"),
    (lambda: Neighbors((2,), half_life=5, latest=True), "without weights"),
    (lambda: Neighbors((2,), half_life=5).init(BARE), "edges have times"),
    (lambda: Neighbors((2,), half_life=5).sample(KEY, TIMED, (), AT, None), "init returns"),
    (lambda: Neighbors(({"bought": 3},)).init(SHOP), "a relation must be one of"),
    (lambda: Neighbors(({"buys": 0},)), "positive 32-bit ints"),
    (lambda: Neighbors(({},)), "positive 32-bit ints"),
    (lambda: Neighbors(("buys=two",)), "written as writes=5,cites=10"),
    (lambda: BY_NAME.sample(KEY, BARE, (), [1], None), "with relations"),
    (lambda: BY_NAME.sample(KEY, SHOP, BY_NAME.init(OTHER), [1], None), "what init returned"),
    (lambda: Seeds([1, 2], excluded=5), "must be an array of integers; got one number"),
    (lambda: Seeds([1], time=np.array([2**63 + 5], np.uint64)), "64-bit integers"),
    (lambda: Walk(0), "length"),
    (lambda: Walk(2, latest=0), "latest must be an int of at least 1; got 0"),
    (lambda: Walk(3, half_life=2).sample(KEY, TIMED, (), AT), "Call walker.init"),
    (lambda: Walk(3, causal=True).sample(KEY, BARE, (), AT), "a graph without edge_time"),
    (lambda: Walk(3).sample(KEY, BOUGHT, (), AT), "the state that init returns"),
    (lambda: Walk(3).sample(KEY, BOUGHT, Walk(3).init(OTHER_TIMES), AT), "of 5 nodes"),
    (lambda: Walk(3, half_life=2).sample(KEY, BOUGHT, np.zeros(3), AT), "sorted by time"),
    (lambda: ByVisits(0, 3), "num_walks must be an int of at least 1"),
    (lambda: ByVisits(2, 3, 1.5), "restart must be a probability"),
    (lambda: ByVisits(2**30, 2), "must be below 2**31; got 2147483648"),
    (lambda: Node2Vec(3).sample(KEY, TIMED, np.True_, AT), "an index of its edges"),
    (lambda: Node2Vec(4).sample(KEY, BARE, (), [0]), "Give what `init` returned"),
    (lambda: Metapath(("buys",)).sample(KEY, SHOP, (), [0]), "Give what `init` returned"),
    (lambda: Walk(4, restart=1.1), "restart"),
    (lambda: Walk(4, stop=math.nan), "stop"),
    (lambda: Walk(4, weighted=True).init(BARE), "weighted sampling needs"),
    (lambda: Walk(3, half_life=-1), "half-life"),
    (lambda: Walk(3, weighted=True, latest=2), "or from the latest edges"),
    (lambda: Walk(3, half_life=2).init(BARE), "a graph without edge_time"),
    (lambda: Node2Vec(0), "length"),
    (lambda: Node2Vec(4, p=0), "p must"),
    (lambda: Node2Vec(4, q=math.inf), "q must"),
    (lambda: Node2Vec(4).init(UNSORTED), "1 after 2 in the row of node 2. Use graph.sorted"),
    (lambda: Node2Vec(4, weighted=True).init(UNSORTED.sorted()), "weighted sampling needs"),
    (lambda: Metapath("buys"), "relations must be names or triples"),
    (lambda: Metapath(("buys", "likes")).init(SHOP), "target type of the next"),
    (lambda: Metapath(("buys",)).init(BARE), "need a typed graph"),
    (lambda: Neighbors((2,), edges=None), "edges must be a tuple of names"),
    (lambda: PinSage((1,), relations=5), "relations must be a tuple"),
    (lambda: GCNBS((2,), eta="0.4"), "eta must be in (0, 1]; got '0.4'"),
    (lambda: PASS(learning_rate=None), "learning_rate must be a finite number"),
    (lambda: Links(power="1"), "power must be from 0 to 1; got '1'"),
    (lambda: Walk(np.ones((2, 1))), "got array([[1.], [1.]]). Change it."),
    (lambda: Shadow((2,)).sample(KEY, BARE, (), [0]), STATE),
    (lambda: VRGCN((2,), widths=(3,)).sample(KEY, BARE, (), [0]), STATE),
    (lambda: FastGCN((2,)).sample(KEY, BARE, (1,), [0]), STATE),
    (lambda: FastGCN((2,)).sample(KEY, BARE, FastGCN((2,)).init(NO_EDGES), [0]), STATE),
    (lambda: has_edge(BARE, [0, 1], [1]), "src and dst must have the same length; got 2 and 1"),
    (lambda: edges_between(BARE, [0.5], [1], 3), "src must be integers [...]"),
    (lambda: draw_negatives(KEY, BARE, [0], [1], -1), "num must be an int of at least 0"),
    (lambda: join_nodes(BARE, [None]), "nodes must be integers [...]"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED)
def test_it_is_refused_in_one_line(make, says):
    refused(says, make)
