"""What the folder of a run holds: its configuration, best parameters and record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.train import checkpoint, folder
from jgs.train.config import Config


def read_run(run_dir: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The configuration's text, the best parameters and the record of the last checkpoint."""
    try:
        text = (run_dir / folder.CONFIG).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{run_dir} must be the folder of a run, with a {folder.CONFIG}",
            error,
            "Give the --run-dir of python -m jgs.train.",
        ) from None
    if (config := Config.from_json(text)).task == "embed":
        raise InputError(
            f"the run in {run_dir} must have trained a model",
            f"--task {config.task}",
            "Its result is embeddings.npy.",
        )
    found = checkpoint.read(run_dir / folder.CHECKPOINTS)
    if found is None or found[1].get("best_epoch", 0) < 1:
        raise InputError(
            f"the run in {run_dir} must have finished an epoch",
            "no whole checkpoint of one",
            "Let it train further, with --resume.",
        )
    arrays, record = found
    if "shape" not in record or "best_params" not in arrays:
        raise InputError(
            f"the run in {run_dir} must be of this version of jgs",
            "a checkpoint of another",
            "Open it with the version that wrote it, or train again.",
        )
    return text, arrays["best_params"], record


def fitting(run_dir: Any, template: Any, found: dict[str, Any]) -> Any:
    """The arrays of a checkpoint, nested dicts by name, in the place of the template's; the
    template's own where `found` is empty (on other ranks)."""
    if not found:
        return template

    def pick(path: Any, like: jax.Array) -> np.ndarray:
        node: Any = found
        for key in path:
            name = str(next(getattr(key, k) for k in ("key", "name", "idx") if hasattr(key, k)))
            node = node.get(name) if isinstance(node, dict) else None
        if getattr(node, "shape", None) != like.shape:
            raise InputError(
                f"the checkpoint in {run_dir} must fit the model of its {folder.CONFIG}",
                f"{jax.tree_util.keystr(path)} of shape {getattr(node, 'shape', None)}",
                "Was the file changed? Train again.",
            )
        return np.asarray(node, like.dtype)

    return jax.tree_util.tree_map_with_path(pick, template)
