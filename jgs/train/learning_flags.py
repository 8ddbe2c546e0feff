"""The flags of how a model learns over the epochs, and how it is judged and shown."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting

# Those that a task without labels or a validation split cannot have.
OF_JUDGED = ("metric", "patience", "lr_schedule", "lr_end", "warmup_steps")
BOUNDS = {"patience": (0, 2**31 - 1)}


@dataclass(frozen=True)
class LearningFlags:
    """Settings of the learning rate, of early stopping, of the metric and of the log."""

    lr_schedule: str = setting(
        "constant",
        "Optax's schedule of Adam's learning rate, over the steps of all --epochs, so that "
        "--resume with more of them goes on as that longer run: constant; cosine or "
        "exponential, from --lr to --lr-end of it; or warmup_cosine, from 0 to --lr first",
        choices=("constant", "cosine", "exponential", "warmup_cosine"),
    )
    lr_end: float = setting(
        0.01, "of a schedule that falls: the last learning rate, as a fraction of --lr"
    )
    warmup_steps: int | None = setting(
        None, "of warmup_cosine: in how many steps the rate rises (default: a tenth of all)"
    )
    patience: int = setting(
        0,
        "after how many epochs in which the validation metric has not risen training ends; "
        "0: it never does; may change on --resume",
        metavar="EPOCHS",
    )
    metric: str | None = setting(
        None,
        "what validation and test are judged by, which chooses the best epoch: accuracy, auc "
        "(the mean over classes of each against the others; a class that no node, or every "
        "node, has does not count), f1_micro or f1_macro (over classes that are there or are "
        "predicted) (default: accuracy, of multi-label data f1_micro)",
        choices=("accuracy", "auc", "f1_macro", "f1_micro"),
    )
    log: str = setting(
        "none",
        "who else is told what metrics.jsonl says: tensorboard (in the run folder) or wandb, "
        "where that is installed",
        choices=("none", "tensorboard", "wandb"), identity=False,
    )  # fmt: skip
