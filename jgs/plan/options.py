"""The flags of `python -m jgs.plan`, and what they may be."""

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
_SPEED = 1e-9, 1e12  # in any unit
# What a flag may be at least and at most, as for `jgs.train` where it has the flag.
_BOUNDS = {
    "machines": (1, 1 << 20),
    "gbits": _SPEED,
    "latency_us": (0, 1e12),
    "batch_size": (1, 2**31 - 1),
    "hidden": (1, 1 << 16),
    "features": (1, 1 << 20),
    "cache_memory": (1, 1 << 24),
    "most_batches": (1, 2**31 - 1),
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
}


def parse(argv: Sequence[str] | None) -> dict[str, Any]:
    """The flags given, and the `DEFAULTS` of the others that have one; raises `InputError`."""
    options = {**DEFAULTS, **vars(parser().parse_args(argv))}
    _check(options)
    return options


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.plan",
        "Memory, bytes and time of training on many machines, one rank each.",
    )
    add = found.add_argument
    add(
        "--dataset",
        help="MAG240M or IGBH-full, of which the published sizes are enough, as of "
        "ogbn-papers100M with --shape-only; or as of python -m jgs.train",
    )
    add("--partition", help="or a folder of python -m jgs.partition: its parts and their cut")
    add("--shape-only", action="store_true", help="do not read ogbn-papers100M's files")
    found.add_data_options()
    add(
        "--machines",
        nargs="+",
        type=int,
        help="how many (default: 2 4 ... 256, where each has a batch)",
    )
    add("--gbits", nargs="+", type=float, help="of the network (default: 25 100 400)")
    add("--latency-us", type=float, help="of a round, in microseconds (default: 50)")
    add("--batch-size", type=int, help="seeds a batch, of each rank (default: 1000)")
    add("--fanouts", nargs="+", type=int, help="seeds' hop first (default: 5 10 15)")
    add("--hidden", type=int, help="width of the hidden layers (default: 256)")
    add("--features", type=int, help="width of the features (default: the data set's)")
    add("--wire", help="float32, float16 or bfloat16 (default: float32)")
    add("--comm", choices=("mpi", "jax"), help="as of jgs.train (default: mpi)")
    add("--cache-memory", type=int, help="MiB of rows that a rank keeps (default: 4096)")
    add(
        "--cut",
        type=float,
        help="of a published shape: remote nodes over a random partition's, up to 1 "
        "(default: 1)",
    )
    add(
        "--most-batches",
        type=int,
        help="of a graph at hand: how many are drawn to plan the cache (default: 200)",
    )
    for name in CONSTANTS:
        add(
            _flag(name),
            type=float,
            help=f"sets {CONSTANTS[name][0]} of a machine (default: measured on this one)",
        )
    return found


def _check(options: dict[str, Any]) -> None:
    if ("dataset" in options) == ("partition" in options):
        raise InputError(
            "one of --dataset and --partition must be given",
            "both" if "dataset" in options else "neither",
            "Name the graph.",
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
