"""`Schedule`: which seeds each batch of an epoch has, and the key it is sampled with."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.checks import require_int
from jgs.sampling.random import as_key_data, fold_each, node_bits, step_key_data

_UINT32_MAX = 2**32 - 1
StepKeys = Callable[[np.ndarray, np.ndarray], np.ndarray]
_LOOKED_AT = 4096  # entries of an array by which a graph is known again


class SeedParts(NamedTuple):
    """Seeds dealt to the parts of a graph.

    Every batch takes as many of each part: the batch of a rank with all parts is the union of
    the batches of ranks that share them.

    Fields:
      parts: int32 `[n_p]` each, or `[n_p, 2]` of pairs; the seeds of the parts that are
        sampled here.
      first: the number of the first of them among all.
      num_parts, num_seeds, longest: of all parts; the most seeds that one has.
      digest: int, equal wherever the parts are dealt alike.
    """

    parts: Sequence[np.ndarray]
    first: int
    num_parts: int
    num_seeds: int
    longest: int
    digest: int

    @classmethod
    def whole(cls, seeds: np.ndarray, digest: int = 0) -> SeedParts:
        """All seeds in one part; `digest` is that of the graph."""
        digest = zlib.crc32(seeds.tobytes(), digest)
        return cls([seeds], 0, 1, len(seeds), len(seeds), digest)


def graph_digest(graph: Graph) -> int:
    """A number by which another graph is noticed: of its sizes and of some thousand offsets and
    edges, evenly spaced."""
    digest = zlib.crc32(f"{graph.num_nodes} {graph.num_edges}".encode())
    for array in (graph.indptr, graph.indices):
        some = np.linspace(0, array.size - 1, min(array.size, _LOOKED_AT)).astype(np.int64)
        on_host = next(iter(array.devices())).platform == "cpu"
        with jax.enable_x64(True):  # else offsets and positions would be cut to int32
            entries = np.asarray(array)[some] if on_host else np.asarray(array[some])
        digest = zlib.crc32(entries.tobytes(), digest)
    return digest


class Schedule:
    """The batches of every epoch, by (key, epoch, step): pure functions of them.

    Batch `i` of epoch `e` has the key `fold_in(fold_in(key, e), 1 + i)`, or what `step_keys`
    says; the order of the seeds comes from `fold_in(fold_in(key, e), 0)`, in pass `i` and part
    `p` of `P` by draw number `i * P + p`.

    Args:
      key: a random key.
      seed_parts: the seeds; of each part there are at least `batch_size`, if of one part alone.
      batch_size: seeds of a part in a batch; a batch has `batch_size * len(seed_parts.parts)`.
      num_nodes: what seeds are padded with.
      shuffle: otherwise the seeds keep their order.
      settings: what else decides the batches, as text.
      step_keys: the keys uint32 `[n, W]` of an epoch's steps, by the epoch's key and their
        numbers; see `jgs.sampling.base.step_keys`.
      passes: how often an epoch goes over the seeds, every time in another order.
      share: `(r, R)`; of every batch the `r`-th of `R` equal parts is given, a rank's.
      whole: whether every batch is given all seeds of its parts, ascending, of which the
        sampler chooses; `batch_size` then only says how many batches an epoch has.

    Attributes: epoch, step: the position, moved by the user of it; batch_size.
    """

    def __init__(
        self,
        key: Any,
        seed_parts: SeedParts,
        batch_size: int,
        num_nodes: int,
        shuffle: bool = True,
        settings: str = "",
        step_keys: StepKeys = step_key_data,
        passes: int = 1,
        whole: bool = False,
        share: tuple[int, int] = (0, 1),
    ):
        self._key_data = np.asarray(as_key_data(key))
        self._seed_parts, self._shuffle, self._num_nodes = seed_parts, shuffle, num_nodes
        self.batch_size = _check_batch_size(batch_size, seed_parts.longest)
        self._step_keys, self._passes, self._whole = step_keys, passes, whole
        self._share = share
        self._digest = zlib.crc32(settings.encode(), seed_parts.digest)
        self.epoch = self.step = 0

    def __len__(self) -> int:
        return self._passes * self._steps_of_pass()

    @property
    def num_seeds(self) -> int:
        """Of all parts together."""
        return self._seed_parts.num_seeds

    def _steps_of_pass(self) -> int:
        return -(-self._seed_parts.longest // self.batch_size)

    def batches(self, epoch: int, more: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """uint32 `[len + more, W]`, the key of every batch of an epoch, and its seeds, int32
        `[len + more, batch_size * len(parts)]` (`whole`: `[len + more, n]`), of pairs with a
        last axis of 2; those beyond the epoch's end are padding."""
        epoch_key_data = fold_each(self._key_data, [epoch])[0]
        order_key_data = fold_each(epoch_key_data, [0])[0]
        steps, columns = len(self) + more, []
        keys = self._step_keys(epoch_key_data, np.arange(steps))
        if self._whole:
            every = np.sort(np.concatenate(self._seed_parts.parts))
            return keys, np.broadcast_to(every, (steps, every.size))
        each = self._steps_of_pass() * self.batch_size
        for part, seeds in enumerate(self._seed_parts.parts, self._seed_parts.first):
            pair = seeds.shape[1:]
            padded = np.full((steps, self.batch_size, *pair), self._num_nodes, np.int32)
            for i in range(self._passes):
                draw = i * self._seed_parts.num_parts + part
                ordered = (
                    seeds[_order(order_key_data, len(seeds), draw)] if self._shuffle else seeds
                )
                padded.reshape(-1, *pair)[i * each :][: len(seeds)] = ordered
            columns.append(padded)
        seeds = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        own, ranks = self._share
        width = seeds.shape[1] // ranks
        return keys, np.ascontiguousarray(seeds[:, own * width : (own + 1) * width])

    def state_dict(self) -> dict[str, int]:
        """The position and what it means: ints that `load_state_dict` takes back."""
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
        """Continue where the state was taken: the next batch is the one that came next there.

        The key is restored too. Raises `InputError` when the state is of other seeds, batch
        size or sampler, for then the batches would not be the same.
        """
        mine = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(mine):
            raise InputError(
                f"a loader's state must have the entries {sorted(mine)}",
                sorted(state) if isinstance(state, Mapping) else repr(state),
                "Pass what Loader.state_dict returned.",
            )
        most = {"epoch": _UINT32_MAX, "step": len(self)}
        for name, value in state.items():
            limit = most.get(name, _UINT32_MAX)
            if require_int(f"the state's {name}", value, 0) > limit:
                raise InputError(
                    f"the state's {name} must be at most {limit}",
                    value,
                    "Pass what Loader.state_dict returned.",
                )
        for name in ("num_seeds", "batch_size", "digest"):
            if state[name] != mine[name]:
                raise InputError(
                    f"the state's {name} must be the loader's, {mine[name]}",
                    state[name],
                    "Make the loader as it was when the state was taken: the same graph, "
                    "seeds, batch size and sampler, and, unless that is by-node, as many "
                    "ranks.",
                )
        self._key_data = np.array([state["key_0"], state["key_1"]], np.uint32)
        self.epoch, self.step = int(state["epoch"]), int(state["step"])


def _order(key_data: np.ndarray, n: int, part: int) -> np.ndarray:
    """A permutation of `n`: positions sorted by the 64 random bits that the key gives each."""
    with jax.enable_x64(True):
        bits = node_bits(jnp.asarray(key_data), jnp.arange(n, dtype=jnp.int32), part)
        return np.argsort(np.asarray(bits), kind="stable")


def _check_batch_size(batch_size: Any, num_seeds: int) -> int:
    if require_int("batch_size", batch_size, 1) > num_seeds:
        raise InputError(
            f"the batch size must be at most {num_seeds}, the number of seeds",
            batch_size,
            "Choose a smaller batch.",
        )
    return int(batch_size)
