"""How `connect` reads the environment, finds an address, and what it says of missing ranks."""

import signal
import socket
import sys

import jax
import pytest
from cases import cases
from forks import quick_python
from ranks import LIMIT, MPIEXEC, free_port, needs_mpi
from refusals import refused
from two_hosts import INTERFACE, NotPermitted, two_hosts

from jgs.dist.communicators import launch, mesh
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh

pytestmark = pytest.mark.usefixtures("no_launcher")


def test_one_process_is_alone():
    for kind in ("auto", "none"):
        assert isinstance(launch.connect(kind), Alone)
    single = len(jax.devices()) == 1
    assert isinstance(launch.connect("jax"), Alone if single else Mesh)


BY_HAND = {"kind": "jax", "coordinator": "a:1", "num_ranks": 2, "rank": 1}
WRONG = [
    ({}, {"kind": "tcp"}, "comm must be one of auto, mpi, jax, none"),
    ({}, {"kind": "mpi", "coordinator": "a:1"}, "are for JAX's own runtime"),
    ({}, {"kind": "jax", "coordinator": "a:1"}, "no number of ranks, no rank"),
    ({}, {"kind": "auto", "num_ranks": 2, "rank": 0}, "no coordinator"),
    ({}, BY_HAND | {"rank": 2}, "rank 2 of 2"),
    ({}, BY_HAND | {"coordinator": "a"}, "must be host:port"),
    ({}, BY_HAND | {"coordinator": "a:99999"}, "to 65535"),
    ({}, BY_HAND | {"coordinator": "a:\u00b2"}, "to 65535"),
    ({}, BY_HAND | {"coordinator": "..:1", "timeout": 0.1}, "did not find"),
    # What no launcher sets.
    ({"PMI_SIZE": "abc"}, {}, "PMI_SIZE must be a number, * got 'abc'"),
    ({"PMI_SIZE": "2"}, {}, "PMI_RANK must be a number, * got none"),
    ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "-1"}, {}, "_RANK * got '-1'"),
    ({"SLURM_NTASKS": ""}, {}, "SLURM_NTASKS must be a number, * got ''"),
]


@pytest.mark.parametrize(("environment", "kwargs", "message"), WRONG)
def test_what_is_wrong(environment, kwargs, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refused(message, launch.connect, **kwargs)


@cases(
    "environment, kind",
    ({"PMI_SIZE": "4", "PMI_RANK": "1"}, "mpi"),
    ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "mpi"),
    ({"PMI_SIZE": "1", "PMI_RANK": "0"}, "alone"),
    ({"SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "a,b"}, "jax"),
    ({"SLURM_NTASKS": "2"}, "alone"),  # inside an allocation, but not started by srun
    ({"KUBERNETES_SERVICE_HOST": "x", "JOB_COMPLETION_INDEX": "0"}, "jax"),
)
def test_launchers(environment, kind, monkeypatch):
    monkeypatch.setattr(launch, "_connect_mpi", lambda *_: "mpi")
    monkeypatch.setattr(launch, "_connect_jax", lambda *_: "jax")
    monkeypatch.setattr(launch, "agree", lambda *_: None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    has = launch._has
    monkeypatch.setattr(launch, "_has", lambda module: True)
    found = launch.connect()
    assert ("alone" if isinstance(found, Alone) else found) == kind
    if kind == "mpi":  # without mpi4jax JAX's runtime is used
        monkeypatch.setattr(launch, "_has", lambda m: m != "mpi4jax" and has(m))
        assert launch.connect() == "jax"
        assert launch.connect("mpi") == "mpi"


def test_an_mpi4jax_that_this_jax_breaks(tmp_path, monkeypatch):
    (tmp_path / "mpi4jax.py").write_text("import jax\njax.core.of_another_version\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mpi4jax", raising=False)
    refused("needs mpi4jax *of_another_version*--comm jax", launch.connect, "mpi")


# Each rank writes its line in a single write, because all ranks share the output.
CONNECT = """
import sys
from jgs.dist.communicators.launch import connect
from jgs.errors import InputError
try:
    comm = connect(*sys.argv[1:2], **eval(sys.argv[2]))
    print(f"{type(comm).__name__} {comm.rank} {comm.size}\\n", end="", flush=True)
except InputError as error:
    print("InputError", error)
"""


def connecting(kind, **kwargs):
    return [quick_python(), "-c", CONNECT, kind, repr(kwargs)]


def said(process):
    return process.communicate(timeout=LIMIT)[0]


def test_missing_ranks_are_named_on_every_rank(begin):
    where = {"coordinator": f"localhost:{free_port()}", "num_ranks": 4}
    ranks = [begin(connecting("jax", **where, timeout=3, rank=rank)) for rank in (0, 2)]
    for process in ranks:
        assert "ranks 1, 3 did not connect within 3 s" in said(process)
    alone = begin(connecting("jax", **where, timeout=1, rank=2))
    assert "rank 2 did not find rank 0 within 1 s" in said(alone)


def test_jax_under_mpiexec(begin):
    needs_mpi()
    output = said(begin([str(MPIEXEC), "-n", "2", *connecting("jax")]))
    assert {"Mesh 0 2", "Mesh 1 2"} <= set(output.splitlines())


def test_an_mpiexec_of_another_mpi_is_noticed(begin):
    needs_mpi()
    variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    process = begin(connecting("auto"), variables)
    assert "2 processes by the launcher, 1 by MPI" in said(process)


UNMET = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from jgs.dist.communicators.collect import FailedElsewhere
from jgs.dist.communicators.start import unmet

def harm():
    os.kill(os.getpid(), signal.SIGINT)

def fail():
    raise ValueError("said first")

def told():
    raise FailedElsewhere

def leave():
    sys.exit(7)

with unmet():
    print("unharmed", flush=True)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
for function in harm, fail, told, leave:
    if not (child := os.fork()):
        with unmet():
            function()
    print(function.__name__, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_rank_that_ends_before_it_meets_the_others_ends_by_a_signal(begin):
    """Hydra ends the other ranks after a signal, but not after an exit."""
    process = begin([quick_python(), "-c", UNMET], {"PMI_SIZE": "2", "PMI_RANK": "1"})
    out, err = process.communicate(timeout=LIMIT)
    ends = [f"harm {-signal.SIGINT}", f"fail {-signal.SIGKILL}", "told 1", "leave 7"]
    assert out.splitlines() == ["unharmed", "True", *ends]
    assert "ValueError: said first" in err


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
    assert mesh.address_of("lo") == mesh.address_of("127.0.0.1") == "127.0.0.1"
    assert mesh.address_towards("localhost") == "127.0.0.1"
    for wrong in ("eth99", "192.0.2.1", "::2", ""):
        refused("--interface must name * lo 127.0.0.1", mesh.address_of, wrong)
    refused("are for JAX's own runtime", launch.connect, "mpi", interface="lo")


def test_a_jax_that_takes_no_address(monkeypatch):
    """It is an error only where the address that this JAX takes by itself is another one."""
    import jax._src.xla_bridge

    monkeypatch.delattr(jax._src.xla_bridge, "make_cpu_client")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.1")
    mesh.use_for_gloo(None, None, 1)
    refused("must be 127.0.0.1; got 192.0.2.1 *make_cpu", mesh.use_for_gloo, "lo", None, 1)
