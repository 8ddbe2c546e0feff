"""`curve.png`: a run's training loss and validation metric, if it has one, by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(
    path: Path, rows: list[dict[str, Any]], title: str, best_epoch: int | None = None
) -> None:
    """Writes the figure of `curves` to `path`. Raises `ImportError` without matplotlib."""
    curves(rows, title, best_epoch).savefig(path, dpi=120)


def curves(rows: list[dict[str, Any]], title: str, best_epoch: int | None) -> Any:
    """A figure of the curves in `rows`, the lines of `metrics.jsonl`. `best_epoch`, if given,
    is marked."""
    from matplotlib.figure import Figure  # an optional dependency, and a slow import

    epochs = [row["epoch"] for row in rows]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    metric = rows[-1].get("metric", "accuracy") if rows else "accuracy"
    names = {"train_loss": "training loss", "val_accuracy": f"validation {metric}"}
    shown = [key for key in names if all(key in row for row in rows)]
    for axes, key in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        values = [row[key] for row in rows]
        axes.plot(epochs, values, marker="o", markersize=3)
        if best_epoch in epochs:
            axes.axvline(best_epoch, color="gray", linestyle=":")
            best = values[epochs.index(best_epoch)]
            label = f"best epoch, {best_epoch}: {best:.4f}"
            axes.plot([best_epoch], [best], "o", color="tab:orange", label=label)
            axes.legend()
        axes.set(xlabel="epoch", ylabel=names[key])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure
