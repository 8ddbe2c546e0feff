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
from dataclasses import dataclass
from typing import Annotated, Any

from jgs import command
from jgs.errors import InputError, refuse
from jgs.options import Option, add_options
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
    given = vars(parser().parse_args(argv))
    asked = _Asked(**given)
    with interrupts.starting():
        # A slow import, of JAX: --help and the errors above do not wait for it.
        from jgs.data.plain import load_whole
        from jgs.partition import nodes
        from jgs.partition.folder import check_out, write_parts
        from jgs.partition.memory import check_memory
        from jgs.partition.nodes import check_machines

    command.configure_jax()
    _check_flags(asked, given)
    own = nodes.open_assignment(asked.assignment) if asked.assignment is not None else None
    method, num_parts, per_machine = asked.method, asked.parts, asked.ranks_per_machine
    choice = num_parts, method if own is None else "random", asked.seed
    nodes.check_partition(*choice)
    check_machines(num_parts, per_machine)
    check_out(asked.out)
    with command.loading():
        options = command.option_values(asked.data_options)
        data = load_whole(asked.dataset, asked.root, **options)
    data = data.kept_as(asked.feature_dtype)
    graph = data.graph
    nodes.check_partition(*choice, graph)
    if 0 < data.train_idx.size < num_parts:
        raise InputError(
            f"there must be no more parts than training nodes, {data.train_idx.size:,}",
            f"{num_parts:,}",
            "Give fewer --parts: every rank must have something to train on.",
        )
    splits = {f"{k}_idx": getattr(data, f"{k}_idx") for k in ("train", "val", "test")}
    if own is not None:
        method = "assignment"
    used, size = nodes.used_and_size(graph, num_parts, method, splits.values())
    needed = check_memory(used, size)
    began = time.perf_counter()
    if own is not None:
        assignment = nodes.checked_assignment(own, graph, num_parts, **splits)
    else:
        scratch = os.path.dirname(os.path.realpath(asked.out))
        os.makedirs(scratch, exist_ok=True)
        assignment = nodes.partition_nodes(
            graph,
            num_parts,
            method,
            **splits,
            seed=asked.seed,
            threads=asked.threads,
            scratch=scratch,
            ranks_per_machine=per_machine,
        )
    partitioned = time.perf_counter()
    manifest = write_parts(
        asked.out,
        data,
        assignment,
        num_parts,
        method=used,
        seed=asked.seed,
        ranks_per_machine=per_machine,
    )
    written = time.perf_counter()
    _show(manifest)
    return {
        "parts": os.path.abspath(asked.out),
        "dataset": data.name,
        "method": used,
        "num_parts": num_parts,
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


def _check_flags(asked: _Asked, given: dict[str, Any]) -> None:
    if asked.assignment is not None:
        for name in ("method", "seed", "threads"):
            if name in given:
                raise InputError(
                    f"--{name} must be used without --assignment", given[name], "Leave one out."
                )
    refuse(
        ("seed" in given and asked.method == "ldg",
         "--seed must be for a method that draws", "--method ldg", "Leave it out."),
    )  # fmt: skip
    threads = asked.threads
    if threads != 1 and asked.method != "kaminpar":
        raise InputError(
            "--threads must be used with --method kaminpar", threads, "Leave it out."
        )
    if threads < 1:
        raise InputError("--threads must be at least 1", threads, "Give 1 or more.")


# fmt: off
@dataclass
class _Asked:
    dataset: Annotated[str, Option("a name or a path, as for python -m jgs.train")]
    parts: Annotated[int, Option("the number of parts, one for each rank")]
    out: Annotated[str, Option("folder to write; earlier parts there are replaced")]
    method: Annotated[str, Option(
        "metis (small edge cut), kaminpar (small edge cut, for graphs too large for METIS), "
        "ldg (one pass, for still larger graphs) or random"
    )] = "metis"
    ranks_per_machine: Annotated[int, Option(
        "each T consecutive parts are those of one machine, and share many edges", metavar="T"
    )] = 1
    seed: Annotated[int, Option("random seed, for all methods but ldg")] = 0
    threads: Annotated[int, Option(
        "threads of kaminpar; more than 1 are faster, and not reproducible"
    )] = 1
    assignment: Annotated[str | None, Option(
        "in place of --method: a .npy file of each node's part, in the data set's order",
        metavar="FILE"
    )] = None
    feature_dtype: Annotated[str, Option(
        "how feature rows are written: as the data have them (stored), or as in python -m "
        "jgs.train", choices=DTYPES
    )] = "stored"
    root: str = "data"
    data_options: Sequence[str] = ()
# fmt: on


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.partition", "Split a data set into parts, one for each rank."
    )
    add_options(found, _Asked)
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
