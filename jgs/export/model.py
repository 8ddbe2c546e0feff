"""`ExportedModel`: answers of an artifact, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jgs.arrays import require_array
from jgs.data.values import nodes_of
from jgs.errors import InputError, refuse
from jgs.export.spec import (
    Spec,
    ids_below,
    moments_asked,
    nodes_asked,
    pairs_asked,
    refuse_untaken,
    relation_asked,
)
from jgs.export.store import Candidates, Lists, NewNodes, Store
from jgs.graph import NodeIds, as_device
from jgs.graph.shown import Shown

Program = Callable[..., Any]
_SCORES = 1 << 22  # of candidates, that are held at a time


class ExportedModel(Shown):
    """An exported model with the graph that it reads; `jgs.load_exported` returns it.

    A model of nodes has `predict` and `logits` of nodes. One of links or edges has them of
    pairs of nodes, and one of links `recommend` too. A model with times (`spec.timed`) takes a
    moment for each node or pair, and reads what was before it alone.

    Methods may be called from any threads. At most `concurrency` calls compute at a time, and
    the others wait, so memory is bounded by as many batches. Nothing is compiled in a call.

    Arguments of the methods:
      nodes: int `[n]`, ids of nodes in any order; by default all. With `new` its `n` nodes have
        the ids from `num_nodes` on, and are the default. Of pairs int `[n, 2]`, source and
        target. `model.node_ids.nodes(names)` makes ids of the names of a user's tables.
      time: ints `[n]` in the unit of the graph's times, or dates where that is known
        (`spec.time_unit`); or one for all. For a model with times, and no other.
      node_type: the name of a node type. `nodes` then count from 0 in it.
      relation: the name of the pairs' relation, by default the one that was learned.
      new: `NewNodes`, which this call alone knows.
      key: the random key of what is drawn, a Threefry key or its key data uint32 `[2]`. None:
        that of the run (`spec.key`). An answer depends on the key, the graph, and its own nodes
        and time alone, and not on the others of the call.
      batch_size: one of `spec.batch_sizes`, whose program computes every row. None: the next
        larger one for what is asked. Programs of different sizes may differ in the last bits.
      graph: what `store` returned of another graph, which is read in place of the model's.

    They raise `InputError` for what does not fit.

    Fields:
      spec: the `Spec` of the artifact.
      answer: the `jgs.answers.Answer` of its outputs; `answer.columns` makes columns of what
        `predict` returns.
      class_names: NumPy text `[num_classes]`, or None.
      node_ids: `jgs.NodeIds` of the run's data, or None: `model.node_ids.nodes(["ann"])`.
      platform: where it runs, as JAX names it.
      kernel: whether it calls the compiled kernels.
      num_nodes: the number of nodes of its graph.
      graph: the `Store` of its graph.
    """

    def __init__(
        self,
        spec: Spec,
        programs: Mapping[str, Program],
        params: Any,
        store: Store,
        *,
        ids: NodeIds | None,
        device: Any,
        kernel: bool,
        concurrency: int,
        stored: Callable[..., Store],
    ):
        self.answer = spec.answer()
        self.spec, self.node_ids, self.kernel = spec, ids, kernel
        self.class_names, self.platform = self.answer.names, device.platform
        self.graph, self.num_nodes, self.store = store, store.num_nodes, stored
        self._programs, self._params, self._device = programs, params, device
        self._key = np.array(spec.first_key, np.uint32)
        self._free = threading.BoundedSemaphore(concurrency)

    def predict(self, nodes: Any = None, **options: Any) -> Any:
        """The `jgs.predict.Predictions` for nodes, or for what edges are: classes and
        probabilities. Where labels are numbers float64 `[n]`, or `[n, C]` of several, in the
        unit of the labels. Of links float32 `[n]`: the logistic function of each pair's score.
        `options` are those of `logits`."""
        return self.answer.of(self.logits(nodes, **options))

    def logits(
        self,
        nodes: Any = None,
        *,
        time: Any = None,
        node_type: str | None = None,
        relation: str | None = None,
        new: NewNodes | None = None,
        key: Any = None,
        batch_size: int | None = None,
        graph: Store | None = None,
    ) -> np.ndarray:
        """float32 `[n, C]`, of links `[n]`: the model's outputs, as of `jgs.predict.Run`."""
        spec, store = self.spec, self.graph if graph is None else graph
        _check_size(spec, batch_size)
        key_data = self._key if key is None else _key_data(key)
        number = relation_asked(spec, store.schema, relation)
        if spec.pairs is not None:
            for name, value in (("new", new), ("node_type", node_type)):
                if value is not None:
                    refuse_untaken(name, "nodes", spec)
            pairs = pairs_asked(store.schema, nodes, store.num_nodes, number)
            times = moments_asked(spec, time, len(pairs))
            with self._free:
                return self._scores(store.arrays, key_data, pairs, times, number, batch_size)
        with self._free:
            added, arrays = 0, store.arrays
            if new is not None:
                added, arrays = store.with_new(new)
            total = store.num_nodes + added
            if nodes is None and new is not None:
                nodes = np.arange(store.num_nodes, total)
            ids = nodes_asked(spec, store.schema, nodes, total, node_type)
            times = moments_asked(spec, time, ids.size)
            return self._rows(arrays, key_data, ids, times, batch_size)

    score = logits

    def recommend(
        self,
        nodes: Any,
        k: int,
        *,
        new_only: bool = False,
        relation: str | None = None,
        key: Any = None,
        batch_size: int | None = None,
        graph: Store | None = None,
    ) -> Lists:
        """The `k` best targets of links for each of the sources `nodes`, of the prepared
        candidates: those of the artifact, at the moment `graph.candidates.time`, or those of
        `prepare`. Nodes that do not exist yet at that moment are none, nor is a node its own.

        Args:
          k: int, at least 1.
          new_only: whether those are left out to which a node had a link at the export, as by
            `jgs.predict.Run.recommend`; not for a model with times.

        Returns int32 `[n, k]`, the best first, and their scores float32 `[n, k]`. Where fewer
        candidates are left there is -1, of score `-inf`. Raises `InputError`.
        """
        spec, store = self.spec, self.graph if graph is None else graph
        found = self._candidates(store, k, new_only)
        _check_size(spec, batch_size)
        number = relation_asked(spec, store.schema, relation)
        ids = ids_below("nodes", nodes, store.num_nodes)
        time = None if found.time is None else np.full(ids.size, int(found.time))
        some = found.of_type(store.schema, self._target_type(store, number))
        key_data = self._key if key is None else _key_data(key)
        best = [(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))]
        with self._free:
            rows = self._rows(store.arrays, key_data, ids, time, batch_size)
            wanted = ids.size if batch_size is None else batch_size
            size = self._size(min(wanted, _SCORES // max(1, found.nodes.size)))
            for begin in range(0, ids.size, size):
                own = rows[begin : begin + size]
                scores = self._run("list.", size, [own, found.rows], number)[: len(own)]
                nodes_of_rows = ids[begin : begin + size]
                of_list = k, some, store.gone, new_only, number
                best.append(found.best(scores, nodes_of_rows, *of_list))
        lists, values = (np.concatenate(each) for each in zip(*best, strict=True))
        return lists, values

    def prepare(
        self, nodes: Any = None, *, time: Any = None, graph: Store | None = None
    ) -> Candidates:
        """Computes the rows of candidates, by default of all nodes that may be targets, from
        which `recommend` then chooses; of a model with times at the moment `time`, of nodes
        that exist before it. It takes as long as an answer for each, and compiles a program.
        Returns them. Raises `InputError`."""
        spec, store = self.spec, self.graph if graph is None else graph
        if spec.pairs is None or not spec.pairs["lists"]:
            refuse_untaken("candidates", "links", spec)
        kind, schema = self._target_type(store, spec.pairs["relation"]), store.schema
        if nodes is None and kind is not None and schema is not None:
            nodes = nodes_of(schema, kind)
        elif nodes is None:
            nodes = np.arange(store.num_nodes)
        ids = np.unique(ids_below("candidates", nodes, store.num_nodes))
        moment = moments_asked(spec, time, 1)
        if moment is not None and store.node_time is not None:
            ids = ids[store.node_time[ids] < moment[0]]
        times = None if moment is None else np.repeat(moment, ids.size)
        with self._free:
            rows = self._rows(store.arrays, self._key, ids, times)
        known = None if store.candidates is None else store.candidates.known
        at = None if moment is None else moment[0]
        store.candidates = Candidates(ids, self._put(rows), at, known)
        return store.candidates

    def warm(self) -> None:
        """Compiles the programs for the graph and its candidates."""
        spec, store = self.spec, self.graph
        none, time = store.arrays["indptr"].shape[-1] - 1, np.zeros(1, np.int64)
        times = time if spec.timed else None
        with jax.default_device(self._device):
            for size in spec.batch_sizes:
                seeds = np.full(1, none, np.int32), times
                self._of_size(size, store.arrays, self._key, *seeds)
                if spec.pairs is None:
                    continue
                rows = np.zeros((size, spec.pairs["width"]), np.float32)
                self._run("pair.", size, [rows, rows], None)
                if store.candidates is not None and store.candidates.nodes.size:
                    self._run("list.", size, [rows, store.candidates.rows], None)

    def _candidates(self, store: Store, k: Any, new_only: bool) -> Candidates:
        spec, found = self.spec, store.candidates
        if spec.pairs is None or not spec.pairs["lists"]:
            refuse_untaken("recommend", "links", spec)
        refuse(
            (isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1,
             "k must be an int of at least 1", repr(k), "Change it."),
            (found is None,
             "a model must have prepared candidates to recommend some", "none",
             "Call model.prepare(), or export with with_graph (--with-graph)."),
        )  # fmt: skip
        assert found is not None
        refuse(
            (new_only and found.known is None,
             "new_only must be for a model without times that has its graph's links",
             "one without", "Leave it out."),
        )  # fmt: skip
        return found

    def _target_type(self, store: Store, relation: int | None) -> str | None:
        """The node type of the targets; None where any node may be one."""
        if relation is not None and store.schema is not None:
            return store.schema.relations[relation][2]
        types = None if self.spec.pairs is None else self.spec.pairs["types"]
        return None if types is None else types[1]

    def _rows(
        self, arrays: Any, key_data: Any, ids: np.ndarray, times: Any, fixed: int | None = None
    ) -> np.ndarray:
        """float32 `[n, W]`: the rows of nodes, each at its moment if it has one."""
        (nodes, moments), place = _distinct(ids, times)
        width = self.spec.pairs["width"] if self.spec.pairs else self.spec.num_classes
        outputs: list[np.ndarray] = [np.zeros((0, width), np.float32)]
        begin = 0
        while begin < nodes.size:
            size = fixed or self._size(nodes.size - begin)
            some = slice(begin, begin + size)
            own = nodes[some], None if moments is None else moments[some]
            outputs.append(self._of_size(size, arrays, key_data, *own))
            begin += size
        return np.concatenate(outputs)[place]

    def _of_size(
        self, size: int, arrays: Any, key_data: Any, nodes: np.ndarray, times: Any
    ) -> np.ndarray:
        seeds = np.full(size, arrays["indptr"].shape[-1] - 1, np.int32)
        given: list[Any] = [seeds]
        seeds[: nodes.size] = nodes
        if times is not None:
            moments = np.zeros(size, np.int64)
            moments[: nodes.size] = times
            given.append(self._put(moments))
        with jax.default_device(self._device):  # as in `warm`: JAX compiles again without it
            rows = self._programs[str(size)](self._params, arrays, key_data, *given)
        return np.asarray(rows)[: nodes.size]

    def _scores(
        self,
        arrays: Any,
        key_data: Any,
        pairs: np.ndarray,
        times: Any,
        relation: int | None,
        fixed: int | None,
    ) -> np.ndarray:
        """float32 `[n]` or `[n, C]`: what the decoder makes of pairs int32 `[n, 2]`."""
        of_ends = None if times is None else np.repeat(times, 2)
        rows = self._rows(arrays, key_data, pairs.reshape(-1), of_ends, fixed)
        rows = rows.reshape(len(pairs), 2, rows.shape[1])
        most = fixed or self.spec.batch_sizes[-1]
        outputs = []
        for begin in range(0, max(len(pairs), 1), most):
            own = rows[begin : begin + most]
            size = fixed or self._size(len(own))
            scores = self._run("pair.", size, [own[:, 0], own[:, 1]], relation)
            outputs.append(scores[: len(own)])
        return np.concatenate(outputs)

    def _run(self, name: str, size: int, rows: list[Any], relation: int | None) -> np.ndarray:
        """The result of a program of the decoder, of rows that are padded to its size."""
        padded = [
            np.pad(each, [(0, size - len(each)), (0, 0)])
            if isinstance(each, np.ndarray)
            else each
            for each in rows
        ]
        of = np.full(size, relation or 0, np.int32)
        with jax.default_device(self._device):
            return np.asarray(self._programs[f"{name}{size}"](self._params, *padded, of))

    def _put(self, array: np.ndarray) -> jax.Array:
        """The array on the model's device; 64-bit numbers stay such."""
        if self.platform == "cpu":
            return as_device(array)
        with jax.enable_x64(True):
            return jax.device_put(array, self._device)

    def _size(self, wanted: int) -> int:
        sizes = self.spec.batch_sizes
        return next((size for size in sizes if size >= wanted), sizes[-1])

    def _facts(self) -> dict[str, str]:
        fanouts = ", ".join(map(str, self.spec.fanouts))
        return {
            "": f"{self.spec.model} of {self.spec.dataset}",
            "num_nodes": f"{self.num_nodes:,}",
            "fanouts": f"({fanouts})" * bool(fanouts),
            "batch_sizes": str(tuple(self.spec.batch_sizes)),
            "platform": self.platform + ", kernels" * self.kernel,
        }


def _distinct(ids: np.ndarray, times: Any) -> tuple[tuple[np.ndarray, Any], Any]:
    """The distinct nodes, or nodes at moments, and the place of each among them."""
    if ids.size == 1:
        return (ids, times), slice(None)
    if times is None:
        nodes, place = np.unique(ids, return_inverse=True)
        return (nodes, None), place
    rows, place = np.unique(np.stack([times, ids]), axis=1, return_inverse=True)
    return (rows[1], rows[0]), place.reshape(-1)


def _check_size(spec: Spec, size: Any) -> None:
    if size is not None and (type(size) is not int or size not in spec.batch_sizes):
        rule = f"batch_size must be one of {', '.join(map(str, spec.batch_sizes))}"
        raise InputError(rule, repr(size), "Leave it out.")


def _key_data(key: Any) -> np.ndarray:
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    data = np.asarray(key)
    remedy = 'Make one with jax.random.key(seed, impl="threefry2x32").'
    require_array("key", data, "uint32 [2], a Threefry key", remedy)
    return data
