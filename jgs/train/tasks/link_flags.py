"""The flags of `--task links`, and which flags of other tasks it takes."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting
from jgs.train.learning_flags import OF_JUDGED

# The defaults of this task that differ from those of `Config`.
DEFAULTS = {
    "sampler": "seal",
    "fanouts": (100, 20),
    "batch_size": 50,
    "epochs": 20,
    "lr": 1e-3,
    "hidden": 32,
}
# The flags of `--task nodes` that this task takes too. Its only metric is the AUC.
SHARED = (
    *("fanouts", "layers", "hidden", "dropout", "weight_decay"),
    *(name for name in OF_JUDGED if name != "metric"),
)


@dataclass(frozen=True)
class LinkFlags:
    """Settings of `--task links` alone."""

    test_share: float = setting(
        0.1, "for --task links: the share of the links that is held out for the test"
    )
    val_share: float = setting(
        0.05, "for --task links: the share of the links for validation; they stay in the graph"
    )
    pool_share: float = setting(
        0.6,
        "for --task links: rows to pool are the number of nodes that this share of the "
        "subgraphs does not exceed",
    )


OF_LINKS = tuple(LinkFlags.__dataclass_fields__)
