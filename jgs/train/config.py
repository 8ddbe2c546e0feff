"""`Config`: everything that decides a training run, and at once its command line."""

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
from jgs.train import embed_flags, learning_flags, link_flags, subgraph_flags
from jgs.train.embed_flags import EmbedFlags
from jgs.train.flags import setting as _flag
from jgs.train.learning_flags import LearningFlags
from jgs.train.link_flags import LinkFlags
from jgs.train.rank_flags import RankFlags
from jgs.train.subgraph_flags import SubgraphFlags

_INT32 = 2**31 - 1
_TOGETHER = ("batch_size", "ranks")
_GROWING = ("epochs", "patience")  # they may be others on --resume
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
    """One run's settings; the field `batch_size` is the flag `--batch-size`, and so on.

    The defaults train the embedded data set in well under a minute on two cores. Making one
    checks every field and raises `InputError`. Fields whose metadata say `identity=False`
    (where the run lies, how it is shown) decide nothing about its result: a run may be
    resumed with other values of them.
    """

    task: str = _flag(
        "nodes",
        "what is learned: the classes of nodes, by a graph network; embeddings of nodes from "
        "walks, by skip-gram with negative sampling (sampler walk, node2vec, metapath); or "
        "which nodes a link joins, by SEAL (sampler seal)",
        choices=("nodes", "embed", "links"),
    )
    dataset: str = _flag(
        "synthetic",
        "synthetic, cora, citeseer, facebook, acm, ogbn-arxiv, ogbn-products, ogbn-papers100M, "
        "or the path of an edge list, an archive, or a folder: a saved data set, or tables "
        "edges and nodes, .parquet or .csv",
    )
    root: str = _flag("data", "folder of the data sets' files; missing public ones go there")
    data_options: tuple[str, ...] = _flag(
        (), "the data set's own options, e.g. num_nodes=10000 seed=1", metavar="NAME=VALUE"
    )
    partition: str | None = _flag(
        None,
        "folder of python -m jgs.partition: train on its parts, with one rank or many "
        "(the data set is then theirs)",
        identity=False,
    )
    sampler: str = _flag(
        "neighbors",
        "what a batch is: sampled neighbours hop by hop, each node by itself or (labor) with "
        "numbers that targets share; nodes drawn jointly a layer (fastgcn, ladies); the graph "
        "induced by its seeds and drawn nodes, by a frontier of walkers (frontier), by drawn "
        "nodes, edges or walks (saint), or by the seeds' neighbourhoods (shadow), for models "
        "of any depth; neighbours, corrected by every node's last messages (vrgcn) or drawn by "
        "learned weights (gcnbs, thanos, pass); nodes drawn jointly by learned weights "
        "(asgcn); the nodes that walks visit most (pinsage), or those of each node type "
        "(hetgnn); of --task embed: walks, each step to any neighbour "
        "(walk), by where it leads from the step before (node2vec), or along a relation "
        "(metapath); of --task links: the graph around each pair of nodes (seal)",
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
        "of all samplers of neighbours: how many to draw per node, seeds' hop first; -1 draws "
        "all (neighbors, labor, shadow and seal alone); one a layer (but of shadow and seal)",
    )
    walks: tuple[int, ...] = _flag(
        (200, 10), "of pinsage and hetgnn: how many walks a node makes, and of how many steps"
    )
    restart: float = _flag(
        0.5, "of pinsage and hetgnn: probability that a walk ends before a later step"
    )
    relations: tuple[str, ...] = _flag(
        (),
        "of pinsage and metapath: relations that steps go along in turn, e.g. rev_buys buys",
    )
    sizes: tuple[int, ...] = _flag(
        (512, 512), "of fastgcn, ladies and asgcn: nodes to draw per layer, seeds' hop first"
    )
    fanout_schedule: tuple[str, ...] = _flag(
        (),
        "other fanouts (or sizes) for later epochs: 10:15,15 after 10 epochs; plateau:15,15 "
        "once the training loss no longer falls",
        metavar="WHEN:FANOUTS",
    )
    plateau_fraction: float = _flag(
        0.01,
        "by which fraction of the least loss so far an epoch's must be lower to have fallen",
    )
    plateau_epochs: int = _flag(3, "for how many epochs the loss may fail to fall")
    importance: int = _flag(
        0, "of labor: rounds of importance sampling, for fewer distinct nodes; -1: all"
    )
    layer_dependency: bool = _flag(
        False, "of labor: a node has the same random number at every hop"
    )
    period: int = _flag(
        1, "of labor: for how many steps batches share most of their nodes; 1: not at all"
    )
    state_age: int = _flag(
        0,
        "of vrgcn, gcnbs, thanos, pass and asgcn: how many steps old the sampler's state is "
        "that a batch is drawn with; so many batches are drawn ahead at most",
    )
    model: str = _flag(
        "sage",
        "the layers: GraphSAGE's, GCN's, GAT's, of attention, in its first or second version, "
        "or GIN's",
        choices=("sage", "gcn", "gat", "gatv2", "gin"),
    )
    hidden: int = _flag(64, "width of the hidden layers, all heads together")
    heads: int = _flag(8, "of gat and gatv2: the heads of every hidden layer")
    reduce: str = _flag(
        "mean", "of sage: how a node combines its neighbours", choices=("mean", "sum", "max")
    )
    concat: bool = _flag(
        False,
        "of gcn: a node's own row and its neighbours' mean side by side, as gcn-ipdps19 has it",
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
        "draw neighbours, a walk's too, in proportion to their edge weights; evaluation "
        "leaves out weight 0",
    )
    batch_size: int = _flag(
        1000,
        "seeds (or walks) a batch; of each rank. Of frontier and saint, which draw the seeds, "
        "it only says how many batches an epoch has",
    )
    ranks: int = _flag(1, "", flag=False)
    epochs: int = _flag(
        5,
        "passes over the training nodes (of --task embed: --num-walks passes over all nodes); "
        "may grow on --resume",
    )
    lr: float = _flag(
        1e-2,
        "Adam's learning rate; of --task embed the first of SGD, which falls to 0 over all "
        "--epochs, so that it rises where --resume has more of them",
    )
    weight_decay: float = _flag(0.0, "L2 penalty, added to the gradient before Adam")
    seed: int = _flag(0, "of every random draw: parameters, shuffling, sampling, dropout")
    eval_memory: int = _flag(
        256, "MiB of working memory for evaluation: sizes its chunks", metavar="MIB"
    )
    scratch: str | None = _flag(
        None,
        "folder, on the machine of each rank, for what evaluation cannot keep in that memory "
        "(default: --run-dir on rank 0, on others the system's for such files, TMPDIR)",
        identity=False, metavar="FOLDER",
    )  # fmt: skip
    run_dir: str | None = _flag(
        None, "folder of the run (default: runs/DATASET-TIME)", identity=False, saved=False
    )
    resume: bool = _flag(
        False, "continue the run in --run-dir; flags not given are as they were there",
        identity=False, saved=False,
    )  # fmt: skip
    checkpoint_every: int = _flag(
        0, "also checkpoint every so many steps; 0: at each epoch's end only", identity=False
    )
    keep: int = _flag(3, "checkpoints to keep", identity=False)
    prefetch: int = _flag(
        2, "batches sampled ahead, in the background; 0: none", identity=False
    )
    keep_memory: bool = _flag(
        True, "let the allocator keep freed memory: faster steps", identity=False
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
        # Absolute, to resume from anywhere.
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
        """`data_options` as keyword arguments: ints, floats and booleans, or else text."""
        return option_values(self.data_options)

    def to_json(self) -> str:
        """The saved form: every field but where the run lies and whether it is resumed."""
        saved = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if _saved(f)}
        return json.dumps(saved, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, **own: Any) -> Config:
        """Reads `to_json`'s form; fields it lacks take their defaults, and `own` replaces any.
        Raises `InputError`."""
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
        """The fields in which two runs differ, but for `epochs` and `patience`: name to the two
        values."""
        names = [
            f.name
            for f in dataclasses.fields(self)
            if f.metadata.get("identity", True) and f.name not in (*_GROWING, *_TOGETHER)
        ]
        pairs = {n: (getattr(self, n), getattr(other, n)) for n in names}
        # Other ranks may share the same batches.
        seeds = [c.batch_size * c.ranks for c in (self, other)]
        if seeds[0] != seeds[1]:
            pairs |= {n: (getattr(self, n), getattr(other, n)) for n in _TOGETHER}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}


def parse(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The flags given on a command line, by field name; those not given are absent.

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
    """Of the command's flags, one for each field."""
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
    """`given`, with the defaults that its task has for itself."""
    return _DEFAULTS.get(given.get("task"), {}) | given


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def as_typed(value: Any) -> str:
    """A field's value as on the command line."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _saved(field: dataclasses.Field) -> bool:
    return field.metadata.get("saved", True)


def _checked_type(name: str, value: Any, kind: Any) -> Any:
    """`value` as the field's type: lists become tuples, ints floats; else `InputError`."""
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
    """An existing path made absolute; a name is kept, also where there is such a path."""
    if not os.path.exists(dataset):
        return dataset
    from jgs.data import LOADERS  # a slow import, for paths only

    return dataset if dataset in LOADERS else os.path.abspath(dataset)
