"""The flags of `--task links`, and which flags are of other tasks."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting
from jgs.train.learning_flags import OF_JUDGED

# What the defaults are for this task where they are others.
DEFAULTS = {
    "sampler": "seal",
    "fanouts": (100, 20),
    "batch_size": 50,
    "epochs": 20,
    "lr": 1e-3,
    "hidden": 32,
}
# Of the flags of `--task nodes` those that this task has too; its metric is the AUC alone.
SHARED = (
    *("fanouts", "layers", "hidden", "dropout", "weight_decay"),
    *(name for name in OF_JUDGED if name != "metric"),
)


@dataclass(frozen=True)
class LinkFlags:
    """Settings of `--task links` alone."""

    test_share: float = setting(
        0.1, "of --task links: the share of the links that is held out as the test"
    )
    val_share: float = setting(
        0.05, "of --task links: the share of the links that validates; they stay in the graph"
    )
    pool_share: float = setting(
        0.6,
        "of --task links: as many rows are pooled as this share of the subgraphs do not exceed",
    )


OF_LINKS = tuple(LinkFlags.__dataclass_fields__)
