"""`Schedule`: the seeds of each batch of an epoch, and the key that samples it. `Epochs`: how
epochs go over items. `Order`: in which order, a function for each order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jgs.arrays import described
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.base import Sampler
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import (
    as_key_data,
    fold_each,
    fold_keys,
    node_bits,
    step_key_data,
)
from jgs.sampling.loading.items import Asked, name_of, num_items, padding_of
from jgs.settings import exact_integers

_UINT32_MAX = 2**32 - 1
_node_bits = jax.jit(node_bits)
_read = jax.jit(lambda array, at: array[at])
_DIGEST_ENTRIES = 4096  # the number of entries of each array that enter a graph's digest

Order = Callable[[Any, np.ndarray, int], Any]
"""`order(items, bits, epoch)`: the positions int `[n]` of the items, each once, in the order in
which batches take them. `items` is the pytree of arrays `[n, ...]`. `bits` uint64 `[n]` are
random, and others in each epoch, by the loader's key."""


def shuffled(items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
    """Any order is as likely."""
    return np.argsort(bits, kind="stable")


def in_time(items: Any, within: int) -> Order:
    """The order of the items' column `time`, where `within` that follow each other are shuffled
    among themselves. Raises `InputError`."""
    within = require_int("by_time", within, 1)
    time = items.get("time") if isinstance(items, Mapping) else None
    if time is None or time.ndim != 1:
        raise InputError(
            "items in the order of time must have a column time",
            ", ".join(map(str, items)) if isinstance(items, Mapping) else "ids alone",
            "Give a dict with nodes, or src and dst, and time.",
        )
    sorted_by_time = np.argsort(time, kind="stable")

    def order(items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
        return sorted_by_time[np.lexsort((bits, np.arange(bits.size) // within))]

    return order


def positions(order: Order, items: Any, bits: np.ndarray, epoch: int) -> np.ndarray:
    """What an order says. Raises `InputError` unless each item comes once."""
    found = np.asarray(order(items, bits, epoch))
    there = np.zeros(bits.size, bool)
    good = found.shape == bits.shape and found.dtype.kind in "iu"
    if good and found.size and found.min() >= 0 and found.max() < bits.size:
        there[found] = True
    if not good or not there.all():
        raise InputError(
            f"an order must give each of the {bits.size} positions once, as integers",
            "others of them" if good else described(found),
            "Sort the items, e.g. by numpy.lexsort((bits, level)).",
        )
    return found


@dataclass(frozen=True)
class Epochs:
    """How epochs go over the items of a loader. The fields are arguments of `Loader`."""

    shuffle: bool | Order = True
    drop_last: bool = False
    by_time: int | None = None
    one_key: bool = False

    def order_of(self, items: Any) -> Order | None:
        """The order of the items; None: as they are. Raises `InputError`."""
        if self.by_time is None:
            order = shuffled if self.shuffle else None
            return self.shuffle if callable(self.shuffle) else order
        if callable(self.shuffle):
            raise InputError(
                "by_time must be without an order of its own",
                f"by_time={self.by_time} and {name_of(self.shuffle)}",
                "Leave one out.",
            )
        return in_time(items, self.by_time)

    @property
    def named(self) -> str:
        """How a loader's state names all of it, but whether items are shuffled."""
        names = [name for name in ("drop_last", "one_key") if getattr(self, name)]
        if callable(self.shuffle):
            names.append(f"order={name_of(self.shuffle)}")
        if self.by_time is not None:
            names.append(f"by_time={self.by_time}")
        return "".join(f" {name}" for name in names)


SHUFFLED = Epochs()


class SeedParts(NamedTuple):
    """Items, which are seeds or what seeds are made of, divided among the parts of a graph.

    Every batch takes the same number of items from each part. So the batch of a rank that has
    all parts is the union of the batches of ranks that share the parts.

    Fields:
      parts: a pytree of arrays `[n_p, ...]` each; the items of the parts that are sampled here.
        Seeds are an array int32 `[n_p]`, or `[n_p, 2]` for pairs.
      first: int, the index of the first of these parts among all parts.
      num_parts, num_seeds: int, the numbers of all parts and of all items.
      longest: int, the largest number of items in a part.
      digest: int, equal wherever the items are divided in the same way.
      passes: int, how often an epoch goes over the items, each time in another order.
    """

    parts: Sequence[Any]
    first: int
    num_parts: int
    num_seeds: int
    longest: int
    digest: int
    passes: int = 1

    @classmethod
    def whole(cls, items: Any, digest: int = 0) -> SeedParts:
        """All items in one part; `digest` is the digest of the graph."""
        leaves, form = jax.tree.flatten(items)
        if len(leaves) > 1 or leaves[0] is not items:
            digest = zlib.crc32(str(form).encode(), digest)
        for leaf in leaves:
            digest = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), digest)
        count = num_items(items)
        return cls([items], 0, 1, count, count, digest)


def graph_digest(graph: Graph) -> int:
    """A checksum of a graph's sizes and of up to 4,096 evenly spaced entries each of `indptr`
    and `indices`. A different graph is noticed by it."""
    digest = zlib.crc32(f"{graph.num_nodes} {graph.num_edges}".encode())
    for array in (graph.indptr, graph.indices):
        at = np.linspace(0, array.size - 1, min(array.size, _DIGEST_ENTRIES)).astype(np.int64)
        on_host = next(iter(array.devices())).platform == "cpu"
        with exact_integers():  # else offsets and positions would be cut to int32
            if on_host:
                entries = np.asarray(array).reshape(-1)[at]
            else:
                entries = jax.device_get(_read(array, jax.device_put(at)))
        digest = zlib.crc32(entries.tobytes(), digest)
    return digest


class Schedule:
    """The batches of every epoch, each a pure function of (key, epoch, step).

    Batch `i` of epoch `e` has the key `fold_in(fold_in(key, e), 1 + i)`, or the one that the
    sampler's `step_keys` makes. The order of the seeds comes from `fold_in(fold_in(key, e),
    0)`: pass `i` over part `p` of `P` parts has draw number `i * P + p`.

    Args:
      batch_size: int; the number of seeds of each part in a batch, at most that of the longest
        part. A batch has `batch_size * len(seed_parts.parts)` seeds.
      num_nodes: int; the padding of seeds.
      epochs: how an epoch goes over the items. Items are dropped only if they are in one part.
      settings: text; everything else that determines the batches.
      sampler: has the steps' keys. Where it draws the seeds, every batch is given all of them,
        ascending, and `batch_size` only sets the number of batches. None: a by-node one.
      staged: whether stages make the seeds of a batch of its items.
      share: `(r, R)`; every batch is divided into `R` equal parts, and this schedule gives the
        `r`-th, the share of a rank.
      devices: every batch, or a rank's share of it, is divided further into so many equal
        parts, one for a device; where the sampler draws the seeds, each has all. Unless it is
        by-node, each has a key of its own: that of the batch folded with the part's number.

    Attributes:
      epoch, step: the position, which the user of the schedule moves.
      batch_size, devices: as given.
    """

    def __init__(
        self,
        key: Any,
        seed_parts: SeedParts,
        batch_size: int,
        num_nodes: int,
        epochs: Epochs = SHUFFLED,
        settings: str = "",
        sampler: Sampler | None = None,
        staged: bool = False,
        share: tuple[int, int] = (0, 1),
        devices: int = 1,
    ):
        self._key_data = jax.device_get(as_key_data(key))
        self._seed_parts, self._num_nodes = seed_parts, num_nodes
        self._epochs, self._order = epochs, epochs.order_of(seed_parts.parts[0])
        self.batch_size = require_int("batch_size", batch_size, 1)
        if self.batch_size > seed_parts.longest:
            raise InputError(
                f"the batch size must be at most {seed_parts.longest}, the number of seeds",
                batch_size,
                "Choose a smaller batch.",
            )
        self._step_keys = step_key_data if sampler is None else sampler.step_keys
        self._whole = sampler is not None and sampler.draws_seeds
        self._by_node = sampler is None or sampler.by_node
        self._staged, self._share, self.devices = staged, share, devices
        seeds = self.batch_size * len(seed_parts.parts) // share[1]
        if not self._whole and seeds % devices:
            raise InputError(
                f"the batch size must be a multiple of {devices}, the number of devices",
                seeds,
                f"Choose {-(-seeds // devices) * devices}.",
            )
        self._digest = zlib.crc32((settings + epochs.named).encode(), seed_parts.digest)
        self.epoch = self.step = 0

    def __len__(self) -> int:
        return self._seed_parts.passes * self._steps_of_pass()

    @property
    def num_draws(self) -> int:
        """The entries of what `batches` returns: one for each step and device."""
        return len(self) * self.devices

    @property
    def num_seeds(self) -> int:
        return self._seed_parts.num_seeds

    def _steps_of_pass(self) -> int:
        if self._epochs.drop_last:
            return self._seed_parts.longest // self.batch_size
        return -(-self._seed_parts.longest // self.batch_size)

    def batches(self, epoch: int, more: int = 0) -> tuple[np.ndarray, Any]:
        """The keys and the items of the batches of an epoch, and of `more` empty ones.

        Returns uint32 `[n, W]`, the key of each batch, where `n` is `len(self) + more`; and the
        items, `[n, batch_size * len(parts), ...]`, or a rank's share of them. Where the sampler
        draws the seeds they are int32 `[n, num_seeds]`. If `staged` it is an `Asked` instead,
        of such arrays. With `D` devices `n` is `D` times as large: the parts of a batch follow
        each other.
        """
        epoch_key_data = fold_each(self._key_data, [epoch])[0]
        steps = np.arange(len(self) + more)
        if self._epochs.one_key:
            keys = step_key_data(epoch_key_data, np.zeros_like(steps))
        else:
            keys = self._step_keys(epoch_key_data, steps)
        every = self._items(epoch_key_data, steps.size, epoch)
        rank, ranks = self._share

        def share(array: np.ndarray) -> np.ndarray:
            width = array.shape[1] // ranks
            return np.ascontiguousarray(array[:, rank * width : (rank + 1) * width])

        own = every if ranks == 1 else jax.tree.map(share, every)
        asked = Asked(own, every, step_key_data(epoch_key_data, steps)) if self._staged else own
        return (keys, asked) if self.devices == 1 else self._divided(keys, asked)

    def _divided(self, keys: np.ndarray, asked: Any) -> tuple[np.ndarray, Any]:
        def repeated(array: np.ndarray) -> np.ndarray:
            return np.repeat(array, self.devices, axis=0)

        def divided(array: np.ndarray) -> np.ndarray:
            return array.reshape(len(array) * self.devices, -1, *array.shape[2:])

        keys = repeated(keys)
        if not self._by_node:
            numbers = np.arange(len(keys), dtype=np.uint32) % self.devices
            keys = np.asarray(jax.vmap(fold_keys)(*jax.device_put((keys, numbers))))
        if not isinstance(asked, Asked):
            return keys, jax.tree.map(repeated if self._whole else divided, asked)
        every, key_data = jax.tree.map(repeated, asked[1:])
        return keys, Asked(jax.tree.map(divided, asked.items), every, key_data)

    def _items(self, epoch_key_data: np.ndarray, steps: int, epoch: int) -> Any:
        if self._whole:
            all_seeds = np.sort(np.concatenate(self._seed_parts.parts))
            return np.broadcast_to(all_seeds, (steps, all_seeds.size))
        order_key_data, columns = fold_each(epoch_key_data, [0])[0], []
        each = self._steps_of_pass() * self.batch_size
        for part, items in enumerate(self._seed_parts.parts, self._seed_parts.first):
            count, orders = num_items(items), list[Any]()
            for i in range(self._seed_parts.passes):
                draw = i * self._seed_parts.num_parts + part
                if self._order is None:
                    orders.append(slice(each))
                    continue
                bits = _random_bits(order_key_data, count, draw)
                orders.append(positions(self._order, items, bits, epoch)[:each])

            def fill(array: np.ndarray, orders: list = orders) -> np.ndarray:
                padding, form = padding_of(array, self._num_nodes), array.shape[1:]
                padded = np.full((steps, self.batch_size, *form), padding, array.dtype)
                for i, order in enumerate(orders):
                    ordered = array[order]
                    padded.reshape(-1, *form)[i * each :][: len(ordered)] = ordered
                return padded

            columns.append(jax.tree.map(fill, items))
        if len(columns) == 1:
            return columns[0]
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *columns)

    def state_dict(self) -> dict[str, int]:
        """The position, and what it is a position in: ints that `load_state_dict` takes."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "key_0": int(self._key_data[0]),
            "key_1": int(self._key_data[1]),
            "num_seeds": self._seed_parts.num_seeds,
            "batch_size": self.batch_size * self._seed_parts.num_parts,
            "digest": self._digest,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues from a state: the next batch is the one that was next when it was taken.

        The key of the state is used from then on, so a loader made with another key goes on
        with the batches of the state's. Raises `InputError` for the state of a loader with
        other items, another batch size or another sampler, whose batches would not be the same.
        """
        expected = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(expected):
            raise InputError(
                f"a loader's state must have the entries {sorted(expected)}",
                sorted(state) if isinstance(state, Mapping) else repr(state),
                "Pass what Loader.state_dict returned.",
            )
        for name, value in state.items():
            limit = len(self) if name == "step" else _UINT32_MAX
            if require_int(f"the state's {name}", value, 0) > limit:
                raise InputError(
                    f"the state's {name} must be at most {limit}",
                    value,
                    "Pass what Loader.state_dict returned.",
                )
        for name in ("num_seeds", "batch_size", "digest"):
            if state[name] != expected[name]:
                raise InputError(
                    f"the state's {name} must be the loader's, {expected[name]}",
                    state[name],
                    "Make the loader as it was when the state was taken: the same graph, "
                    "seeds, order, batch size, stages, drop_last and sampler, and, unless that "
                    "is by-node, as many ranks and devices.",
                )
        self._key_data = np.array([state["key_0"], state["key_1"]], np.uint32)
        self.epoch, self.step = int(state["epoch"]), int(state["step"])


def _random_bits(key_data: np.ndarray, n: int, part: int) -> np.ndarray:
    """uint64 `[n]`: the random bits that the key gives to each position of a part."""
    with exact_integers():
        given = (key_data, np.arange(n, dtype=np.int32), np.uint32(part))
        return jax.device_get(_node_bits(*jax.device_put(given)))
