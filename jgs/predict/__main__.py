"""`python -m jgs.predict`: writes the predictions of a trained run to a file.

Standard output gets one JSON line. The file's columns are described in `jgs.predict.command`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from jgs import command
from jgs.dist.communicators.start import CONNECTING, unmet
from jgs.dist.supervision.watchdog import watching
from jgs.options import Option, add_flag, add_options
from jgs.train.config import SETTINGS


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run_writing(lambda: _predict(argv), "The rows are")


def _predict(argv: Sequence[str] | None) -> dict[str, Any] | int:
    with watching(sys.argv[1:] if argv is None else argv, SETTINGS) as watch:
        with unmet():
            given = vars(parser().parse_args(argv))
            with interrupts.starting():
                # A slow import, of Flax, for which the errors above need not wait.
                from jgs.predict.command import predict
        command.configure_jax()
        return predict(given, watch)


# fmt: off
@dataclass
class _Asked:
    run_dir: Annotated[str, Option("folder of the run")]
    out: Annotated[str, Option("file to write: .csv, .npy or .parquet", metavar="FILE")]
    dataset: Annotated[str | None, Option(
        "for a run on a task of a database: predict on this one in place of its own, such as "
        "the same of a later day; columns are encoded as the run's", metavar="PATH"
    )] = None
    split: Annotated[str | None, Option(
        "predict for the nodes of this split, or for the rows of labels at moments (default: "
        "all nodes; of a run on labels at moments those of the labels' type)",
        choices=("train", "val", "test"), instead=True,
    )] = None
    nodes: Annotated[str | None, Option(
        "predict for these node ids (the data set's own ids if it has some): one a line, or an "
        ".npy file", metavar="FILE", instead=True
    )] = None
    node_type: Annotated[str | None, Option(
        "for the nodes of this type; ids of --nodes and --out then count from 0 in the type "
        "(the data set's own ids stay as they are)", metavar="NAME"
    )] = None
    pairs: Annotated[str | None, Option(
        "for --task links and edges: the pairs, two node ids a line, or an .npy file [n, 2]",
        metavar="FILE", instead=True
    )] = None
    task_table: Annotated[bool, Option(
        "with --split, of a run with --db-task: write the table that RelBench judges"
    )] = False
    top_k: Annotated[int | None, Option(
        "for --task links: the K best targets of each node, exactly; by default of each node "
        "of the relation's source type", metavar="K"
    )] = None
    new_only: Annotated[bool, Option(
        "for --top-k: leave out targets to which the node has an edge"
    )] = False
    at: Annotated[int | str | None, Option(
        "for a run that sees times: that at which pairs are scored, or nodes classified; a "
        "number in the unit of the data's times, or a date such as 2024-05-01 (default: the "
        "last column of their file)", metavar="TIME", parse=command.moment
    )] = None
    relation: Annotated[str | None, Option(
        "for --pairs and --top-k in a graph with several relations"
    )] = None
    embed: Annotated[bool, Option(
        "write the rows of the last hidden layer, not the classes"
    )] = False
    fanouts: Annotated[tuple[int, ...], Option(
        "predict from so many sampled neighbours, a number for each layer, seeds' hop first "
        "(default: from all neighbours)", metavar="K"
    )] = ()
    seed: Annotated[int | None, Option(
        "seed of what --fanouts draw (default: the run's --seed)"
    )] = None
# fmt: on


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.predict",
        "Write what a run of python -m jgs.train predicts, with its best parameters: classes "
        "of nodes, or with --embed their embeddings, exactly from all neighbours, or with "
        "--fanouts from sampled ones. For a run of --task links: with --pairs the probability "
        "that a link joins two nodes, or with --top-k each node's best targets. For a run of "
        "--task edges: with --pairs what edges are. For a run of --task embed: the embeddings.",
    )
    add_options(found, _Asked)
    command.add_opening(found)
    for name in CONNECTING:  # as those of training
        add_flag(found, name, SETTINGS[name])
    return found


if __name__ == "__main__":
    interrupts.leave(main())
