"""`Mesh`: the communicator of JAX's own collectives, one rank a device.

Programs run by `jax.shard_map` over a mesh of all devices: several devices of one process, or
one or more of each process under `jax.distributed` (gloo between CPUs, NCCL between GPUs).
`jax.pmap` would do the same, but is in maintenance mode: shard_map is its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jgs import kernels
from jgs.dist.communicators.comm import AXIS, OWN, SAME, Compiled
from jgs.settings import exact_integers


class Mesh(Compiled):
    """See `Communicator`. `devices`: those of all processes; by default all that there are.

    Attributes:
      sharding: that of `OWN` values, as `Loader` takes it.
      platform: that of the devices, such as "cpu" or "gpu".
    """

    concurrent = False  # XLA runs collectives in the order in which each process called them
    uniform = True

    def __init__(self, devices: Sequence[jax.Device] | None = None):
        super().__init__()
        devices = list(devices or jax.devices())
        process = jax.process_index()
        self._local = [d for d in devices if d.process_index == process]
        self.size, self.num_local = len(devices), len(self._local)
        self.rank = devices.index(self._local[0])
        self._mesh = jax.sharding.Mesh(np.array(devices), (AXIS,))
        self.sharding = NamedSharding(self._mesh, OWN)
        self.platform = devices[0].platform

    def clone(self) -> Mesh:
        return Mesh(list(self._mesh.devices))

    def index(self) -> jax.Array:
        return jax.lax.axis_index(AXIS)

    def all_to_all(self, x: jax.Array) -> jax.Array:
        self.count(x.nbytes // self.size * (self.size - 1))
        return jax.lax.all_to_all(x, AXIS, 0, 0)

    def others(self, xs: Sequence[jax.Array]) -> list[jax.Array]:
        shift = self.index() + 1
        x = jnp.roll(jnp.stack([*xs, jnp.zeros_like(xs[0])]), shift, axis=0)
        received = jnp.roll(self.all_to_all(x), -self.index(), axis=0)
        return list(received[:0:-1])

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        self.count(2 * x.nbytes * (self.size - 1) // self.size)
        return {"sum": jax.lax.psum, "max": jax.lax.pmax}[op](x, AXIS)

    def all_gather(self, x: jax.Array) -> jax.Array:
        self.count(x.nbytes * (self.size - 1))
        return jax.lax.all_gather(x, AXIS)

    def on_rank(self, function: Callable, in_specs: Sequence[Any], out_specs: Any) -> Callable:
        def one_device(*args):
            given = [_first(a) if s == OWN else a for a, s in zip(args, in_specs, strict=True)]
            # A thread whose other programs are for its host alone has this one for its devices.
            with kernels.this_host_only(kernels.host_only() and self.platform == "cpu"):
                results = function(*given)
            if out_specs in (OWN, SAME):
                return _with_axis(results) if out_specs == OWN else results
            return tuple(
                _with_axis(r) if s == OWN else r
                for r, s in zip(results, out_specs, strict=True)
            )

        return jax.shard_map(
            one_device,
            mesh=self._mesh,
            in_specs=tuple(in_specs),
            out_specs=out_specs,
            check_vma=False,  # gradients are summed where the step says so, not by shard_map
        )

    def own(self, values: Sequence[Any]) -> Any:
        def stack(*arrays):
            given = [_on_host(a)[None] for a in arrays]
            return self._assemble((self.size, *given[0].shape[1:]), OWN, given)

        return jax.tree.map(stack, *values)

    def same(self, value: Any) -> Any:
        def replicate(array):
            array = _as_array(array)
            if isinstance(array, jax.Array) and array.sharding == NamedSharding(
                self._mesh, SAME
            ):
                return array  # other processes' copies cannot be moved from here
            return self._assemble(array.shape, SAME, [array] * self.num_local)

        return jax.tree.map(replicate, value)

    def _assemble(
        self, shape: tuple[int, ...], spec: PartitionSpec, arrays: Sequence[Any]
    ) -> jax.Array:
        sharding = NamedSharding(self._mesh, spec)
        with exact_integers():  # without it int64 offsets would be cut to int32
            pieces = [
                jax.device_put(a, d, may_alias=True)
                for a, d in zip(arrays, self._local, strict=True)
            ]
            return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    def local(self, value: Any) -> list[Any]:
        leaves, structure = jax.tree.flatten(value)
        # Shards are told by their device: in an array without entries their index says nothing.
        nth = {device: i for i, device in enumerate(self._local)}
        rows = [sorted(a.addressable_shards, key=lambda s: nth[s.device]) for a in leaves]
        return [
            jax.tree.unflatten(structure, _first_rows([shards[i].data for shards in rows]))
            for i in range(self.num_local)
        ]


def _as_array(value: Any) -> Any:
    """An array of `value`; a Python number gets the dtype that `jax.jit` gives it."""
    return value if hasattr(value, "shape") else jnp.asarray(value)


def _on_host(value: Any) -> Any:
    """`value` in a form that can be reshaped without a copy: on a CPU a JAX array's memory."""
    array = _as_array(value)
    on_cpu = isinstance(array, jax.Array) and array.platform() == "cpu"
    return np.asarray(array) if on_cpu else array


def _first(value: Any) -> Any:
    """The first row of each leaf. One without entries is not read: XLA of JAX 0.11.2 ends the
    process where a program reads an array without entries that lies on several devices."""
    return jax.tree.map(lambda a: a[0] if a.size else jnp.zeros(a.shape[1:], a.dtype), value)


_first_rows = jax.jit(_first)  # one program for a pytree, not one for each shape


def _with_axis(value: Any) -> Any:
    return jax.tree.map(lambda a: a[None], value)
