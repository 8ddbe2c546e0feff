"""`connect` makes the communicator of the processes, by how they were started; `together` is a
command that several run, where one of them speaks."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import jax
import jaxlib

import jgs
from jgs.command import output_elsewhere
from jgs.dist.communicators import start
from jgs.dist.communicators.collect import FailedElsewhere, everywhere, texts_of_all
from jgs.dist.communicators.comm import Alone, Communicator, Mpi
from jgs.dist.communicators.mesh import Mesh, address_of, use_for_gloo
from jgs.dist.communicators.start import START_TIMEOUT, host_and_port
from jgs.dist.supervision.lost import CONNECTING
from jgs.dist.supervision.watchdog import Watch, Watchdog
from jgs.errors import InputError, check_choice, refuse, refusing
from jgs.interrupts import number_of, status_of

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
    found = start.launched()
    if kind == "none":
        return Alone()
    mpi = kind == "mpi" or (kind == "auto" and not by_hand and found and _has("mpi4jax"))
    alone = kind == "auto" and not by_hand and not found and not start.cluster()
    refuse(
        (interface and (mpi or alone),
         "interface must be for JAX's own runtime", "MPI" if mpi else "one process",
         "Leave it out, or give --comm jax."),
    )  # fmt: skip
    if not mpi and alone:
        return Alone()
    with ExitStack() as stack:
        if watch is None and (where := start.meeting(kind, coordinator, num_ranks, rank)):
            watch = stack.enter_context(Watch(where, timeout))
        own = _environment()
        if mpi:
            if watch is not None:
                watch.at(CONNECTING)
            comm: Communicator = _connect_mpi(found)
        else:
            by_jax = (coordinator, num_ranks, rank, interface)
            comm = _connect_jax(*by_jax, found, timeout, watch, drawing)
        agree(comm, own)
        return comm


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _connect_mpi(found: tuple[int, int] | None) -> Communicator:
    # A rank that runs programs in two threads needs a thread of XLA's for each. With a single
    # one, the first thread's collective keeps the second's from starting, and the ranks wait in
    # a circle.
    if len(os.sched_getaffinity(0)) < 2:
        os.environ.setdefault("PJRT_NPROC", "2")
    rule = "comm 'mpi' needs mpi4jax and an MPI library"
    remedy = "Run `pip install mpich mpi4py`, then `pip install mpi4jax`, or use --comm jax."
    # mpi4py raises RuntimeError without an MPI library, mpi4jax AttributeError with a JAX that
    # it is not for.
    with refusing((ImportError, RuntimeError, AttributeError), rule, remedy):
        comm = Mpi()
    if found and comm.size != found[0]:
        raise InputError(
            "mpiexec must be of the MPI library that mpi4py loads",
            f"{found[0]} processes by the launcher, {comm.size} by MPI",
            "Use the mpiexec beside this Python, or install mpi4jax with that MPI.",
        )
    return comm if comm.size > 1 else Alone()


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
    if num_ranks == 1 or (len(missing) == 3 and not found and not start.cluster()):
        return _mesh(drawing)
    if missing and not start.cluster() and not (found and _has("mpi4py")):
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
    rule = f"all {num_ranks or ''} processes must find the first one within {timeout:g} s"
    remedy = (
        "Start every rank with the same coordinator and number of ranks, each with a rank of "
        "its own, and before anything else uses JAX; open the port in firewalls."
    )
    with refusing((ValueError, RuntimeError), rule, remedy):
        jax.distributed.initialize(
            coordinator,
            num_ranks,
            rank,
            cluster_detection_method="mpi4py" if missing and found else None,
            initialization_timeout=max(1, round(timeout)),
            # At the end of a run the last rank may be evaluating while others wait for it.
            shutdown_timeout_seconds=60,
        )
    use_for_gloo(interface, host_and_port(coordinator)[0] if coordinator else None, timeout)
    return _mesh(drawing)


def _mesh(drawing: bool) -> Mesh | Alone:
    remedy = "Unset JAX_PLATFORMS, or add cpu to it."
    with refusing(RuntimeError, "ranks must have CPU devices, where they draw", remedy):
        devices = jax.devices("cpu")
    if drawing or jax.default_backend() != "cpu":  # the first device of each process
        devices = [*{device.process_index: device for device in devices[::-1]}.values()][::-1]
    return Mesh(devices) if len(devices) > 1 else Alone()


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


def together(
    work: Callable[[Communicator, Watchdog], dict[str, Any] | int],
    given: dict[str, Any],
    timeout: Callable[[], float],
    last_checkpoint: Callable[[], str],
    watch: Watch | None,
) -> dict[str, Any] | int:
    """What `work` returns, done together with all other ranks that were started.

    Returns `work`'s result on rank 0, and the exit status on the other ranks and where there is
    no result. Raises `InputError` on the rank that has the problem, or on rank 0 where all
    ranks have it.

    Args:
      given: flags, those that say how to connect (`start.CONNECTING`) and `device` among them.
      timeout: returns the watchdog's timeout in seconds, or raises `InputError`, on every rank.
      last_checkpoint: as `Watchdog` takes it.
      watch: this process's watch; None where it is alone, or `connect` is to make one.
    """
    with output_elsewhere(), suppress(FailedElsewhere), ExitStack() as stack:
        with start.unmet():
            drawing = given.get("device", "auto") != "auto"
            comm = connect(**start.arguments(given), watch=watch, drawing=drawing)
            if comm.rank > 0:  # one rank speaks; every rank warns
                logging.getLogger("jgs").setLevel(logging.WARNING)
            seconds = everywhere(comm, timeout)
            watchdog = stack.enter_context(
                Watchdog(comm, timeout=seconds, last_checkpoint=last_checkpoint, watch=watch)
            )
        from jgs import kernels  # only now: an error of this import must reach the others

        try:
            with kernels.this_host_only():
                return work(comm, watchdog)
        except KeyboardInterrupt as error:  # others may wait for this rank
            watchdog.failed(error)
            if comm.rank > 0:  # rank 0 speaks
                raise SystemExit(status_of(number_of(error))) from error
            raise
        except Exception as error:
            if getattr(error, "told", False):
                watchdog.close()  # every rank ends by itself
            raise
    return 2
