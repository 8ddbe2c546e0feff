"""How `connect` reads the environment, and what it says when ranks are missing."""

import os
import signal
import subprocess
import sys

import jax
import pytest
from ranks import MPIEXEC, needs_mpi

import jgs
from jgs.dist.communicators import launch
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in [n for n in os.environ if n.startswith(("PMI_", "OMPI_", "MV2_", "SLURM_"))]:
        monkeypatch.delenv(name)


def test_one_process_is_alone():
    for kind in ("auto", "none"):
        assert isinstance(launch.connect(kind), Alone)
    single = len(jax.devices()) == 1
    assert isinstance(launch.connect("jax"), Alone if single else Mesh)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"kind": "tcp"}, "comm must be one of auto, mpi, jax, none"),
        ({"kind": "mpi", "coordinator": "a:1"}, "are for JAX's own runtime"),
        ({"kind": "jax", "coordinator": "a:1"}, "no number of ranks, no rank"),
        ({"kind": "auto", "num_ranks": 2, "rank": 0}, "no coordinator"),
        ({"kind": "jax", "coordinator": "a:1", "num_ranks": 2, "rank": 2}, "rank 2 of 2"),
        ({"kind": "jax", "coordinator": "a", "num_ranks": 2, "rank": 1}, "must be host:port"),
        ({"kind": "jax", "coordinator": "a:99999", "num_ranks": 2, "rank": 0}, "to 65535"),
        ({"kind": "jax", "coordinator": "a:\u00b2", "num_ranks": 2, "rank": 0}, "to 65535"),
        ({"coordinator": "..:1", "num_ranks": 2, "rank": 1, "timeout": 0.1}, "did not find"),
    ],
)
def test_wrong_arguments(kwargs, message):
    with pytest.raises(jgs.InputError, match=message):
        launch.connect(**kwargs)


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "mpi"),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, "alone"),
        ({"SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "a,b"}, "jax"),
        ({"SLURM_NTASKS": "2"}, "alone"),  # inside an allocation, but not started by srun
        ({"KUBERNETES_SERVICE_HOST": "x", "JOB_COMPLETION_INDEX": "0"}, "jax"),
    ],
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


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PMI_SIZE": "abc"}, "PMI_SIZE must be a number, .* got 'abc'"),
        ({"PMI_SIZE": "2"}, "PMI_RANK must be a number, .* got none"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "-1"}, "_RANK .* got '-1'"),
        ({"SLURM_NTASKS": ""}, "SLURM_NTASKS must be a number, .* got ''"),
    ],
)
def test_what_no_launcher_sets(environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(jgs.InputError, match=message):
        launch.connect()


def test_an_mpi4jax_that_this_jax_breaks(tmp_path, monkeypatch):
    (tmp_path / "mpi4jax.py").write_text("import jax\njax.core.of_another_version\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mpi4jax", raising=False)
    with pytest.raises(jgs.InputError, match=r"needs mpi4jax .*of_another_version.*--comm jax"):
        launch.connect("mpi")


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


def start(kind, kwargs, *before, **environment):
    return subprocess.Popen(
        [*before, sys.executable, "-c", CONNECT, kind, repr(kwargs)],
        # XLA_FLAGS: pytest's own devices
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_missing_ranks_are_named_on_every_rank(unused_port):
    where = {"coordinator": f"localhost:{unused_port}", "num_ranks": 4, "timeout": 3}
    ranks = [start("jax", where | {"rank": r}) for r in (0, 2)]
    for process in ranks:
        assert "ranks 1, 3 did not connect within 3 s" in process.communicate(timeout=240)[0]
    alone = start("jax", where | {"rank": 2, "timeout": 1})
    assert "rank 2 did not find rank 0 within 1 s" in alone.communicate(timeout=240)[0]


@pytest.fixture
def unused_port():
    import socket

    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


def test_jax_under_mpiexec():
    needs_mpi()
    output, _ = start("jax", {}, str(MPIEXEC), "-n", "2").communicate(timeout=240)
    assert {"Mesh 0 2", "Mesh 1 2"} <= set(output.splitlines())


def test_an_mpiexec_of_another_mpi_is_noticed():
    needs_mpi()
    output, _ = start(
        "auto", {}, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0"
    ).communicate(timeout=240)
    assert "2 processes by the launcher, 1 by MPI" in output


UNMET = """
import os, signal, sys
from jgs.dist.communicators.broadcast import FailedElsewhere
from jgs.dist.communicators.launch import unmet

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


def test_a_rank_that_ends_before_it_meets_the_others_ends_by_a_signal():
    """Hydra ends the other ranks after a signal, but not after an exit."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import signal\nsignal.signal(2, signal.default_int_handler){UNMET}",
        ],
        env=os.environ | {"PMI_SIZE": "2", "PMI_RANK": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.split("\n") == [
        "unharmed", "True", f"harm {-signal.SIGINT}", f"fail {-signal.SIGKILL}", "told 1",
        "leave 7", "",
    ]  # fmt: skip
    assert "ValueError: said first" in done.stderr


def test_a_process_alone_ends_as_ever():
    before = signal.getsignal(signal.SIGINT)
    with launch.unmet():
        assert signal.getsignal(signal.SIGINT) is before
