"""`curve.png`: a run's training loss and validation accuracy, if it has one, by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(path: Path, rows: list[dict[str, Any]], title: str) -> None:
    """Draws the curves of `metrics.jsonl`'s rows; raises `ImportError` without matplotlib."""
    from matplotlib.figure import Figure  # an optional dependency, and a slow import

    epochs = [row["epoch"] for row in rows]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    names = {"train_loss": "training loss", "val_accuracy": "validation accuracy"}
    shown = [key for key in names if all(key in row for row in rows)]
    for axes, key in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        axes.plot(epochs, [row[key] for row in rows], marker="o", markersize=3)
        axes.set(xlabel="epoch", ylabel=names[key])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
