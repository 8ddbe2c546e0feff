"""The flags of `python -m benchmarks.plan`, and their allowed values."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

from jgs import command
from jgs.errors import InputError

CONSTANTS = {  # flags, and the fields that they set, in the flags' units
    "ns_per_edge": ("edge_seconds", 1e-9),
    "ns_per_edge_vanilla": ("vanilla_edge_seconds", 1e-9),
    "row_gbytes": ("row_bandwidth", 1e9),
    "gflops": ("flops", 1e9),
    "process_mib": ("process_bytes", 2.0**20),
}
_SPEED = 1e-9, 1e12  # bounds of a speed in any unit
# The least and the largest value of a flag, as for `jgs.train` where it has the same flag.
_BOUNDS = {
    "machines": (1, 1 << 20),
    "gbits": _SPEED,
    "latency_us": (0, 1e12),
    "batch_size": (1, 2**31 - 1),
    "hidden": (1, 1 << 16),
    "features": (1, 1 << 20),
    "cache_memory": (1, 1 << 24),
    "most_batches": (1, 2**31 - 1),
    "feature_memory": (0, 1 << 24),
    "feature_block": (0, 1 << 12),
    "cut": (1e-9, 1),
}
DEFAULTS: dict[str, Any] = {
    "machines": [2, 4, 8, 16, 32, 64, 128, 256],
    "gbits": [25.0, 100.0, 400.0],
    "latency_us": 50.0,
    "batch_size": 1000,
    "fanouts": [5, 10, 15],
    "hidden": 256,
    "wire": "float32",
    "comm": "mpi",
    "cache_memory": 4096,
    "most_batches": 200,
    "feature_memory": 0,
    "feature_block": 256,
}


def parse(argv: Sequence[str] | None) -> dict[str, Any]:
    """The given flags, with the `DEFAULTS` of flags that are not given. Raises `InputError`."""
    options = {**DEFAULTS, **vars(parser().parse_args(argv))}
    _check(options)
    return options


def parser() -> command.Parser:
    found = command.Parser(
        "python -m benchmarks.plan",
        "Estimate memory, bytes and time of training on many machines, one rank on each.",
    )
    add = found.add_argument
    add(
        "--dataset",
        help="a name or a path as for python -m jgs.train, whose graph is read; or MAG240M, "
        "IGBH-full or (with --shape-only) ogbn-papers100M, by their published sizes alone",
    )
    add(
        "--partition",
        help="in place of --dataset: a folder that python -m jgs.partition wrote",
    )
    add(
        "--shape-only",
        action="store_true",
        help="use the published size of ogbn-papers100M and do not read its files",
    )
    found.add_data_options()
    add(
        "--machines",
        nargs="+",
        type=int,
        help="numbers of machines (default: those of 2 4 ... 256 with a batch for each one)",
    )
    add(
        "--gbits",
        nargs="+",
        type=float,
        help="bandwidths of the network, in Gbit/s (default: 25 100 400)",
    )
    add("--latency-us", type=float, help="microseconds of a round (default: 50)")
    add("--batch-size", type=int, help="seeds in a batch of each rank (default: 1000)")
    add(
        "--fanouts",
        nargs="+",
        type=int,
        help="neighbours to draw per node in each layer, seeds' hop first (default: 5 10 15)",
    )
    add("--hidden", type=int, help="width of the hidden layers (default: 256)")
    add("--features", type=int, help="width of the features (default: the data set's)")
    add(
        "--wire",
        help="dtype in which ranks send rows: float32, float16 or bfloat16 (default: float32)",
    )
    add("--comm", choices=("mpi", "jax"), help="as for jgs.train (default: mpi)")
    add(
        "--cache-memory",
        type=int,
        help="MiB of other ranks' rows that a rank keeps (default: 4096)",
    )
    add(
        "--cut",
        type=float,
        help="for a published size: the number of remote nodes as a fraction of a random "
        "partition's (default: 1)",
    )
    add(
        "--most-batches",
        type=int,
        help="batches to draw at most: of a graph that is read, to plan the cache, or with "
        "--this-machine (default: 200)",
    )
    add(
        "--this-machine",
        action="store_true",
        help="of training on this machine alone, with features on disk: memory, bytes, and "
        "which binds, the disk or the processor; both are measured",
    )
    add(
        "--feature-memory",
        type=int,
        help="with --this-machine: MiB of feature rows that stay in memory, as for "
        "jgs.train (default: 0)",
    )
    add(
        "--feature-block",
        type=int,
        help="with --this-machine: steps whose rows are packed together, as for jgs.train "
        "(default: 256)",
    )
    for name in CONSTANTS:
        add(
            _flag(name),
            type=float,
            help=f"the machine's {CONSTANTS[name][0]} (default: measured on this machine)",
        )
    return found


def _check(options: dict[str, Any]) -> None:
    if ("dataset" in options) == ("partition" in options):
        raise InputError(
            "one of --dataset and --partition must be given",
            "both" if "dataset" in options else "neither",
            "Name the graph.",
        )
    if options.get("this_machine", False) and "partition" in options:
        raise InputError(
            "--this-machine must be used with --dataset", "--partition", "Name the data set."
        )
    if "partition" in options:
        for name in ("root", "data_options"):
            if name in options:
                flag = _flag(name)
                raise InputError(
                    f"{flag} must be used with --dataset", "--partition", f"Leave {flag} out."
                )
    for name, (least, most) in {**_BOUNDS, **dict.fromkeys(CONSTANTS, _SPEED)}.items():
        numbers = options.get(name, [])
        for number in numbers if isinstance(numbers, list) else [numbers]:
            if not least <= number <= most:
                raise InputError(
                    f"{_flag(name)} must be from {least:g} to {most:g}",
                    reprlib.repr(number),
                    "Correct it.",
                )
    if not all(f == -1 or 1 <= f < 2**31 for f in options["fanouts"]):
        raise InputError(
            "every fanout must be a positive 32-bit int, or -1 for all",
            reprlib.repr(options["fanouts"]),
            "Correct it.",
        )
    if options["wire"] not in ("float32", "float16", "bfloat16"):
        raise InputError("--wire must be a dtype of rows", options["wire"], "See --help.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
