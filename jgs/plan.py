"""`python -m jgs.plan`: memory, bytes and time on many machines, before they are rented.

Standard error gets a table, standard output one JSON line.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from jgs import command
from jgs.errors import InputError

if TYPE_CHECKING:
    from jgs.dist.cost import Constants, Cost, Draw, Workload
    from jgs.graph import Graph

_WIDTH = 120  # of the table where there is no terminal
_CONSTANTS = {  # flags, and the fields that they set, in the flags' units
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
_DEFAULTS: dict[str, Any] = {
    "machines": [2, 4, 8, 16, 32, 64, 128, 256],
    "gbits": [25.0, 100.0, 400.0],
    "latency_us": 50.0,
    "batch_size": 1000,
    "fanouts": [5, 10, 15],
    "hidden": 256,
    "wire": "float32",
    "cache_memory": 4096,
    "most_batches": 200,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _plan(argv),
        interrupted="interrupted",
        disk=("every file must be readable", "Correct the path or mend the permissions."),
        memory=(
            "the graph, or the batches to measure with, must fit into memory",
            "Give --batch-size smaller, or the machine's constants (see --help).",
        ),
    )


def _plan(argv: Sequence[str] | None) -> dict[str, Any]:
    options = {**_DEFAULTS, **vars(_parser().parse_args(argv))}
    _check(options)
    # Only now: errors above, and --help, need not wait for the import of JAX.
    from jgs.allocator import keep_freed_memory
    from jgs.dist.cost import MODES, Network, cost

    keep_freed_memory()  # as training does: its steps are timed
    open_work = _published if _is_shape(options) else _at_hand
    work, draw_of, graph, seeds = open_work(options)
    constants = _constants(options, work, graph, seeds)
    results = []
    for ranks in options["machines"]:
        draw = draw_of(ranks)
        for gbits in options["gbits"]:
            network = Network(gbits * 1e9 / 8, options["latency_us"] * 1e-6)
            for mode in MODES:
                result = cost(work, draw, constants, network, ranks, mode)
                results.append(_row(ranks, gbits, mode, result))
                if gbits == options["gbits"][0]:
                    results[-1]["sample"] = draw._asdict()
    _show(work, constants, options, results)
    return {
        "workload": work._asdict(),
        "constants": constants._asdict(),
        "latency_us": options["latency_us"],
        "results": results,
    }


def _parser() -> command.Parser:
    parser = command.Parser(
        "python -m jgs.plan",
        "Memory, bytes and time of training on many machines, one rank each.",
    )
    add = parser.add_argument
    add(
        "--dataset",
        help="MAG240M or IGBH-full, of which the published sizes are enough, as of "
        "ogbn-papers100M with --shape-only; or as of python -m jgs.train",
    )
    add("--partition", help="or a folder of python -m jgs.partition: its parts and their cut")
    add("--shape-only", action="store_true", help="do not read ogbn-papers100M's files")
    add("--root", help="folder of the data sets' files (default: data)")
    add(
        "--data-options",
        nargs="+",
        metavar="NAME=VALUE",
        help="the data set's own options, e.g. num_nodes=10000 seed=1",
    )
    add(
        "--machines",
        nargs="+",
        type=int,
        help="how many (default: 2 4 8 ... 256, if all have a batch)",
    )
    add("--gbits", nargs="+", type=float, help="of the network (default: 25 100 400)")
    add("--latency-us", type=float, help="of a round, in microseconds (default: 50)")
    add("--batch-size", type=int, help="seeds a batch, of each rank (default: 1000)")
    add("--fanouts", nargs="+", type=int, help="seeds' hop first (default: 5 10 15)")
    add("--hidden", type=int, help="width of the hidden layers (default: 256)")
    add("--features", type=int, help="width of the features (default: the data set's)")
    add("--wire", help="float32, float16 or bfloat16 (default: float32)")
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
    for name in _CONSTANTS:
        add(
            _flag(name),
            type=float,
            help=f"sets {_CONSTANTS[name][0]} of a machine (default: measured on this one)",
        )
    return parser


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
    for name, (least, most) in {**_BOUNDS, **dict.fromkeys(_CONSTANTS, _SPEED)}.items():
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
    for option in options.get("data_options", ()):
        if "=" not in option:
            raise InputError(
                "--data-options must be of the form NAME=VALUE", repr(option), "See --help."
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# -- what is trained on ------------------------------------------------------------------------


def _is_shape(options: dict[str, Any]) -> bool:
    from jgs.data import LOADERS
    from jgs.dist.shapes import SHAPES

    name = options.get("dataset")
    known = name in SHAPES
    if options.get("shape_only", False) and not known:
        raise InputError(
            f"--shape-only must be used with one of {', '.join(SHAPES)}",
            name or "--partition",
            "Leave it out: the graph is read.",
        )
    return known and (options.get("shape_only", False) or name not in LOADERS)


def _workload(options: dict[str, Any], **graph: Any) -> Workload:
    from jgs.dist.cost import Workload

    graph["num_features"] = options.get("features", graph["num_features"])
    return Workload(
        **graph,
        batch_size=options["batch_size"],
        fanouts=tuple(options["fanouts"]),
        hidden=options["hidden"],
        wire=4 if options["wire"] == "float32" else 2,
    )


def _cache_rows(options: dict[str, Any], work: Workload) -> int:
    return (options["cache_memory"] << 20) // (4 * work.num_features)


def _published(options: dict[str, Any]) -> tuple[Workload, Callable, None, None]:
    from jgs.dist.shapes import SHAPES, expected_draw, lognormal_degrees

    name = options["dataset"]
    work = _workload(options, name=name, **SHAPES[name]._asdict())
    degrees = lognormal_degrees(work.num_nodes, work.num_edges)
    num_rows = _cache_rows(options, work)
    cut = options.get("cut", 1.0)
    _check_machines(options, work.num_seeds)
    return work, lambda ranks: expected_draw(work, degrees, ranks, num_rows, cut), None, None


def _at_hand(options: dict[str, Any]) -> tuple[Workload, Callable, Graph, np.ndarray]:
    from jgs.dist.trial import measured_draw

    if "cut" in options:
        raise InputError(
            "--cut must be used with a published shape", "a graph at hand", "Leave it out."
        )
    open_graph = _parts if "partition" in options else _dataset
    graph, work, owners = open_graph(options)
    num_rows, most = _cache_rows(options, work), options["most_batches"]

    def draw_of(ranks: int) -> Draw:
        owner, seeds = owners(ranks)
        return measured_draw(work, graph, owner, seeds, num_rows, most)

    return work, draw_of, graph, np.concatenate(owners(1)[1])


def _check_machines(
    options: dict[str, Any], num_seeds: int, parts: Sequence[int] | None = None
) -> None:
    """Raises `InputError` unless each number of machines can train; of those that nobody gave
    only the ones that can are kept. `parts`: the seeds of each."""
    size, machines = options["batch_size"], options["machines"]

    def can(ranks: int) -> bool:
        if parts is None or len(parts) % ranks:
            return ranks <= num_seeds and (ranks == 1 or size * ranks <= num_seeds)
        each = len(parts) // ranks
        return size % each == 0 and size // each <= min(parts)

    fit = list(filter(can, machines))
    if machines is _DEFAULTS["machines"] and fit:
        options["machines"] = fit
    elif fit != machines:
        raise InputError(
            "every machine must have a training node, and as many as a batch has; of parts, a "
            "batch must have equally many of each, no more than there are",
            f"{next(m for m in machines if not can(m))} machines, {num_seeds} training nodes, "
            f"batches of {size}"
            + ("" if parts is None else f", {len(parts)} parts of at least {min(parts)}"),
            "Give fewer --machines or another --batch-size.",
        )


def _dataset(options: dict[str, Any]) -> tuple[Graph, Workload, Callable]:
    import jgs.data
    from jgs.features import SparseFeatures

    data = jgs.data.load(
        options["dataset"],
        options.get("root", "data"),
        **command.option_values(options.get("data_options", ())),
    )
    features = data.features
    itemsize = 4 if isinstance(features, SparseFeatures) else features.dtype.itemsize
    work = _workload(
        options,
        name=data.name,
        num_nodes=data.graph.num_nodes,
        num_edges=data.graph.num_edges,
        num_features=features.shape[1],
        itemsize=itemsize,
        num_classes=data.num_classes,
        num_seeds=data.train_idx.size,
        weighted=data.graph.edge_weight is not None,
    )
    _check_machines(options, work.num_seeds)
    return data.graph, work, lambda ranks: _random_parts(work, data.train_idx, ranks)


def _parts(options: dict[str, Any]) -> tuple[Graph, Workload, Callable]:
    from jgs.dist.parts import open_parts

    parts = open_parts(options["partition"])
    described = parts.manifest["features"]
    seeds = [np.asarray(parts.part(p).train_idx) for p in range(parts.num_parts)]
    work = _workload(
        options,
        name=parts.name,
        num_nodes=parts.num_nodes,
        num_edges=parts.num_edges,
        num_features=described["shape"][1],
        itemsize=4 if described["sparse"] else np.dtype(described["dtype"]).itemsize,
        num_classes=parts.num_classes,
        num_seeds=sum(s.size for s in seeds),
        weighted=parts.graph.edge_weight is not None,
    )

    _check_machines(options, work.num_seeds, [s.size for s in seeds])

    def owners(ranks: int) -> tuple[np.ndarray, list[np.ndarray]]:
        if parts.num_parts % ranks:
            command.say(
                f"{parts.num_parts} parts cannot be shared by {ranks} ranks: a random "
                "partition is taken for them"
            )
            return _random_parts(work, np.concatenate(seeds), ranks)
        each = parts.num_parts // ranks
        owner = (parts.owner(np.arange(parts.num_nodes)) // each).astype(np.int32)
        dealt = [np.concatenate(seeds[r * each : (r + 1) * each]) for r in range(ranks)]
        return owner, dealt

    return parts.graph, work, owners


def _random_parts(
    work: Workload, train_idx: np.ndarray, ranks: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A random partition: with no cut worth the name, an upper bound of what is sent."""
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.arange(work.num_nodes, dtype=np.int32) % ranks)
    order = rng.permutation(np.asarray(train_idx))
    return owner, [np.sort(order[r::ranks]) for r in range(ranks)]


# -- constants and the table -------------------------------------------------------------------


def _constants(
    options: dict[str, Any], work: Workload, graph: Graph | None, seeds: np.ndarray | None
) -> Constants:
    from jgs.dist.cost import Constants

    given = {
        field: options[name] * unit
        for name, (field, unit) in _CONSTANTS.items()
        if name in options
    }
    for field in ("edge_seconds", "vanilla_edge_seconds", "row_bandwidth", "flops"):
        if field not in given:
            from jgs.dist.calibrate import calibrate

            return calibrate(work, graph, seeds)._replace(**given)
    return Constants(**given)


def _row(ranks: int, gbits: float, mode: str, result: Cost) -> dict[str, Any]:
    memory = {name: round(size) for name, size in result.memory.items()}
    return {
        "machines": ranks,
        "gbits": gbits,
        "mode": mode,
        **result._asdict(),
        "memory": memory,
        "memory_total": sum(memory.values()),
    }


def _show(
    work: Workload, constants: Constants, options: dict[str, Any], results: list[dict[str, Any]]
) -> None:
    table = Table(
        title=f"{work.name}: {work.num_nodes:,} nodes, {work.num_edges:,} edges, "
        f"{work.num_features} features; batches of {work.batch_size}, fanouts {work.fanouts}; "
        f"{options['latency_us']:g} µs a round; seconds an epoch by Gbit/s",
        caption=f"a rank of these machines: {constants.edge_seconds * 1e9:.1f} ns an edge "
        f"({constants.vanilla_edge_seconds * 1e9:.1f} vanilla), rows at "
        f"{constants.row_bandwidth / 1e9:.2f} GB/s, {constants.flops / 1e9:.1f} GFLOP/s",
        box=box.SIMPLE_HEAD,
    )
    names = ["machines", "mode", "GiB a rank", "steps", "rounds", "MB a step", "GB to fill"]
    names += [f"s at {gbits:g}" for gbits in options["gbits"]]
    for name in names:
        table.add_column(name, justify="left" if name == "mode" else "right")
    per_gbits = len(options["gbits"])
    for begin in range(0, len(results), 3 * per_gbits):
        some = results[begin : begin + 3 * per_gbits]
        for m in range(3):
            first = some[m]
            seconds = [f"{row['overlapped_seconds']:,.1f}" for row in some[m::3]]
            table.add_row(
                str(first["machines"]) if m == 0 else "",
                first["mode"],
                f"{first['memory_total'] / 2**30:,.1f}",
                f"{first['steps']:,}",
                str(first["rounds"]),
                f"{first['bytes'] / 1e6:,.1f}",
                f"{first['epoch_bytes'] / 1e9:,.1f}",
                *seconds,
            )
        table.add_section()
    console = Console(stderr=True)
    (console if console.is_terminal else Console(stderr=True, width=_WIDTH)).print(table)


if __name__ == "__main__":
    sys.exit(main())
