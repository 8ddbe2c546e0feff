"""`Mesh`: the communicator of JAX's own collectives, one rank a device; and which of a host's
addresses gloo's ranks are told to connect to.

Programs run by `jax.shard_map` over a mesh of all devices: several devices of one process, or
one or more of each process under `jax.distributed` (gloo between CPUs, NCCL between GPUs).
`jax.pmap` would do the same, but is in maintenance mode: shard_map is its successor.

gloo takes the address that the host's own name resolves to. On Debian and Ubuntu that is
127.0.1.1, which no other host reaches. So each process takes the address from which it reaches
the coordinator; where that is loopback, the one from which it reaches another process, one that
does not use loopback. JAX makes gloo's part itself, without an address. `use_for_gloo`
registers a maker of the CPU backend that gives one, and otherwise does what JAX's own does.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jgs import kernels
from jgs.dist.communicators.comm import AXIS, OWN, SAME, Compiled
from jgs.dist.communicators.start import interfaces
from jgs.errors import InputError
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


_KEY = "jgs/address/{}"


def address_of(interface: str) -> str:
    """The address that `interface` means: the name of an interface of this host, or an address.

    Raises:
      InputError: this host has no such interface or address.
    """
    here = interfaces()
    if interface in here:
        return here[interface]
    try:
        family = socket.AF_INET6 if ":" in interface else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ipaddress.ip_address(interface)), 0))
        return interface
    except (OSError, ValueError):
        raise InputError(
            "--interface must name a network interface of this host, or one of its addresses",
            f"{interface!r} on {socket.gethostname()}, which has "
            + ", ".join(f"{name} {address}" for name, address in here.items()),
            "Choose one of these; hosts may have different ones.",
        ) from None


def address_towards(host: str) -> str:
    """The address of this machine from which packets to `host`, a name or an address, leave.

    Nothing is sent. IPv4 is tried first, so that all processes take the same kind of address.
    Raises `InputError` where there is no way to `host`.
    """
    problem = OSError("it has no address")
    try:
        places = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError as error:
        places, problem = [], error
    for family, kind, protocol, _, place in sorted(places, key=lambda p: p[0]):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)
                return probe.getsockname()[0]
        except OSError as error:
            problem = error
    raise InputError(
        "every rank must find its way to the other ranks' hosts",
        f"{host}: {problem}",
        "Correct the host's name or the routes, or give --interface.",
    )


def use_for_gloo(interface: str | None, coordinator: str | None, timeout: float) -> None:
    """Makes gloo's ranks connect to this process at an address that they reach.

    Every process calls it between `jax.distributed.initialize` and the first use of JAX's
    devices. `interface` is what `address_of` takes; None: the address that leads to the
    `coordinator`, the first process's host, which JAX knows where the user did not give it. It
    waits `timeout` seconds for what other processes say.

    Raises `InputError` where there is no way to the other processes, or where this version of
    JAX takes no address, and would use another one by itself.
    """
    try:
        # No public module has these names. JAX 0.10.2 to 0.12 has them here.
        import jaxlib._jax
        from jax._src import distributed, xla_bridge
        from jax.extend.backend import register_backend_factory

        make_collectives = jaxlib._jax.make_gloo_tcp_collectives
        make_client = xla_bridge.make_cpu_client
        state: Any = distributed.global_state
        client, rank, size = state.client, state.process_id, state.num_processes
        put, get = client.key_value_set, client.blocking_key_value_get
        first = state.coordinator_address.rpartition(":")[0].strip("[]")
    except (ImportError, AttributeError) as error:
        return _check_default(interface, coordinator, error)

    mine = address_of(interface) if interface else address_towards(first)
    put(_KEY.format(rank), mine)
    if interface is None and _is_loopback(mine):
        end = time.monotonic() + timeout
        for other in (r for r in range(size) if r != rank):
            left = max(1, round(1000 * (end - time.monotonic())))
            if not _is_loopback(theirs := get(_KEY.format(other), left)):
                mine = address_towards(theirs)
                break

    def make() -> object:
        return make_client(make_collectives(distributed_client=client, hostname=mine))

    register_backend_factory("cpu", make, priority=0, fail_quietly=False)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _check_default(interface: str | None, coordinator: str | None, error: Exception) -> None:
    """For versions of JAX that take no address. Raises `InputError` where the address that JAX
    uses by itself is known not to be the wanted one."""
    name = socket.gethostname()
    try:
        default = socket.gethostbyname(name)
    except OSError:
        default = "no address"
    wanted = address_of(interface) if interface else address_towards(coordinator or "localhost")
    if wanted != default and (interface or not _is_loopback(wanted)):
        raise InputError(
            f"with this version of JAX gloo takes the address of the host's own name, which "
            f"must be {wanted}",
            f"{default} for {name} (JAX {jax.__version__}: {error})",
            "Write that address beside the name in /etc/hosts, use another version of JAX, or "
            "use --comm mpi.",
        )
