"""`connect`: makes the communicator of the processes, by how they were started."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax
import jaxlib

import jgs
from jgs.dist.communicators import start
from jgs.dist.communicators.broadcast import FailedElsewhere, texts_of_all
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.dist.communicators.interface import address_of, use_for_gloo
from jgs.dist.communicators.mesh import Mesh
from jgs.dist.communicators.mpi import Mpi
from jgs.dist.communicators.start import (
    START_TIMEOUT,
    Watch,
    host_and_port,
    in_slurm_step,
    launched,
)
from jgs.dist.supervision.lost import CONNECTING
from jgs.errors import InputError, check_choice
from jgs.interrupts import WORDS

KINDS = ("auto", "mpi", "jax", "none")
# The settings of JAX that change dtypes, random bits, results, or which programs there are.
_SETTINGS = (
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_allow_f16_reductions",
    "jax_softmax_custom_jvp",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
    "jax_disable_jit",
)


def connect(
    kind: str = "auto",
    *,
    coordinator: str | None = None,
    num_ranks: int | None = None,
    rank: int | None = None,
    interface: str | None = None,
    timeout: float = START_TIMEOUT,
    watch: Watch | None = None,
    drawing: bool = False,
) -> Communicator:
    """The communicator of all ranks. Call it before anything else uses JAX's devices.

    The ranks compare JAX's settings and the versions, by `agree`.

    Args:
      kind: `"mpi"`: mpi4jax. `"jax"`: JAX's collectives (gloo) between all CPU devices of all
        processes, or between those of this process if it is the only one. On hosts with GPUs or
        TPUs a process is a rank, which draws on its CPU; its steps may run on a device
        (`Mesh(devices)`). `"none"`: this process alone. `"auto"`: MPI where an MPI launcher
        started several processes and mpi4jax is installed; JAX where Slurm, Kubernetes or
        another launcher started them, or where `coordinator` is given; otherwise this process
        alone.
      coordinator, num_ranks, rank: for JAX where no launcher tells them: `"host:port"` on which
        the first process listens, the number of processes, and the number of this one.
      interface: for JAX on CPUs: the network interface of this host that other processes
        connect to, by its name or by its address; None: the one that leads to the coordinator.
      timeout: the seconds after which it stops waiting for other processes. Waiting under MPI
        cannot be interrupted: all processes then end, with a line that names the ranks that
        they waited for (see `jgs.dist.communicators.start`).
      watch: this process's watch, if there is one already.
      drawing: whether ranks only draw on CPUs, one a process, also where there are no others.

    Raises:
      InputError: something is missing or wrong. It says what to do.
      FailedElsewhere: the ranks do not agree, and rank 0 says so.
    """
    check_choice("comm", kind, KINDS)
    by_hand = (coordinator, num_ranks, rank) != (None, None, None)
    if kind in ("mpi", "none") and (by_hand or interface):
        raise InputError(
            "coordinator, number of ranks, rank and interface are for JAX's own runtime",
            f"comm {kind!r}",
            "Leave them out, or choose comm 'jax'.",
        )
    found = launched()
    if kind == "none":
        return Alone()
    mpi = kind == "mpi" or (kind == "auto" and not by_hand and found and _has("mpi4jax"))
    if not mpi and kind == "auto" and not by_hand and not found and not _cluster():
        return Alone()
    with ExitStack() as stack:
        if watch is None and (where := start.meeting(kind, coordinator, num_ranks, rank)):
            watch = stack.enter_context(Watch(where, timeout))
        own = _environment()
        comm: Communicator
        if mpi:
            if watch is not None:
                watch.at(CONNECTING)
            comm = _connect_mpi(found)
        else:
            given = (coordinator, num_ranks, rank, interface, found, timeout, watch)
            comm = _connect_jax(*given, drawing)
        agree(comm, own)
        return comm


@contextmanager
def unmet() -> Iterator[None]:
    """A block for all that a command does before the ranks have met: `connect`, and what comes
    before it.

    Where an MPI launcher started several processes, the others would wait for a process that
    ends here. Hydra, MPICH's mpiexec, ends them when a signal kills a rank, but not when a rank
    exits before MPI_Init. So Ctrl-C and SIGTERM have their default action here. An error that
    leaves the block ends the process by SIGKILL at its exit, when the error has been printed.
    An error that all ranks have been told (see `jgs.dist.communicators.broadcast.everywhere`)
    leaves the exit as it is.
    """
    if not launched():
        yield
        return
    in_main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, signal.SIG_DFL) for n in WORDS if in_main}
    try:
        yield
    except Exception as error:
        if not getattr(error, "told", False):
            atexit.register(_end_by_signal)  # what is registered last is called first
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_by_signal() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.5)  # the others of this host may have errors of their own to print
    os.kill(os.getpid(), signal.SIGKILL)


def _cluster() -> bool:
    """Whether several processes were started in a way that `jax.distributed.initialize`
    recognises by itself."""
    kubernetes = (
        "KUBERNETES_SERVICE_HOST" in os.environ and "JOB_COMPLETION_INDEX" in os.environ
    )
    return in_slurm_step() or kubernetes or "JAX_COORDINATOR_ADDRESS" in os.environ


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _connect_mpi(found: tuple[int, int] | None) -> Communicator:
    # A rank that runs programs in two threads needs a thread of XLA's for each. With a single
    # one, the first thread's collective keeps the second's from starting, and the ranks wait in
    # a circle.
    if len(os.sched_getaffinity(0)) < 2:
        os.environ.setdefault("PJRT_NPROC", "2")
    try:
        comm = Mpi()
    # mpi4py raises RuntimeError without an MPI library, mpi4jax AttributeError with a JAX that
    # it is not for.
    except (ImportError, RuntimeError, AttributeError) as error:
        raise InputError(
            "comm 'mpi' needs mpi4jax and an MPI library",
            " ".join(str(error).split()) or type(error).__name__,
            "Run `pip install mpich mpi4py`, then `pip install mpi4jax`, or use --comm jax.",
        ) from error
    if found and comm.size != found[0]:
        raise InputError(
            "mpiexec must be of the MPI library that mpi4py loads",
            f"{found[0]} processes by the launcher, {comm.size} by MPI",
            "Use the mpiexec beside this Python, or install mpi4jax with that MPI.",
        )
    return _or_alone(comm)


def _connect_jax(
    coordinator: str | None,
    num_ranks: int | None,
    rank: int | None,
    interface: str | None,
    found: tuple[int, int] | None,
    timeout: float,
    watch: Watch | None,
    drawing: bool,
) -> Communicator:
    """The communicator of JAX's runtime, with errors that a user can act on.

    Where guards meet, all processes have come before `jax.distributed.initialize` is called: it
    aborts the process when it fails to find them.
    """
    if found and (num_ranks, rank) == (None, None) and coordinator:
        num_ranks, rank = found
    if coordinator is not None:
        host_and_port(coordinator)
    given = {"coordinator": coordinator, "number of ranks": num_ranks, "rank": rank}
    missing = [name for name, value in given.items() if value is None]
    if num_ranks is not None and not 0 <= (rank or 0) < num_ranks:
        raise InputError(
            "ranks are numbered from 0 to one less than their number",
            f"rank {rank} of {num_ranks}",
            "Give every process a number of its own.",
        )
    if num_ranks == 1 or (len(missing) == 3 and not found and not _cluster()):
        return _or_alone(_mesh(drawing))
    if missing and not _cluster() and not (found and _has("mpi4py")):
        raise InputError(
            "JAX's runtime needs coordinator (host:port), number of ranks and rank",
            "no " + ", no ".join(missing),
            "Give all three, or `pip install mpich mpi4py` under mpiexec.",
        )
    if interface:
        address_of(interface)  # it raises before the others wait for this rank
    if watch is not None:
        if watch.certain:
            watch.wait_met()
        watch.at(CONNECTING)
        timeout = watch.timeout + 60  # so that the guards notice first
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(
            coordinator,
            num_ranks,
            rank,
            cluster_detection_method="mpi4py" if missing and found else None,
            initialization_timeout=max(1, round(timeout)),
            # At the end of a run the last rank may be evaluating while others wait for it.
            shutdown_timeout_seconds=60,
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"all {num_ranks or ''} processes must find the first one within {timeout:g} s",
            " ".join(str(error).split()),
            "Start every rank with the same coordinator and number of ranks, each with a rank "
            "of its own, and before anything else uses JAX; open the port in firewalls.",
        ) from error
    use_for_gloo(interface, host_and_port(coordinator)[0] if coordinator else None, timeout)
    return _or_alone(_mesh(drawing))


def _mesh(drawing: bool) -> Mesh:
    """The mesh of the ranks, see `connect`."""
    try:
        devices = jax.devices("cpu")
    except RuntimeError as error:
        raise InputError(
            "ranks must have CPU devices, where they draw",
            error,
            "Unset JAX_PLATFORMS, or add cpu to it.",
        ) from None
    if not drawing and jax.default_backend() == "cpu":
        return Mesh(devices)
    return Mesh(list({device.process_index: device for device in devices[::-1]}.values())[::-1])


def _or_alone(comm: Communicator) -> Communicator:
    return comm if comm.size > 1 else Alone()


def _environment() -> dict[str, str]:
    """What of this process must be equal on all ranks, by name.

    The instruction set of the kernels may differ. Samples do not depend on it, and sums do by
    rounding alone.
    """
    from jgs import kernels  # only now: an error of this import must reach the others

    found = {name: getattr(jax.config, name, None) for name in _SETTINGS}
    # A setting that has choices is a text or an `Enum`, as it was set.
    settings = {name: str(getattr(value, "value", value)) for name, value in found.items()}
    return settings | {
        "compiled kernels": "used" if kernels.available() else "not used",
        "the version of jgs": jgs.__version__,
        "the version of JAX": jax.__version__,
        "the version of jaxlib": jaxlib.__version__,
        "the version of Python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def agree(comm: Communicator, what: dict[str, str], absent: str = "missing") -> None:
    """Every rank calls it with its settings, versions and checksums, by name. Unless they are
    equal on all ranks, every rank raises. The errors have an attribute `told`. `absent` is
    what they call a name that a rank does not have.

    Raises:
      InputError: on rank 0: some differ. It says which, and on which ranks.
      FailedElsewhere: on the other ranks, with the same text.
    """
    if comm.size == comm.num_local:
        return  # one process
    told = [json.loads(text) for text in texts_of_all(comm, json.dumps(what))]
    differences = []
    for name in sorted(set().union(*told)):
        ranks: dict[str, list[str]] = {}
        for rank, one in enumerate(told):
            ranks.setdefault(one.get(name, absent), []).append(str(rank))
        if len(ranks) > 1:
            sides = (f"{v} on rank {', '.join(r)}" for v, r in ranks.items())
            differences.append(f"{name}: {'; '.join(sides)}")
    if differences:
        error = InputError(
            "every rank must have the same settings, versions and parts",
            " | ".join(differences),
            "Start all ranks with the same command, environment variables, installation and "
            "files.",
        )
        if comm.rank > 0:
            raise FailedElsewhere(str(error))
        error.told = True  # type: ignore[attr-defined]
        raise error
