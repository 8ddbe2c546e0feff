"""`python -m jgs.predict`: writes the predictions of a trained run to a file.

Standard output gets one JSON line. The file's columns are described in `jgs.predict.output`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import sys
from collections.abc import Sequence
from typing import Any

from jgs import command
from jgs.dist.communicators.start import watching
from jgs.train.config import SETTINGS
from jgs.train.flags import add_flag

# Flags that are those of training.
_CONNECTING = (
    *("comm", "coordinator", "num_processes", "process_id", "interface", "start_timeout"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run_writing(lambda: _predict(argv), "The rows are")


def _predict(argv: Sequence[str] | None) -> dict[str, Any] | int:
    with watching(sys.argv[1:] if argv is None else argv) as watch:
        with interrupts.starting():
            from jgs.dist.communicators.launch import unmet  # a slow import
        with unmet():
            given = vars(parser().parse_args(argv))
            with interrupts.starting():
                # It imports Flax, for which the errors above need not wait.
                from jgs.predict.command import predict
        command.configure_jax()
        return predict(given, watch)


def _moment(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text  # a date, which the run reads


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.predict",
        "Write what a run of python -m jgs.train predicts, with its best parameters: classes "
        "of nodes, or with --embed their embeddings, exactly from all neighbours, or with "
        "--fanouts from sampled ones. For a run of --task links: with --pairs the probability "
        "that a link joins two nodes, or with --top-k each node's best targets. For a run of "
        "--task edges: with --pairs what edges are. For a run of --task embed: the embeddings.",
    )
    add = found.add_argument
    add("--run-dir", required=True, help="folder of the run")
    add("--out", required=True, metavar="FILE", help="file to write: .csv, .npy or .parquet")
    which = found.add_mutually_exclusive_group()
    which.add_argument(
        "--split",
        choices=("train", "val", "test"),
        help="predict for the nodes of this split, or for the rows of labels at moments "
        "(default: all nodes)",
    )
    which.add_argument(
        "--nodes",
        metavar="FILE",
        help="predict for these node ids (the data set's own ids if it has some): one a line, "
        "or an .npy file",
    )
    add(
        "--node-type",
        metavar="NAME",
        help="for the nodes of this type; ids of --nodes and --out then count from 0 in the "
        "type (the data set's own ids stay as they are)",
    )
    which.add_argument(
        "--pairs",
        metavar="FILE",
        help="for --task links and edges: the pairs, two node ids a line, or an .npy file "
        "[n, 2]",
    )
    add(
        "--top-k",
        type=int,
        metavar="K",
        help="for --task links: the K best targets of each node, exactly; by default of each "
        "node of the relation's source type",
    )
    add(
        "--new-only",
        action="store_true",
        help="for --top-k: leave out targets to which the node has an edge",
    )
    add(
        "--at",
        type=_moment,
        metavar="TIME",
        help="for a run that sees times: that at which pairs are scored, or nodes classified; "
        "a number in the unit of the data's times, or a date such as 2024-05-01 "
        "(default: the last column of their file)",
    )
    add("--relation", help="for --pairs and --top-k in a graph with several relations")
    add(
        "--embed",
        action="store_true",
        help="write the rows of the last hidden layer, not the classes",
    )
    add(
        "--fanouts",
        type=int,
        nargs="+",
        metavar="K",
        help="predict from so many sampled neighbours, a number for each layer, seeds' hop "
        "first (default: from all neighbours)",
    )
    add("--seed", type=int, help="seed of what --fanouts draw (default: the run's --seed)")
    command.add_opening(found)
    for name in _CONNECTING:
        add_flag(found, name, SETTINGS[name])
    return found


if __name__ == "__main__":
    interrupts.leave(main())
