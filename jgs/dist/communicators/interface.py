"""Which of a host's addresses gloo's ranks are told to connect to.

gloo takes the address that the host's own name resolves to. On Debian and Ubuntu that is
127.0.1.1, which no other host reaches. So each process takes the address from which it reaches
the coordinator; where that is loopback, the one from which it reaches another process, one that
does not use loopback.

JAX makes gloo's part itself, without an address. `use_for_gloo` registers a maker of the CPU
backend that gives one, and otherwise does what JAX's own does.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from typing import Any

import jax

from jgs.dist.communicators.rendezvous import interfaces
from jgs.errors import InputError

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
