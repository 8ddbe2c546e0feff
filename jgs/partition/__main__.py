"""`python -m jgs.partition`: split a data set into parts, one for each rank.

It writes a table of the parts to standard error and one JSON line to standard output.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import os
import time
from collections.abc import Sequence
from typing import Any

from jgs import command
from jgs.errors import InputError
from jgs.tables import DTYPES

# The table's columns: each part's numbers in the manifest.
_COLUMNS = (
    *("nodes", "connected_nodes", "edges", "train", "val", "test", "seeds", "foreign_seeds"),
    "bytes",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _partition(argv),
        stopped="; --out is as it was, or holds all of the new parts",
        disk=(
            "every file must be readable and writable",
            "Free space or mend the permissions. Earlier parts are as they were.",
        ),
        memory=(
            "the graph and its partitioning must fit into memory",
            "Use --method ldg, which takes a few integers a node.",
        ),
        kept=lambda result: f"Its numbers are in {result['parts']}/manifest.json too.",
    )


def _partition(argv: Sequence[str] | None) -> dict[str, Any]:
    given = parser().parse_args(argv)
    options = vars(given)
    with interrupts.starting():
        # A slow import, of JAX: --help and the errors above do not wait for it.
        from jgs.data.plain import load_whole
        from jgs.partition import nodes
        from jgs.partition.folder import check_out, write_parts
        from jgs.partition.machines import check_machines
        from jgs.partition.memory import check_memory

    command.configure_jax()
    _check_flags(options)
    own = nodes.open_assignment(options["assignment"]) if "assignment" in options else None
    method, seed = options.get("method", "metis"), options.get("seed", 0)
    choice = given.parts, method if own is None else "random", seed
    per_machine = options.get("ranks_per_machine", 1)
    nodes.check_partition(*choice)
    check_machines(given.parts, per_machine)
    check_out(given.out)
    with command.loading():
        plain, data = load_whole(
            given.dataset,
            options.get("root", "data"),
            **command.option_values(options.get("data_options", ())),
        )
    data = data.kept_as(options.get("feature_dtype", "stored"))
    graph = data.graph
    nodes.check_partition(*choice, graph)
    if 0 < data.train_idx.size < given.parts:
        raise InputError(
            f"there must be no more parts than training nodes, {data.train_idx.size:,}",
            f"{given.parts:,}",
            "Give fewer --parts: every rank must have something to train on.",
        )
    splits = {f"{k}_idx": getattr(data, f"{k}_idx") for k in ("train", "val", "test")}
    if own is not None:
        method = "assignment"
    used, size = nodes.used_and_size(graph, given.parts, method, splits.values())
    needed = check_memory(used, size)
    began = time.perf_counter()
    if own is not None:
        assignment = nodes.checked_assignment(own, graph, given.parts, **splits)
    else:
        scratch = os.path.dirname(os.path.realpath(given.out))
        os.makedirs(scratch, exist_ok=True)
        more = {"seed": seed, "threads": options.get("threads", 1), "scratch": scratch}
        more["ranks_per_machine"] = per_machine
        assignment = nodes.partition_nodes(graph, given.parts, method, **splits, **more)
    partitioned = time.perf_counter()
    manifest = write_parts(
        given.out,
        data,
        assignment,
        given.parts,
        method=used,
        seed=seed,
        label_names=plain.label_names,
        negatives=plain.negatives,
        ranks_per_machine=per_machine,
    )
    written = time.perf_counter()
    _show(manifest)
    return {
        "parts": os.path.abspath(given.out),
        "dataset": data.name,
        "method": used,
        "num_parts": given.parts,
        "edge_cut": manifest["edge_cut"],
        "machine_cut": manifest.get("machine_cut", manifest["edge_cut"]),
        "balance": manifest["balance"],
        "parts_id": manifest["parts_id"],
        "memory": {"predicted": needed},
        "seconds": {
            "partitioning": round(partitioned - began, 3),
            "writing": round(written - partitioned, 3),
        },
    }


def _check_flags(options: dict[str, Any]) -> None:
    if "assignment" in options:
        for name in ("method", "seed", "threads"):
            if name in options:
                raise InputError(
                    f"--{name} must be used without --assignment",
                    options[name],
                    "Leave one out.",
                )
    threads = options.get("threads", 1)
    if threads != 1 and options.get("method") != "kaminpar":
        raise InputError(
            "--threads must be used with --method kaminpar", threads, "Leave it out."
        )
    if threads < 1:
        raise InputError("--threads must be at least 1", threads, "Give 1 or more.")


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.partition", "Split a data set into parts, one for each rank."
    )
    add = found.add_argument
    add("--dataset", required=True, help="a name or a path, as for python -m jgs.train")
    add("--parts", type=int, required=True, help="the number of parts, one for each rank")
    add("--out", required=True, help="folder to write; earlier parts there are replaced")
    add(
        "--method",
        help="metis (small edge cut), kaminpar (small edge cut, for graphs too large for "
        "METIS), ldg (one pass, for still larger graphs) or random (default: metis)",
    )
    add(
        "--ranks-per-machine",
        type=int,
        metavar="T",
        help="each T consecutive parts are those of one machine, and share many edges "
        "(default: 1)",
    )
    add("--seed", type=int, help="random seed, for all methods but ldg (default: 0)")
    add(
        "--threads",
        type=int,
        help="threads of kaminpar; more than 1 are faster, and not reproducible (default: 1)",
    )
    add(
        "--assignment",
        metavar="FILE",
        help="in place of --method: a .npy file of each node's part, in the data set's order",
    )
    add(
        "--feature-dtype",
        choices=DTYPES,
        help="how feature rows are written: as the data have them (stored), or as in "
        "python -m jgs.train (default: stored)",
    )
    found.add_data_options()
    return found


def _show(manifest: dict[str, Any]) -> None:
    from rich import box  # slow imports
    from rich.table import Table

    between = ""
    if "machine_cut" in manifest:
        between = f", {manifest['machine_cut']:.2%} between machines"
    table = Table(
        title=f"{manifest['dataset']}: {manifest['num_parts']} parts by {manifest['method']}, "
        f"edge cut {manifest['edge_cut']:.2%}" + between,
        box=box.SIMPLE_HEAD,
    )
    table.add_column("part", justify="right")
    of_types = [name for name in manifest["balance"] if " of " in name]  # of a typed graph
    columns = [*_COLUMNS[:-1], *of_types, _COLUMNS[-1]]
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right", overflow="fold")
    for number, part in enumerate(manifest["parts"]):
        table.add_row(str(number), *(f"{part[column]:,}" for column in columns))
    table.add_section()
    shares = (manifest["balance"].get(column) for column in columns)
    table.add_row("max / mean", *("" if share is None else f"{share:.3f}" for share in shares))
    command.show(table)


if __name__ == "__main__":
    interrupts.leave(main())
