"""`Config`: everything that decides a training run. Its fields are the command's flags."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jgs.command import Parser, option_values
from jgs.errors import InputError
from jgs.train import learning_flags, subgraph_flags
from jgs.train.flags import setting as _flag
from jgs.train.learning_flags import LearningFlags
from jgs.train.rank_flags import RankFlags
from jgs.train.subgraph_flags import SubgraphFlags
from jgs.train.tasks import embed_flags, link_flags
from jgs.train.tasks.embed_flags import EmbedFlags
from jgs.train.tasks.link_flags import LinkFlags

_INT32 = 2**31 - 1
_TOGETHER = ("batch_size", "ranks")
_GROWING = ("epochs", "patience")  # they may have other values on --resume
_DEFAULTS: dict[Any, dict[str, Any]] = {
    "embed": embed_flags.DEFAULTS,
    "links": link_flags.DEFAULTS,
}
_NAMING_DATA = ("dataset", "data_options")
_BOUNDS = {
    "hidden": (1, 1 << 16),
    "heads": (1, 1 << 10),
    "extra_nodes": (0, _INT32),
    **subgraph_flags.BOUNDS,
    "importance": (-1, 1000),
    "period": (1, _INT32),
    "state_age": (0, 1 << 10),
    "plateau_epochs": (1, _INT32),
    "batch_size": (1, _INT32),
    "epochs": (1, _INT32),
    "keep": (1, _INT32),
    "eval_memory": (1, 1 << 24),  # 16 TiB
    "checkpoint_every": (0, _INT32),
    "prefetch": (0, 1 << 10),
    "ranks": (1, 1 << 20),
    "cache_memory": (1, 1 << 24),
    **embed_flags.BOUNDS,
    **learning_flags.BOUNDS,
}


@dataclass(frozen=True)
class Config(RankFlags, EmbedFlags, SubgraphFlags, LinkFlags, LearningFlags):
    """The settings of a run; the field `batch_size` is the flag `--batch-size`, and so on.

    The defaults train the embedded data set in well under a minute on two cores. The
    constructor checks every field and raises `InputError`. Fields whose metadata have
    `identity=False` (where the run lies, how it is shown) do not affect the result: a run may
    be resumed with other values of them.
    """

    task: str = _flag(
        "nodes",
        "what is learned: classes of nodes, by a graph network (nodes); embeddings of nodes "
        "from walks, by skip-gram with negative sampling (embed; --sampler walk, node2vec or "
        "metapath); or whether a link joins two nodes, by SEAL (links; --sampler seal)",
        choices=("nodes", "embed", "links"),
    )
    dataset: str = _flag(
        "synthetic",
        "synthetic, cora, citeseer, pubmed, facebook, acm, ogbn-arxiv, ogbn-products, "
        "ogbn-papers100M, or the path of an edge list, of an archive, or of a folder with a "
        "saved data set or with tables edges and nodes (.parquet or .csv)",
    )
    root: str = _flag("data", "folder of the data sets' files; public ones are fetched to it")
    data_options: tuple[str, ...] = _flag(
        (), "the data set's own options, e.g. num_nodes=10000 seed=1", metavar="NAME=VALUE"
    )
    partition: str | None = _flag(
        None,
        "folder that python -m jgs.partition wrote: train on its parts, with one rank or many "
        "(instead of --dataset)",
        identity=False,
    )
    sampler: str = _flag(
        "neighbors",
        "what a batch has. Neighbours, drawn for each node by itself (neighbors), with random "
        "numbers that targets share (labor), corrected by every node's last messages (vrgcn), "
        "or with learned weights (gcnbs, thanos, pass). Nodes, drawn jointly for each layer "
        "(fastgcn, ladies), with learned weights (asgcn). The nodes that walks visit most "
        "(pinsage), of each node type (hetgnn). A subgraph for models of any depth: of the "
        "seeds and drawn nodes (subgraph), a frontier of walkers (frontier), drawn nodes, "
        "edges or walks (saint), or the seeds' neighbourhoods (shadow). For --task embed, "
        "walks with steps to any neighbour (walk), biased by the step before (node2vec), or "
        "along relations (metapath). For --task links, the graph around each pair (seal)",
        choices=(
            "neighbors",
            "labor",
            "fastgcn",
            "ladies",
            "vrgcn",
            "gcnbs",
            "thanos",
            "pass",
            "asgcn",
            "pinsage",
            "hetgnn",
            "subgraph",
            "frontier",
            "saint",
            "shadow",
            "walk",
            "node2vec",
            "metapath",
            "seal",
        ),
    )
    fanouts: tuple[int, ...] = _flag(
        (10, 10),
        "for samplers of neighbours: how many to draw per node in each layer, seeds' hop first "
        "(for shadow and seal: in each hop); -1 draws all (neighbors, labor, shadow, seal)",
    )
    walks: tuple[int, ...] = _flag(
        (200, 10), "for pinsage and hetgnn: walks from each node, and steps of each walk"
    )
    restart: float = _flag(
        0.5, "for pinsage and hetgnn: probability that a walk ends before each later step"
    )
    relations: tuple[str, ...] = _flag(
        (),
        "for pinsage and metapath: relations that steps go along in turn, e.g. rev_buys buys",
    )
    sizes: tuple[int, ...] = _flag(
        (512, 512), "for fastgcn, ladies and asgcn: nodes to draw per layer, seeds' hop first"
    )
    fanout_schedule: tuple[str, ...] = _flag(
        (),
        "other fanouts (or sizes) for later epochs: 10:15,15 after 10 epochs; plateau:15,15 "
        "once the training loss no longer falls",
        metavar="WHEN:FANOUTS",
    )
    plateau_fraction: float = _flag(
        0.01,
        "for plateau: the loss has fallen where it is below the least by this fraction of it",
    )
    plateau_epochs: int = _flag(3, "for plateau: so many epochs without a fall are one")
    importance: int = _flag(
        0, "for labor: rounds of importance sampling, for fewer distinct nodes; -1: all"
    )
    layer_dependency: bool = _flag(
        False, "for labor: a node has the same random number at every hop"
    )
    period: int = _flag(
        1, "for labor: for how many steps batches share most of their nodes; 1: not at all"
    )
    state_age: int = _flag(
        0,
        "for vrgcn, gcnbs, thanos, pass and asgcn: a batch is drawn with the sampler's state "
        "of so many steps before; at most so many batches are drawn ahead",
    )
    model: str = _flag(
        "sage",
        "the layers: GraphSAGE, GCN, GAT (attention), its second version GATv2, or GIN",
        choices=("sage", "gcn", "gat", "gatv2", "gin"),
    )
    hidden: int = _flag(64, "width of the hidden layers, all heads together")
    heads: int = _flag(8, "for gat and gatv2: the number of heads of every hidden layer")
    reduce: str = _flag(
        "mean", "for sage: how a node combines its neighbours", choices=("mean", "sum", "max")
    )
    concat: bool = _flag(
        False,
        "for gcn: a node's own row and its neighbours' mean side by side, as in gcn-ipdps19",
    )
    norm: str | None = _flag(
        None, "normalisation after every hidden layer", choices=("layer", "l2")
    )
    dropout: float = _flag(0.5, "dropout rate after every hidden layer")
    input_dropout: float | None = _flag(
        None, "dropout rate of the input features (default: --dropout's if sparse, 0 if dense)"
    )
    replace: bool = _flag(False, "draw neighbours with replacement")
    weighted: bool = _flag(
        False,
        "draw neighbours, and the steps of walks, in proportion to edge weights; evaluation "
        "leaves out edges of weight 0",
    )
    batch_size: int = _flag(
        1000,
        "seeds (or walks) in a batch of each rank. Frontier and saint draw their seeds "
        "themselves: for them it only decides how many batches an epoch has",
    )
    ranks: int = _flag(1, "", flag=False)
    epochs: int = _flag(
        5,
        "passes over the training nodes (for --task embed, each is --num-walks passes over all "
        "nodes); may grow on --resume",
    )
    lr: float = _flag(
        1e-2,
        "Adam's learning rate. For --task embed it is SGD's first rate, which falls linearly "
        "over all --epochs; after --resume with more --epochs the rate is the longer run's",
    )
    weight_decay: float = _flag(0.0, "L2 penalty, added to the gradient before Adam")
    seed: int = _flag(0, "seed of all random draws: parameters, shuffling, sampling, dropout")
    eval_memory: int = _flag(256, "MiB of working memory for evaluation", metavar="MIB")
    scratch: str | None = _flag(
        None,
        "folder, on each rank's machine, for what evaluation cannot keep in --eval-memory "
        "(default: on rank 0 --run-dir, on others the system's temporary folder, TMPDIR)",
        identity=False, metavar="FOLDER",
    )  # fmt: skip
    run_dir: str | None = _flag(
        None, "folder of the run (default: runs/DATASET-TIME)", identity=False, saved=False
    )
    resume: bool = _flag(
        False, "continue the run in --run-dir; flags not given keep that run's values",
        identity=False, saved=False,
    )  # fmt: skip
    checkpoint_every: int = _flag(
        0, "steps between checkpoints in an epoch; 0: only at its end", identity=False
    )
    keep: int = _flag(3, "how many checkpoints to keep, the newest", identity=False)
    prefetch: int = _flag(
        2, "batches to sample ahead in the background; 0: none", identity=False
    )
    keep_memory: bool = _flag(
        True, "let the allocator keep freed memory, for faster steps", identity=False
    )
    progress: bool = _flag(True, "show a progress bar on a terminal", identity=False)

    def __post_init__(self) -> None:
        types = typing.get_type_hints(Config)
        for field in dataclasses.fields(self):
            value = _checked_type(field.name, getattr(self, field.name), types[field.name])
            object.__setattr__(self, field.name, value)
            choices = field.metadata.get("choices")
            if value is not None and choices and value not in choices:
                raise InputError(
                    f"{flag(field.name)} must be one of {', '.join(choices)}",
                    repr(value),
                    "Choose one of them.",
                )
        # Absolute, so that a run can be resumed from any folder.
        object.__setattr__(self, "root", os.path.abspath(self.root))
        object.__setattr__(self, "dataset", _absolute(self.dataset))
        if self.partition is not None:
            object.__setattr__(self, "partition", os.path.abspath(self.partition))
        if self.scratch is not None:
            object.__setattr__(self, "scratch", os.path.abspath(self.scratch))
        if self.run_dir == "":
            raise InputError(
                "--run-dir must name a folder", "''", "Leave it out for one in runs/."
            )
        if not self.dataset:
            raise InputError("--dataset must name a data set", "''", "See --help.")
        if not self.fanouts or any(f != -1 and not 1 <= f <= _INT32 for f in self.fanouts):
            raise InputError(
                "every fanout must be a positive 32-bit int, or -1 for all neighbours",
                " ".join(map(str, self.fanouts)) or "none",
                "Give one for each layer, e.g. --fanouts 10 10.",
            )
        if not self.sizes or any(not 1 <= k <= _INT32 for k in self.sizes):
            raise InputError(
                "every size must be a positive 32-bit int",
                " ".join(map(str, self.sizes)) or "none",
                "Give one for each layer, e.g. --sizes 512 512.",
            )
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            rule = f"at least {least}" if value < least else f"at most {most}"
            _require(name, least <= value <= most, value, rule)
        layers = self.layers
        _require("layers", layers is None or 1 <= layers <= 100, layers, "from 1 to 100")
        _require("seed", 0 <= self.seed < 2**32, self.seed, "in [0, 2**32)")
        _require("lr", 0 < self.lr < math.inf, self.lr, "positive and finite")
        for name in ("p", "q"):
            _require(name, 0 < getattr(self, name) < math.inf, getattr(self, name), "positive")
        decay = self.weight_decay
        _require("weight_decay", 0 <= decay < math.inf, decay, "finite and not negative")
        error = self.norm_error
        good = error == 0 or 1e-3 <= error <= 1
        _require("norm_error", good, error, "0, or from 0.001 to 1")
        share = self.plateau_fraction
        _require("plateau_fraction", 0 <= share < 1, share, "in [0, 1)")
        _require("dropout", 0 <= self.dropout < 1, self.dropout, "in [0, 1)")
        for name in ("start_timeout", "watchdog", "phase_timeout"):
            value = getattr(self, name)
            _require(name, 1 <= value < math.inf, value, "at least 1")
        for name in ("test_share", "val_share", "pool_share"):
            value = getattr(self, name)
            _require(name, 0 < value < 1, value, "in (0, 1)")
        share = self.lr_end
        _require("lr_end", 0 < share <= 1, share, "above 0 and at most 1")
        rise = self.warmup_steps
        _require("warmup_steps", rise is None or rise >= 1, rise, "at least 1")
        rate = self.input_dropout
        _require("input_dropout", rate is None or 0 <= rate < 1, rate, "in [0, 1)")
        for option in self.data_options:
            _require("data_options", "=" in option, repr(option), "of the form NAME=VALUE")

    def data_arguments(self) -> dict[str, Any]:
        """`data_options` as keyword arguments. A value that reads as an int, a float or a
        boolean becomes one; any other stays text."""
        return option_values(self.data_options)

    def to_json(self) -> str:
        """The saved form: all fields without those whose metadata have `saved=False`."""
        saved = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if _saved(f)}
        return json.dumps(saved, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, **own: Any) -> Config:
        """The configuration that `to_json` wrote. Fields that the text lacks have their
        defaults, and `own` replaces any field. Raises `InputError`."""
        try:
            saved = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                "a saved configuration must be JSON", error, "Choose another --run-dir."
            ) from None
        known = {f.name for f in dataclasses.fields(cls) if _saved(f)}
        if not isinstance(saved, dict) or not known.issuperset(saved):
            unknown = sorted(set(saved) - known) if isinstance(saved, dict) else saved
            raise InputError(
                "a saved configuration must hold the fields of this version of jgs",
                unknown,
                "Resume with the version that wrote it, or choose another --run-dir.",
            )
        if saved and "sampler" not in saved:
            raise InputError(
                "a run must be resumed by the version of jgs that began it",
                "one of an earlier version",
                "Use that version, or choose another --run-dir.",
            )
        return cls(**saved | own)

    def differs_from(self, other: Config) -> dict[str, tuple[Any, Any]]:
        """The fields in which two runs differ, without `epochs` and `patience`: each name with
        both values."""
        names = [
            f.name
            for f in dataclasses.fields(self)
            if f.metadata.get("identity", True) and f.name not in (*_GROWING, *_TOGETHER)
        ]
        pairs = {n: (getattr(self, n), getattr(other, n)) for n in names}
        # Another number of ranks may share the same batches.
        seeds = [c.batch_size * c.ranks for c in (self, other)]
        if seeds[0] != seeds[1]:
            pairs |= {n: (getattr(self, n), getattr(other, n)) for n in _TOGETHER}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}


def parse(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The flags given on a command line, by field name. Flags that are not given are absent.

    Raises `InputError` for flags or values that do not parse. `--help` exits.
    """
    given = vars(parser().parse_args(argv))
    if "partition" in given and (others := [flag(n) for n in _NAMING_DATA if n in given]):
        raise InputError(
            "--partition must name the data alone",
            f"{' and '.join(others)} beside it",
            "Leave that out: the parts are of one data set.",
        )
    return given


def parser() -> Parser:
    """The parser of the command line, with a flag for each field of `Config`."""
    found = Parser(
        "python -m jgs.train", "Train a graph neural network, or embeddings, from samples."
    )
    types = typing.get_type_hints(Config)
    for field in dataclasses.fields(Config):
        if not field.metadata.get("flag", True):
            continue
        options: dict[str, Any] = {"help": field.metadata["help"], "dest": field.name}
        kind = types[field.name]
        if kind is bool:
            options["action"] = (
                argparse.BooleanOptionalAction if field.default else "store_true"
            )
        elif typing.get_origin(kind) is tuple:
            options |= {"nargs": "+", "type": typing.get_args(kind)[0]}
        else:
            options["type"] = next((t for t in typing.get_args(kind) if t is not None), kind)
        options |= {k: field.metadata[k] for k in ("choices", "metavar") if k in field.metadata}
        if "type" in options and "choices" not in options and "metavar" not in options:
            options["metavar"] = options["type"].__name__.upper()
        if kind is not bool and field.default not in (None, ()):
            options["help"] += f" (default: {as_typed(field.default)})"
        found.add_argument(flag(field.name), **options)
    return found


def of_task(given: dict[str, Any]) -> dict[str, Any]:
    """`given`, with the defaults that differ for its task."""
    return _DEFAULTS.get(given.get("task"), {}) | given


def flag(name: str) -> str:
    """The command-line flag of the field `name`, e.g. `--batch-size`."""
    return "--" + name.replace("_", "-")


def as_typed(value: Any) -> str:
    """A field's value as it is written on the command line."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _saved(field: dataclasses.Field) -> bool:
    return field.metadata.get("saved", True)


def _checked_type(name: str, value: Any, kind: Any) -> Any:
    """`value` as the type `kind`: lists become tuples, and ints become floats. Raises
    `InputError` for a value of another type."""
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if isinstance(value, list | tuple):
            return tuple(_checked_type(name, v, item) for v in value)
    elif type(value) is int and kind in (float, float | None):
        return float(value)
    elif isinstance(value, os.PathLike):
        return _checked_type(name, os.fspath(value), kind)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    kind_name = getattr(kind, "__name__", str(kind))
    raise InputError(f"{flag(name)} must be {kind_name}", repr(value), "See --help.")


def _require(name: str, holds: bool, value: Any, rule: str) -> None:
    if not holds:
        raise InputError(f"{flag(name)} must be {rule}", value, "See --help.")


def _absolute(dataset: str) -> str:
    """`dataset`, made absolute if it is an existing path. The name of a known data set stays a
    name, even where such a path exists."""
    if not os.path.exists(dataset):
        return dataset
    from jgs.data import LOADERS  # a slow import, for paths only

    return dataset if dataset in LOADERS else os.path.abspath(dataset)
