"""The flags of `--task embed`, and which flags are of the other task."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting
from jgs.train.learning_flags import OF_JUDGED

# What the defaults are for this task where they are others.
DEFAULTS = {"sampler": "walk", "epochs": 3, "batch_size": 32, "lr": 0.025}
BOUNDS = {
    "dim": (1, 1 << 14),
    "walk_length": (1, 1 << 16),
    "num_walks": (1, 1 << 16),
    "window": (1, 1 << 16),
    "negatives": (1, 1 << 10),
    "shared_negatives": (1, 1 << 16),
}
# Beside those of samplers of mini-batches.
OF_NODES = (
    *("model", "hidden", "heads", "reduce", "norm", "dropout", "input_dropout"),
    *("weight_decay", "eval_memory", "scratch", "partition", "mode", "cache"),
    *("cache_memory", "wire", "verify"),
    *OF_JUDGED,
)


@dataclass(frozen=True)
class EmbedFlags:
    """Settings of `--task embed` alone."""

    p: float = setting(1.0, "of node2vec: how unlikely a step back is")
    q: float = setting(1.0, "of node2vec: how unlikely a step away is")
    dim: int = setting(128, "of --task embed: width of the embeddings")
    walk_length: int = setting(80, "of --task embed: steps of a walk")
    num_walks: int = setting(10, "of --task embed: walks from each node in an epoch")
    window: int = setting(
        10, "of --task embed: the widest window; each center draws its own, from 1 on"
    )
    negatives: int = setting(
        5, "of --task embed: how many negatives a pair of a center and a context weighs"
    )
    shared_negatives: int = setting(
        16, "of --task embed: how many are drawn for as many centers in a row, which share them"
    )


OF_EMBED = tuple(EmbedFlags.__dataclass_fields__)
