"""`Links`: the stage that makes seeds of edges to predict, and draws their negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import is_real
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.graph.rows import row_lengths
from jgs.kernels.call import vary_alike
from jgs.sampling.checks import require_int
from jgs.sampling.edges.eligible import count_less, find
from jgs.sampling.edges.random import as_key_data, below, node_bits
from jgs.sampling.loading.items import Degrees
from jgs.sampling.pairs import edges_between, has_fact, join_nodes, pair_keys
from jgs.sampling.seeds import Seeds, as_long
from jgs.settings import exact_integers

SRC, DST = 0, 1
_SIDES = {"src": (SRC,), "dst": (DST,), "both": (SRC, DST)}
# Of a graph that `prepare` returned, each with the power.
_COLUMNS = ("_drawn_as_src", "_drawn_as_dst")
_BORN = ("_born", "_born_at")  # likewise: the nodes of each type by their times; and those
_SIDE_BITS = 0xFFFFFFFF  # a turn that no draw has
_UNIT = 2.0**20  # of a node's degree to a power, in the sums that are drawn from


@dataclass(frozen=True)
class Links:
    """A stage of `Loader(..., before=)`: seeds of edges to predict and of their negatives.

        loader = Loader(graph, {"src": src, "dst": dst}, 512, sampler, before=Links(), key=key)

    An item is an edge `src -> dst`. A negative is the same pair with another node in place of
    one end. The seeds are the ends of all pairs, equal nodes joined. The edges themselves,
    their reverses and all parallel ones are left out at every hop (`Seeds.excluded`), so that
    no message passes along what is to be predicted.

    Fields:
      num_negatives: int, `K`, the negatives of an edge; with `shared`, of a batch. 0 for a
        task that asks what an edge is, not whether it is.
      negatives: `"uniform"`, or `"degree"`: in proportion to a power of a node's degree. That
        is its number of edges as the end that it replaces, so the out-degree for a source. All
        edges of the graph count, for items with a time too: leave out what they may not know.
      power: float from 0 to 1, the power of the degree (word2vec's is 0.75).
      sides: which end is replaced: `"src"`, `"dst"`, or `"both"`, where a bit of each negative
        decides. With `shared`, `"both"` draws `K` nodes for either side.
      shared: one set of negatives for all edges of a batch, of all ranks together. Scoring them
        is a product of matrices, so many cost little.
      filtered: no negative is an edge of the data, or a node with itself. The test is exact.
        For items with a `relation` only edges of that count, and edges that a reader added as
        the reverses of others never do. A negative that is one is drawn again, at most `tries`
        times; `shared` ones are not. What is still an edge is masked. Ranks that split the
        topology (vanilla mode) refuse it. For items with a time only edges of exactly this time
        are no negatives: earlier ones are history, and later ones are not known.
      tries: int, at least 1.
      copies: int, at least 1: there is room to leave out so many edges for each item, in each
        direction, all items together. Where they do not fit, the batch is refused with an error
        that says so: in a jitted program a `jax.errors.JaxRuntimeError`, or a `ValueError`
        if the program's first call was right.
      types: the types of src and dst; needed for `shared` in a graph of several node types.
      exclude: whether edges are left out; by default where items have no time. With times the
        cutoff keeps the edge itself away, and earlier copies of it are history.

    Items are a mapping with `src` and `dst` int `[B]`, and perhaps `time` int `[B]`, the cutoff
    of all of an item's nodes. With `negatives` int `[B, K]` these nodes stand in place of the
    targets, and none are drawn; `N` and -1 are none. Other columns pass through. `batch.items`
    has them, and:
      rows: int32 `[B, 2]`, where the ends' rows are among the seeds.
      negative_rows: int32 `[B, K]`, where the rows of the negatives' nodes are; with `shared`
        `[S, K]` for `S` sides, in the order src, dst.
      negative_side: int32 `[B, K]`, the end that each replaces: 0 for src, 1 for dst; with
        `shared` `[S]`.
      negative_mask: bool `[B, K]`, which negatives count; with `shared` `[S, B, K]`.
      negative_log_prob: float32, the shape of `negative_rows`: the logarithm of the probability
        of each draw.
      masked: int32 `[]`, how many negatives of real items do not count.
    In a graph with `node_time` the negatives of an item with a time exist before that: uniform
    ones are drawn among such nodes, and of those by degree the others do not count.
    Padding has row `len(seeds)`, and its mask is False. A negative that is the item itself does
    not count.

    The bits of a negative belong to (key, pair, time if there is one, draw number), those of
    shared ones to (key, draw number), so they are the same on any number of ranks. In a typed
    graph a node is replaced by nodes of its own type.

    Raises `InputError` for other values. Source: uniform negatives as in DGL; degree to the
    power 0.75 by Mikolov et al. 2013; shared negatives by Lerer et al. 2019 (section 4.3).
    """

    num_negatives: int = 1
    negatives: str = "uniform"
    power: float = 0.75
    sides: str = "both"
    shared: bool = False
    filtered: bool = False
    tries: int = 8
    copies: int = 2
    exclude: bool | None = None
    types: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_negatives", 0), ("tries", 1), ("copies", 1)):
            object.__setattr__(self, name, require_int(name, getattr(self, name), least))
        for name, known in (("negatives", ("uniform", "degree")), ("sides", tuple(_SIDES))):
            check_choice(name, getattr(self, name), known)
        if not is_real(self.power) or not 0 <= self.power <= 1:
            raise InputError("power must be from 0 to 1", repr(self.power), "Try 0.75.")

    def prepare(self, graph: Graph) -> Graph:
        """The graph with what the draws read: for `negatives="degree"` two node columns of 8
        bytes a node, and for one with `node_time` 12 bytes a node. A loader calls it."""

        def degrees() -> tuple[np.ndarray, np.ndarray]:
            out_of = np.bincount(np.asarray(graph.indices), minlength=graph.num_nodes)
            return out_of, row_lengths(np.asarray(graph.indptr))

        return self._with_sums(graph, degrees)

    def prepare_split(self, graph: Graph, degrees: Degrees) -> Graph:
        """`prepare` where ranks split the topology, see
        `jgs.sampling.loading.items.SplitStage`."""
        if self.filtered:
            raise InputError(
                "filtered negatives must be drawn where every rank has the whole topology",
                "filtered=True, and ranks that split it",
                'Use mode="hybrid", or filtered=False.',
            )
        return self._with_sums(graph, degrees)

    def _with_sums(self, graph: Graph, degrees: Degrees) -> Graph:
        if graph.node_time is not None and _BORN[0] not in graph.node_columns:
            born = np.asarray(graph.node_time)
            places = _Kinds.of(graph).node(np.arange(graph.num_nodes))
            kind = np.repeat(*_Kinds.of(graph).sizes())
            order = places[np.lexsort((born[places], kind))]
            made = {_BORN[0]: order.astype(np.int32), _BORN[1]: born[order]}
            graph = graph.with_node_columns(**made)
        names = [self._column(end) for end in (SRC, DST)]
        if self.negatives == "uniform" or all(name in graph.node_columns for name in names):
            return graph
        order = _Kinds.of(graph).node(np.arange(graph.num_nodes))
        sums = {}
        for name, degree in zip(names, degrees(), strict=True):
            part = np.where(degree > 0, np.rint(degree.astype(float) ** self.power * _UNIT), 0)
            sums[name] = np.cumsum(part[order].astype(np.int64))
        return graph.with_node_columns(**sums)

    def __call__(self, key: Any, graph: Graph, items: Any) -> tuple[Seeds, dict[str, Any]]:
        """The seeds of a batch of items, see `jgs.sampling.loading.items`."""
        if not isinstance(items, Mapping) or not {"src", "dst"} <= set(items):
            raise InputError(
                "items of Links must be a mapping with src and dst",
                f"{', '.join(map(str, items)) if isinstance(items, Mapping) else type(items)}",
                'Give {"src": src, "dst": dst}.',
            )
        with exact_integers():
            ends = jnp.stack([jnp.asarray(items[name]).reshape(-1) for name in ("src", "dst")])
            ends, time = ends.astype(jnp.int64), items.get("time")
            # What is no node stays what it is: `join_nodes` refuses it, but for padding.
            real = jnp.all((ends >= 0) & (ends < graph.num_nodes), axis=0)
            cutoff = None if time is None else as_long("time", time).reshape(-1)
            if "negatives" in items:
                nodes = jnp.asarray(items["negatives"]).astype(jnp.int64)
                mask = real[:, None] & (nodes >= 0) & (nodes < graph.num_nodes)
                nodes = jnp.where(mask, nodes, graph.num_nodes)
                side = jnp.full(nodes.shape, DST, jnp.int32)
                log_prob = jnp.zeros(nodes.shape, jnp.float32)
            else:
                of = (items.get("relation"), cutoff)
                nodes, side, log_prob, mask = self._negatives(key, graph, ends, real, *of)
            every = jnp.concatenate([ends.reshape(-1), nodes.reshape(-1).astype(jnp.int64)])
            if cutoff is not None:
                cutoff = jnp.concatenate([cutoff, cutoff, jnp.repeat(cutoff, nodes.shape[1])])
            seeds, times, rows = join_nodes(graph, every, cutoff)
            excluded = None
            if self.exclude or (self.exclude is None and time is None):
                src, dst = jnp.concatenate([ends, ends[::-1]], axis=1)
                room = 2 * self.copies * ends.shape[1]
                excluded = edges_between(graph, src, dst, room)
            made = {
                "rows": rows[: ends.size].reshape(ends.shape).T,
                "negative_rows": rows[ends.size :].reshape(nodes.shape),
                "negative_side": side,
                "negative_mask": mask,
                "negative_log_prob": log_prob,
                "masked": jnp.sum(real[:, None] & ~mask, dtype=jnp.int32),
            }
        return Seeds(seeds, times, excluded), {**items, **made}

    # -- draws -------------------------------------------------------------------------------

    def _negatives(
        self, key: Any, graph: Graph, ends: Any, real: Any, relation: Any, cutoff: Any
    ) -> tuple:
        """The negatives of each pair: nodes, sides, log-probabilities and mask, `[B, K]` each.
        Those that are `shared` have `[S, K]`, `[S]`, `[S, K]` and `[S, B, K]`."""
        shape: tuple[int, ...] = (ends.shape[1], self.num_negatives)
        if self.shared:
            side, kind, bits = self._of_batch(key, graph, cutoff)
            shape = (side.shape[0], *shape)
        else:
            side, bits = self._of_pairs(pair_keys(key, ends[SRC], ends[DST], cutoff), shape)
        replaced = jnp.where(side == DST, ends[DST, :, None], ends[SRC, :, None])
        if not self.shared:
            kind = _Kinds.of(graph).kind(replaced)
        until = None if cutoff is None else jnp.broadcast_to(cutoff[:, None], shape)

        def flat(of_pair: Any) -> Any:
            if of_pair is None:
                return None
            return jnp.broadcast_to(jnp.asarray(of_pair)[:, None], shape).reshape(-1)

        def unfit(node: jax.Array) -> jax.Array:
            if until is None or graph.node_time is None:
                return node == replaced
            unborn = graph.node_time.at[node].get(mode="clip") >= until
            return (node == replaced) | unborn

        def wrong(node: jax.Array) -> jax.Array:
            src, dst = (
                jnp.broadcast_to(jnp.where(side == end, node, ends[end, :, None]), shape)
                for end in (SRC, DST)
            )
            both = src.reshape(-1), dst.reshape(-1)
            joined = has_fact(graph, *both, flat(relation), flat(cutoff)).reshape(shape)
            return (joined | (src == dst) | unfit(node)) & real[:, None]

        def again(state: tuple) -> tuple:
            turn, node, bad = state
            node = jnp.where(bad, self._draw(graph, bits(turn), kind, side, until), node)
            return turn + 1, node, wrong(node)

        def unfinished(state: tuple) -> jax.Array:
            return (state[0] < self.tries) & jnp.any(state[2])

        node = self._draw(graph, bits(jnp.uint32(0)), kind, side, until)
        bad = wrong(node) if self.filtered else unfit(node)
        if self.filtered and not self.shared:
            begin = vary_alike(jnp.uint32(1), node, bad, graph)[:3]
            _, node, bad = jax.lax.while_loop(unfinished, again, begin)
        log_prob = self._log_prob(graph, node, kind, side, until)
        mask = real[:, None] & (log_prob > -jnp.inf) & ~bad
        if self.shared:
            return node[:, 0].astype(jnp.int32), side[:, 0, 0], log_prob[:, 0], mask
        return jnp.where(real[:, None], node, graph.num_nodes), side, log_prob, mask

    def _of_pairs(self, keys: jax.Array, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """The sides int32 `[B, K]` of each pair's own negatives, and the bits of a turn."""
        keys = jnp.broadcast_to(keys[:, None], (*shape, 2))
        number = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32), shape)
        side = jnp.full(shape, _SIDES[self.sides][0], jnp.int32)
        if self.sides == "both":
            side = (node_bits(keys, number, _SIDE_BITS) >> jnp.uint64(63)).astype(jnp.int32)
        return side, lambda turn: node_bits(keys, number, turn)

    def _of_batch(self, key: Any, graph: Graph, cutoff: Any) -> tuple[Any, Any, Any]:
        """The sides int32 `[S, 1, 1]` of shared negatives, the types of the nodes that they
        replace, `[S, 1, K]`, and their bits, which are the same in every turn."""
        if cutoff is not None:
            raise InputError(
                "shared negatives must be for items without times: they have no cutoff",
                "items with a time",
                "Give Links(shared=False).",
            )
        side = jnp.asarray(_SIDES[self.sides], jnp.int32)[:, None, None]
        shape = (side.shape[0], 1, self.num_negatives)
        number = jnp.broadcast_to(jnp.arange(shape[2], dtype=jnp.int32), shape)
        bits = node_bits(as_key_data(key), number, jnp.broadcast_to(side, shape))
        kind = jnp.broadcast_to(self._end_kinds(graph)[side], shape)
        return side, kind, lambda turn: bits

    def _end_kinds(self, graph: Graph) -> jax.Array:
        """int64 `[2]`: the numbers of the types of sources and targets of shared negatives."""
        schema = graph.schema
        if schema is None or len(schema.node_types) == 1:
            return jnp.zeros(2, jnp.int64)
        if self.types is None:
            raise InputError(
                "shared negatives of a graph of several node types need the types of both ends",
                f"types {', '.join(name for name, _ in schema.node_types)}",
                "Give Links(types=(type of src, type of dst)).",
            )
        return jnp.asarray([schema.number(name) for name in self.types], jnp.int64)

    def _draw(
        self, graph: Graph, bits: Any, kind: Any, side: Any, until: Any = None
    ) -> jax.Array:
        """int64: for each of `bits` a node of the type `kind`, to replace the end `side`; if
        nodes have times, uniform ones exist before `until` int64."""
        kinds = _Kinds.of(graph)
        begin, count = kinds.stretch(kind)
        if self.negatives == "uniform" and (born := _born(graph, until)) is not None:
            order, times = born
            count = count_less(times, begin, count, until)
            place = begin + below(bits, jnp.maximum(count, 1))
            return order.at[place].get(mode="clip").astype(jnp.int64)
        if self.negatives == "uniform":
            return kinds.node(begin + below(bits, jnp.maximum(count, 1)))
        place = jnp.zeros_like(begin)
        for end in _SIDES[self.sides]:
            sums = self._sums(graph, end)
            before, total = _weight(sums, begin, count)
            found = begin + find(sums, begin, count, before + below(bits, total))
            place = jnp.where(side == end, found, place)
        return kinds.node(place)

    def _log_prob(
        self, graph: Graph, node: Any, kind: Any, side: Any, until: Any = None
    ) -> jax.Array:
        """float32: the logarithm of the probability that `_draw` returns `node`."""
        kinds = _Kinds.of(graph)
        begin, count = kinds.stretch(kind)
        if self.negatives == "uniform" and (born := _born(graph, until)) is not None:
            count = count_less(born[1], begin, count, until)
        part, total = (count > 0).astype(jnp.int64), count
        if self.negatives == "degree":
            place = kinds.place(node)
            for end in _SIDES[self.sides]:
                sums = self._sums(graph, end)
                own = _weight(sums, place, jnp.ones_like(place))[1]
                part = jnp.where(side == end, own, part)
                total = jnp.where(side == end, _weight(sums, begin, count)[1], total)
        share = part.astype(jnp.float64) / jnp.maximum(total, 1).astype(jnp.float64)
        return jnp.log(share).astype(jnp.float32)

    def _column(self, end: int) -> str:
        return f"{_COLUMNS[end]}_{float(self.power)}"

    def _sums(self, graph: Graph, end: int) -> jax.Array:
        if (sums := graph.node_columns.get(self._column(end))) is None:
            raise InputError(
                "negatives by degree must have a graph with sums of degrees",
                "a graph without them",
                "Give links.prepare(graph), as a Loader does.",
            )
        return sums


def _born(graph: Graph, until: Any) -> tuple[jax.Array, jax.Array] | None:
    """The nodes of each type in the order of their times, and these times; None where no node
    has a time, or the draws have no cutoff."""
    if until is None or graph.node_time is None:
        return None
    if _BORN[0] not in graph.node_columns:
        raise InputError(
            "negatives that exist before a time must have a graph with nodes sorted by theirs",
            "a graph without them",
            "Give links.prepare(graph), as a Loader does.",
        )
    return graph.node_columns[_BORN[0]], graph.node_columns[_BORN[1]]


def _weight(sums: jax.Array, begin: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int64: the sum before the place `begin`, and that of the `count` places from there."""

    def before(place: jax.Array) -> jax.Array:
        return jnp.where(place > 0, sums.at[place - 1].get(mode="clip"), 0)

    return before(begin), before(begin + count) - before(begin)


class _Kinds(NamedTuple):
    """Where the nodes of each of `T` types are, in the order of types: a node's *place*.
    Without parts, a node's place is its id. With `P` parts `offsets` int64 `[P*T+1]` says where
    the ids of each type in each part begin, and `begins` int64 `[T*P+1]` where their places do.
    """

    offsets: np.ndarray
    begins: np.ndarray
    num_kinds: int

    @classmethod
    def of(cls, graph: Graph) -> _Kinds:
        schema = graph.schema
        offsets = np.array((0, graph.num_nodes) if schema is None else schema.offsets, np.int64)
        num_kinds = 1 if schema is None else len(schema.node_types)
        sizes = np.diff(offsets).reshape(-1, num_kinds).T.reshape(-1)
        return cls(offsets, np.concatenate([[0], np.cumsum(sizes)]), num_kinds)

    @property
    def num_parts(self) -> int:
        return (len(self.offsets) - 1) // self.num_kinds

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the types, and how many nodes each has."""
        ends = np.diff(self.begins[:: self.num_parts])
        return np.arange(self.num_kinds), ends

    def kind(self, node: Any) -> Any:
        """int64: the number of each node's type."""
        return self._range(node) % self.num_kinds

    def stretch(self, kind: Any) -> tuple[Any, Any]:
        """int64: the first place of each type, and its number of nodes."""
        begins = jnp.asarray(self.begins[:: self.num_parts])
        return begins[kind], begins[kind + 1] - begins[kind]

    def place(self, node: Any) -> Any:
        at = self._range(node)
        part, kind = at // self.num_kinds, at % self.num_kinds
        offsets, begins = jnp.asarray(self.offsets), jnp.asarray(self.begins)
        return begins[kind * self.num_parts + part] + node - offsets[at]

    def node(self, place: Any) -> Any:
        xp = np if isinstance(place, np.ndarray) else jnp
        last = len(self.begins) - 2
        at = xp.minimum(xp.searchsorted(self.begins, place, side="right") - 1, last)
        kind, part = at // self.num_parts, at % self.num_parts
        offsets, begins = xp.asarray(self.offsets), xp.asarray(self.begins)
        return offsets[part * self.num_kinds + kind] + place - begins[at]

    def _range(self, node: Any) -> Any:
        at = jnp.searchsorted(jnp.asarray(self.offsets), node, side="right") - 1
        return jnp.clip(at, 0, len(self.offsets) - 2)
