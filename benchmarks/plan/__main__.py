"""`python -m benchmarks.plan` estimates memory, bytes and time of training on many machines, or
with `--this-machine` on this one, with features on disk.

It writes a table to standard error and one JSON line to standard output.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.plan.options import CONSTANTS, DEFAULTS, parse
from jgs import command
from jgs.allocator import keep_freed_memory
from jgs.errors import InputError

if TYPE_CHECKING:
    from benchmarks.plan.cost import Constants, Cost, Draw, Workload
    from jgs.data import Dataset
    from jgs.graph import Graph


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _plan(argv),
        stopped="",
        disk=("every file must be readable", "Correct the path or mend the permissions."),
        memory=(
            "the graph, or the batches to measure with, must fit into memory",
            "Give --batch-size smaller, or the machine's constants (see --help).",
        ),
        kept=lambda _: "Open it and run the command again; the table above says most of it.",
    )


def _plan(argv: Sequence[str] | None) -> dict[str, Any]:
    options = parse(argv)
    with interrupts.starting():
        # A slow import, of JAX: --help and the errors above do not wait for it.
        from benchmarks.plan.cost import MODES, Network, cost
        from jgs import kernels
        from jgs.partition import memory

    command.configure_jax()
    keep_freed_memory()  # as in training, whose steps are timed here
    if options.get("this_machine", False):
        return _this_machine(options)
    open_work = _published if _is_shape(options) else _at_hand
    with kernels.this_host_only():
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
    partitioning = memory.predictions(
        memory.Graph(work.num_nodes, work.num_edges, work.num_nodes)
    )
    sizes = ", ".join(f"{name} {size / 1e9:,.1f} GB" for name, size in partitioning.items())
    command.say(f"memory that python -m jgs.partition takes, by --method: {sizes}")
    return {
        "workload": work._asdict() | {"sampler": repr(work.sampler)},
        "constants": constants._asdict(),
        "latency_us": options["latency_us"],
        "partitioning_bytes": partitioning,
        "results": results,
    }


def _this_machine(options: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.plan import this_machine  # slow imports, of JAX
    from benchmarks.plan.shapes import SHAPES
    from jgs import kernels
    from jgs.files.row_file import part_of_mapped
    from jgs.graph import SparseFeatures

    graph, seeds, path, labels = None, None, None, 0
    if published := _is_shape(options):
        work = _as_asked(options, SHAPES[options["dataset"]])
        found = this_machine.plan_of_shape(work, options)
    else:
        data, work = _open_dataset(options)
        if isinstance(data.features, SparseFeatures):
            raise InputError(
                "--this-machine must plan for dense features",
                f"the sparse ones of {data.name}",
                "Leave --this-machine out.",
            )
        graph, seeds, part = data.graph, data.train_idx, part_of_mapped(data.features)
        path = None if part is None else part.path
        labels = 0 if isinstance(data.labels, np.memmap) else data.labels.nbytes
        found = this_machine.plan_at_hand(work, graph, seeds, options)
    speed = this_machine.disk_speed(path)
    with kernels.this_host_only():
        constants = _constants(options, work, graph, seeds)
    result = this_machine.result(work, *found, constants, speed, options, labels)
    for line in this_machine.show(result, published):
        command.say(line)
    return result


# -- the graph ---------------------------------------------------------------------------------


def _is_shape(options: dict[str, Any]) -> bool:
    from benchmarks.plan.shapes import SHAPES
    from jgs.data import LOADERS  # a slow import

    name = options.get("dataset")
    known = name in SHAPES
    if options.get("shape_only", False) and not known:
        raise InputError(
            f"--shape-only must be used with one of {', '.join(SHAPES)}",
            name or "--partition",
            "Leave it out: the graph is read.",
        )
    return known and (options.get("shape_only", False) or name not in LOADERS)


def _as_asked(options: dict[str, Any], work: Workload) -> Workload:
    """The graph's workload, with the training that the flags describe."""
    from jgs.sampling import Neighbors  # a slow import

    return work._replace(
        num_features=options.get("features", work.num_features),
        batch_size=options["batch_size"],
        sampler=Neighbors(tuple(options["fanouts"])),
        hidden=options["hidden"],
        wire=4 if options["wire"] == "float32" else 2,
        comm=options["comm"],
    )


def _cache_rows(options: dict[str, Any], work: Workload) -> int:
    return (options["cache_memory"] << 20) // (4 * work.num_features)


def _published(options: dict[str, Any]) -> tuple[Workload, Callable, None, None]:
    from benchmarks.plan.shapes import SHAPES, expected_draw, lognormal_degrees  # a slow import

    name = options["dataset"]
    work = _as_asked(options, SHAPES[name])
    degrees = lognormal_degrees(work.num_nodes, work.num_edges)
    num_rows = _cache_rows(options, work)
    cut = options.get("cut", 1.0)
    _check_machines(options, work.num_seeds)
    return work, lambda ranks: expected_draw(work, degrees, ranks, num_rows, cut), None, None


def _at_hand(options: dict[str, Any]) -> tuple[Workload, Callable, Graph, np.ndarray]:
    from benchmarks.plan.trial import measured_draw  # a slow import

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
    """Raises `InputError` unless each number of machines can train. If `--machines` is not
    given, the default numbers that cannot are dropped. `parts` is the number of seeds in each
    part."""
    size, machines = options["batch_size"], options["machines"]

    def can(ranks: int) -> bool:
        if parts is None or len(parts) % ranks:
            return size * ranks <= num_seeds
        each = len(parts) // ranks
        return size % each == 0 and size // each <= min(parts)

    fit = list(filter(can, machines))
    if machines is DEFAULTS["machines"] and fit:
        options["machines"] = fit
    elif fit != machines:
        raise InputError(
            "every machine must have training nodes for a batch; of parts, a batch must have "
            "equally many of each, no more than there are",
            f"{next(m for m in machines if not can(m))} machines, {num_seeds} training nodes, "
            f"batches of {size}"
            + ("" if parts is None else f", {len(parts)} parts of at least {min(parts)}"),
            "Give fewer --machines or another --batch-size.",
        )


def _dataset(options: dict[str, Any]) -> tuple[Graph, Workload, Callable]:
    data, work = _open_dataset(options)
    _check_machines(options, work.num_seeds)
    return data.graph, work, lambda ranks: _random_parts(work, data.train_idx, ranks)


def _open_dataset(options: dict[str, Any]) -> tuple[Dataset, Workload]:
    import jgs.data  # a slow import
    from benchmarks.plan.cost import Workload
    from jgs.graph import SparseFeatures, TypedFeatures

    with command.loading():
        data = jgs.data.load(
            options["dataset"],
            options.get("root", "data"),
            **command.option_values(options.get("data_options", ())),
        )
    features = data.features
    if isinstance(features, TypedFeatures):
        raise InputError(
            "a plan must be for a graph with one table of features",
            f"{data.name}, with one for each node type",
            "Give another data set.",
        )
    itemsize = 4 if isinstance(features, SparseFeatures) else features.dtype.itemsize
    work = Workload(
        name=data.name,
        num_nodes=data.graph.num_nodes,
        num_edges=data.graph.num_edges,
        num_features=features.shape[1],
        itemsize=itemsize,
        num_classes=data.num_classes,
        num_seeds=data.train_idx.size,
        weighted=data.graph.edge_weight is not None,
    )
    return data, _as_asked(options, work)


def _parts(options: dict[str, Any]) -> tuple[Graph, Workload, Callable]:
    from benchmarks.plan.cost import Workload
    from jgs.data.parts import open_parts  # a slow import

    parts = open_parts(options["partition"], "once")
    described = parts.manifest["features"]
    seeds = [np.asarray(parts.part(p).train_idx) for p in range(parts.num_parts)]
    work = Workload(
        name=parts.name,
        num_nodes=parts.num_nodes,
        num_edges=parts.num_edges,
        num_features=described["shape"][1],
        itemsize=4 if described["sparse"] else np.dtype(described["dtype"]).itemsize,
        num_classes=parts.num_classes,
        num_seeds=sum(s.size for s in seeds),
        weighted=parts.graph.edge_weight is not None,
    )
    work = _as_asked(options, work)
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
    """The nodes' owners and the ranks' seeds in a random partition. A partition that is made to
    cut few edges sends less, so what this one sends is an upper bound."""
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.arange(work.num_nodes, dtype=np.int32) % ranks)
    order = rng.permutation(np.asarray(train_idx))
    return owner, [np.sort(order[r::ranks]) for r in range(ranks)]


# -- constants and the table -------------------------------------------------------------------


def _constants(
    options: dict[str, Any], work: Workload, graph: Graph | None, seeds: np.ndarray | None
) -> Constants:
    from benchmarks.plan.cost import Constants  # a slow import

    given = {
        field: options[name] * unit
        for name, (field, unit) in CONSTANTS.items()
        if name in options
    }
    for field in ("edge_seconds", "vanilla_edge_seconds", "row_bandwidth", "flops"):
        if field not in given:
            from benchmarks.plan.calibrate import calibrate

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
    from rich import box  # slow imports
    from rich.table import Table

    table = Table(
        title=f"{work.name}: {work.num_nodes:,} nodes, {work.num_edges:,} edges, "
        f"{work.num_features} features; batches of {work.batch_size}, {work.sampler}; "
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
    command.show(table)


if __name__ == "__main__":
    interrupts.leave(main())
