"""The flags of several ranks: how they meet, what they keep, and what they send each other."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.dist.communicators.start import START_TIMEOUT
from jgs.files.verified import Verify
from jgs.train.flags import setting


@dataclass(frozen=True)
class RankFlags:
    """Settings of runs on several ranks."""

    comm: str = setting(
        "auto",
        "how ranks communicate: mpi (mpi4jax), jax (jax.distributed), none (one process), or "
        "auto: as the launcher's environment variables say",
        choices=("auto", "mpi", "jax", "none"), identity=False, saved=False,
    )  # fmt: skip
    coordinator: str | None = setting(
        None, "HOST:PORT of rank 0, for --comm jax where the launcher does not set it",
        identity=False, saved=False, metavar="ADDRESS",
    )  # fmt: skip
    num_processes: int | None = setting(
        None, "the number of processes, in the same case", identity=False, saved=False
    )
    process_id: int | None = setting(
        None, "this process's number, from 0, in the same case", identity=False, saved=False
    )
    interface: str | None = setting(
        None, "network interface, or address of this host, that other ranks connect to with "
        "--comm jax on CPUs (default: the one that leads to the coordinator)",
        identity=False, saved=False, metavar="NAME|ADDRESS",
    )  # fmt: skip
    mode: str = setting(
        "hybrid",
        "hybrid: every rank has the whole topology; vanilla: it is split like the features",
        choices=("hybrid", "vanilla"), identity=False,
    )  # fmt: skip
    cache: str = setting(
        "trial",
        "which feature rows of other ranks to keep: those that trial samples read most, at "
        "most as many as one of them reads (trial); those of nodes of high degree (degree); "
        "or those that the epoch's samples, drawn in advance, read most (planned)",
        choices=("none", "trial", "degree", "planned"), identity=False,
    )  # fmt: skip
    cache_memory: int = setting(
        64, "most MiB of other ranks' rows that a rank keeps", identity=False, metavar="MIB"
    )
    wire: str = setting(
        "float32", "dtype to which feature rows are rounded, and in which ranks send them",
        choices=("float32", "float16", "bfloat16"),
    )  # fmt: skip
    start_timeout: float = setting(
        START_TIMEOUT,
        "seconds in which all ranks must start and connect; a rank that does not ends the run",
        identity=False, saved=False,
    )  # fmt: skip
    watchdog: float = setting(
        60.0,
        "seconds after which a rank that is silent, or hangs in a step, ends the run",
        identity=False,
    )
    phase_timeout: float = setting(
        1800.0,
        "seconds after which a rank that hangs elsewhere ends the run: while it opens its "
        "parts, compiles, evaluates, or writes a checkpoint or the result",
        identity=False,
    )
    verify: str = setting(
        "once",
        "whether a partition's files are compared with their checksums: at each start, once "
        "(until a file changes), or never (sizes and manifests always are)",
        choices=("always", "once", "never"), identity=False, saved=False,
    )  # fmt: skip

    def verification(self) -> Verify:
        """The setting `verify`, as `jgs.data.parts.open_parts` takes it."""
        return "once" if self.verify == "once" else self.verify == "always"
