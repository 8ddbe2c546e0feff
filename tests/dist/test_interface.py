"""gloo's ranks connect to an address that other hosts can reach, whatever their names say."""

import socket
import sys

import pytest
from ranks import LIMIT
from refusals import refused
from two_hosts import INTERFACE, NotPermitted, two_hosts

from jgs.dist.communicators import interface, launch

# The ranks' sum, and the address that gloo was given.
RANK = """
import sys
import jaxlib._jax
make = jaxlib._jax.make_gloo_tcp_collectives
def told(**kwargs):
    print(kwargs["hostname"], flush=True)
    return make(**kwargs)
jaxlib._jax.make_gloo_tcp_collectives = told
import numpy as np
from jgs.dist.communicators.comm import all_gather_rows
from jgs.dist.communicators.launch import connect
comm = connect("jax", timeout=30, **eval(sys.argv[1]))
print(all_gather_rows(comm, [np.array([comm.rank + 1], np.int32)])[:, 0].tolist())
"""


def test_two_hosts(tmp_path, begin):
    """A host's own name is 127.0.1.1, as on Debian. The first two ranks use loopback."""
    try:
        with two_hosts(tmp_path) as (a, b):
            meet = {"coordinator": "host-a:29500", "num_ranks": 3}
            there = [(a, meet), (a, meet), (b, meet | {"interface": INTERFACE})]
            ranks = [
                begin(host.on(sys.executable, "-c", RANK, repr({"rank": rank, **kwargs})))
                for rank, (host, kwargs) in enumerate(there)
            ]
            lines = [rank.communicate(timeout=LIMIT)[0].splitlines() for rank in ranks]
    except NotPermitted as reason:
        pytest.skip(f"two hosts need network namespaces, as root: {reason}")
    said = [[line for line in of_rank if "[Gloo]" not in line] for of_rank in lines]
    assert said == [[host.address, "[1, 2, 3]"] for host in (a, a, b)]


def test_what_an_interface_may_be():
    assert interface.address_of("lo") == interface.address_of("127.0.0.1") == "127.0.0.1"
    assert interface.address_towards("localhost") == "127.0.0.1"
    for wrong in ("eth99", "192.0.2.1", "::2", ""):
        refused("--interface must name * lo 127.0.0.1", interface.address_of, wrong)
    refused("are for JAX's own runtime", launch.connect, "mpi", interface="lo")


def test_a_jax_that_takes_no_address(monkeypatch):
    """It is an error only where the address that this JAX takes by itself is another one."""
    import jax._src.xla_bridge

    monkeypatch.delattr(jax._src.xla_bridge, "make_cpu_client")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.1")
    interface.use_for_gloo(None, None, 1)
    refused("must be 127.0.0.1; got 192.0.2.1 *make_cpu", interface.use_for_gloo, "lo", None, 1)
