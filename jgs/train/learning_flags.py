"""The flags of the learning rate, of early stopping, of the metric and of the log."""

from __future__ import annotations

from dataclasses import dataclass

from jgs.train.flags import setting

# The flags that a task without labels or without a validation split does not take.
OF_JUDGED = ("metric", "patience", "lr_schedule", "lr_end", "warmup_steps")
BOUNDS = {"patience": (0, 2**31 - 1)}


@dataclass(frozen=True)
class LearningFlags:
    """Settings of the learning rate, of early stopping, of the metric and of the log."""

    lr_schedule: str = setting(
        "constant",
        "Optax's schedule of Adam's learning rate over the steps of all --epochs: constant; "
        "cosine or exponential, from --lr down to --lr-end of it; or warmup_cosine, which "
        "first rises from 0 to --lr. After --resume with more --epochs it is the longer run's",
        choices=("constant", "cosine", "exponential", "warmup_cosine"),
    )
    lr_end: float = setting(
        0.01, "for a schedule that falls: the last learning rate, as a fraction of --lr"
    )
    warmup_steps: int | None = setting(
        None, "for warmup_cosine: the steps in which the rate rises (default: a tenth of all)"
    )
    patience: int = setting(
        0,
        "training ends after so many epochs without a better validation metric; 0: it goes on "
        "to the last epoch; may change on --resume",
        metavar="EPOCHS",
    )
    metric: str | None = setting(
        None,
        "the metric of validation and test; its validation value chooses the best epoch: "
        "accuracy; auc (mean over classes of each against the others, without classes that no "
        "node or every node has); f1_micro; f1_macro (over classes that are labels or "
        "predictions of some node) (default: accuracy, for multi-label data f1_micro)",
        choices=("accuracy", "auc", "f1_macro", "f1_micro"),
    )
    log: str = setting(
        "none",
        "where the rows of metrics.jsonl go too: tensorboard (files in the run folder) or "
        "wandb; the package must be installed",
        choices=("none", "tensorboard", "wandb"), identity=False,
    )  # fmt: skip
