"""The flags of `--task embed`, and which flags it does not take."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting
from jgs.train.learning_flags import OF_JUDGED

# The defaults of this task that differ from those of `Config`.
DEFAULTS = {"sampler": "walk", "epochs": 3, "batch_size": 32, "lr": 0.025}
BOUNDS = {
    "dim": (1, 1 << 14),
    "walk_length": (1, 1 << 16),
    "num_walks": (1, 1 << 16),
    "window": (1, 1 << 16),
    "negatives": (1, 1 << 10),
    "shared_negatives": (1, 1 << 16),
}
# Flags of `--task nodes` that this task does not take, beside those of its samplers.
OF_NODES = (
    *("model", "hidden", "heads", "reduce", "norm", "dropout", "input_dropout"),
    *("weight_decay", "eval_memory", "scratch", "partition", "mode", "cache"),
    *("cache_memory", "wire", "verify"),
    *OF_JUDGED,
)


@dataclass(frozen=True)
class EmbedFlags:
    """Settings of `--task embed` alone."""

    p: float = setting(1.0, "for node2vec: the larger, the less likely a step back is")
    q: float = setting(1.0, "for node2vec: the larger, the less likely a step away is")
    dim: int = setting(128, "for --task embed: width of the embeddings")
    walk_length: int = setting(80, "for --task embed: steps of a walk")
    num_walks: int = setting(10, "for --task embed: walks from each node in an epoch")
    window: int = setting(
        10, "for --task embed: the widest window; each center draws its own, from 1 to this"
    )
    negatives: int = setting(
        5, "for --task embed: how many negatives count for each pair of a center and a context"
    )
    shared_negatives: int = setting(
        16, "for --task embed: so many centers in a row share equally many drawn negatives"
    )


OF_EMBED = tuple(EmbedFlags.__dataclass_fields__)
