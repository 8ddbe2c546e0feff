"""`TwoSteps`: sampling in two steps by way of COO, the baseline of FastSample's figures.

DGL samples like this where its sampler is not fused. At every hop the first step draws each
target's neighbours into a list of edges (COO), of which both ends are global ids. The second
step makes a block of it: it finds the distinct nodes with a hash table, gives both ends of
every edge local ids, and sorts the edges by target (CSC). jgs's fused kernel does all of that
while it draws, for all hops in one call.

What a node draws is jgs's own choice, so both draw the same sample, bit for bit. All of it is
one compiled program, and has the threads of jgs's kernels. `two_steps.cc` is compiled against
their headers, of which it takes the sharing of work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs
from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Block, Graph, MiniBatch
from jgs.sampling import Neighbors
from jgs.sampling.capacity import Capacities, Capacity, GraphShape
from jgs.settings import exact_integers

_SOURCE = Path(__file__).with_suffix(".cc")
_HANDLERS = {
    "two_steps_write_targets": "TwoStepsWriteTargets",
    "two_steps_make_block": "TwoStepsMakeBlock",
}


def register(folder: Path) -> bool:
    """Compiles `two_steps.cc` once into `folder`, and makes its handlers known to XLA. False
    without a C++ compiler or jgs's kernels."""
    if not kernels.available():
        return False
    headers = Path(jgs.__file__).parent / "kernels"
    sources = (_SOURCE, headers / "ffi.h", headers / "parallel.h")
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    path = folder / f"{_SOURCE.stem}-{digest}.so"
    if not path.is_file():
        flags = ("-std=c++20", "-O3", "-shared", "-fPIC", "-pthread")
        folders = (f"-I{headers}", "-isystem", jax.ffi.include_dir())
        unfinished = path.with_suffix(f".{os.getpid()}")  # ranks may compile at once
        try:
            command = ["g++", *flags, *folders, "-o", str(unfinished), str(_SOURCE)]
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        unfinished.rename(path)
    _known(path)
    return True


@cache
def _known(path: Path) -> None:
    library = ctypes.CDLL(str(path))
    for target, symbol in _HANDLERS.items():
        handler = jax.ffi.pycapsule(getattr(library, symbol))
        jax.ffi.register_ffi_target(target, handler, platform="cpu")


def sample(
    sampler: Neighbors,
    capacity: Capacity,
    key_data: jax.Array,
    graph: Graph,
    seeds: jax.Array,
) -> MiniBatch:
    """`sampler.sample` in two steps, to be jitted under x64 after `register`.

    Args:
      sampler: a `Neighbors` without relations, whose blocks have no columns of edges.
      capacity: as in `Sampler.sample`. After an overflow only `overflow` and `needed` are of
        use.
      key_data: uint32 `[2]`.
      seeds: int32 `[B]`, distinct but for padding `N`, at any position. The call fails for
        seeds that repeat.
    """
    num_nodes, blocks, needed = graph.num_nodes, list[Block](), []
    slot = jnp.arange(1, seeds.shape[0] + 1, dtype=jnp.int32)
    num_targets = jnp.max(slot, initial=0, where=seeds < num_nodes)
    targets, overflow = seeds, jnp.zeros((), bool)
    for h, (room, source_room) in enumerate(zip(*capacity, strict=True)):
        drawn = sampler.draw_hop(key_data, graph, targets, h, room)
        row = _call("write_targets", _ints(room), targets, drawn.indptr)
        num_edges = drawn.indptr[-1]
        shapes = (_ints(source_room), _ints(), _ints(targets.shape[0] + 1), _ints(room))
        coo = (row, drawn.neighbors, num_edges)
        sources, num_sources, indptr, indices = _call(
            "make_block", shapes, targets, num_targets, *coo, padding=np.int64(num_nodes)
        )
        fits = drawn.needed <= room
        need = jnp.stack([drawn.needed, jnp.where(fits, num_sources, 0)])
        needed.append(jnp.where(overflow, 0, need))
        overflow |= ~fits | (num_sources > source_room)
        counts = (num_targets, num_sources, num_edges)
        blocks.append(Block(indptr, indices, *counts, source_capacity=source_room))
        # After an overflow nothing is drawn.
        targets = jnp.where(overflow, num_nodes, sources)
        num_targets = jnp.where(overflow, 0, num_sources)
    needs = jnp.stack(needed, axis=1).astype(jnp.int32)
    return MiniBatch.drawn(seeds, targets, blocks[::-1], overflow, num_nodes, needed=needs)


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _call(name: str, out: Any, *operands: jax.Array, **attributes: Any) -> Any:
    call = jax.ffi.ffi_call(f"two_steps_{name}", out)
    return call(*operands, num_threads=np.int64(kernels.NUM_THREADS), **attributes)


class TwoSteps:
    """A `jgs.dist.batches.source.RankSampler` that draws by `sample`, for a rank that has the
    whole topology.

    Args:
      graph, sampler: as for `sample`.
      batch_size: the seeds of a batch.
      capacity: that of the batches.
    """

    extra_rounds = 0

    def __init__(self, graph: Graph, batch_size: int, sampler: Neighbors, capacity: Capacity):
        if sampler.edges or sampler.edge_ids or sampler.edge_weights or sampler.by_relation:
            raise InputError(
                "the blocks of two steps have no columns of edges, and no relations",
                f"edges={sampler.edges}, edge_ids={sampler.edge_ids}, "
                f"edge_weights={sampler.edge_weights}, fanouts={sampler.fanouts}",
                "Leave these out.",
            )
        self._graph, self._sampler = graph, sampler
        self.capacities = Capacities(
            capacity, sampler.bound(GraphShape.of(graph), batch_size, True)
        )
        self._programs = cache(self._program)

    def __call__(
        self, key_data: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        """See `RankSampler`."""
        with exact_integers():  # edge offsets are 64-bit
            program = self._programs(capacity or self.capacities.capacity)
            return program(key_data, self._graph, seeds)

    def _program(self, capacity: Capacity) -> Any:
        return jax.jit(partial(sample, self._sampler, capacity))
