"""Checkpoints of a run: written whole or not at all, checked when read, the last few kept.

Orbax writes the arrays. A checkpoint is a folder `EPOCH-STEP`. It appears by one rename, after
its `manifest.json` lists the SHA-256 of every file in it. So a process that is killed at any
moment leaves the earlier checkpoints as they were, and a file that is damaged later is noticed.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.files.storage import sha256
from jgs.files.writing import reserve, writing

ARRAYS, RECORD, MANIFEST = "arrays", "record.json", "manifest.json"
_NAME = re.compile(r"\d{6,}-\d{9,}")
log = logging.getLogger(__name__)


def save(folder: Path, epoch: int, step: int, arrays: Any, record: dict, keep: int) -> Path:
    """Writes a checkpoint of `arrays`, a pytree, and of the `record`, JSON, then removes all
    but the newest `keep`. The completed `epoch`s, and the `step`s since the start, name it: by
    these numbers checkpoints are sorted by age. Returns its path. Raises `InputError` where the
    disk refuses; the earlier checkpoints are then as before."""
    host, text = jax.tree.map(np.asarray, arrays), json.dumps(record, allow_nan=False)
    # Orbax reports a full disk as ValueError or RuntimeError, among others.
    with writing(folder, (OSError, ValueError, RuntimeError)):
        path = _write(folder, f"{epoch:06d}-{step:09d}", host, text)
        for old in checkpoints(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    return path


def restore(folder: Path, template: Any) -> tuple[Any, dict] | None:
    """As `read`, for a run that goes on: the arrays are a pytree like `template`, and damaged
    checkpoints are renamed to `NAME.damaged`. Raises `InputError` for arrays that do not
    fit."""
    if (found := read(folder, aside=True)) is None:
        return None
    remedy = "Did the data set change? Start a new run."
    rule = f"checkpoint in {folder} must fit the model and the data set"
    if len(jax.tree.leaves(found[0])) != len(jax.tree.leaves(template)):
        raise InputError(rule, "other arrays", remedy)
    return fitted(rule, remedy, template, found[0]), found[1]


def fitted(rule: str, remedy: str, template: Any, found: dict[str, Any]) -> Any:
    """`template` with the arrays `found` in a checkpoint in place of its own. Raises
    `InputError`, with the rule and the remedy, for those of another shape."""

    def pick(path: Any, like: Any) -> np.ndarray:
        node: Any = found
        for key in path:
            name = next(getattr(key, k) for k in ("key", "name", "idx") if hasattr(key, k))
            if isinstance(node, list):
                node = node[name] if name < len(node) else None
            else:
                node = node.get(str(name)) if isinstance(node, dict) else None
        if (shape := getattr(node, "shape", None)) != like.shape:
            seen = f"{jax.tree_util.keystr(path)} of shape {shape}"
            raise InputError(rule, seen, remedy)
        return np.asarray(node, like.dtype)

    return jax.tree_util.tree_map_with_path(pick, template)


def read(folder: Path, aside: bool = False) -> tuple[dict[str, Any], dict] | None:
    """The arrays and the record of the newest whole checkpoint, or None where there is none.
    The arrays are nested dicts whose keys are text, and lists. Nothing in the folder is
    changed, unless damaged checkpoints are put `aside`.

    A run may write and remove checkpoints meanwhile. It removes one only when a newer one is
    whole, so what fails is read again from there. Damaged checkpoints are named in a warning.
    Raises `InputError` where Orbax cannot read a checkpoint that is whole.
    """
    left = checkpoints(folder)
    newest = left[-1:]
    while left:
        path, problem = left.pop(), None
        if (damage := _damage(path)) is None:
            try:
                with _checkpointer() as checkpointer:
                    arrays = checkpointer.restore(path.resolve() / ARRAYS)
                return arrays, json.loads((path / RECORD).read_text())
            except (OSError, ValueError, KeyError, TypeError) as error:
                problem = error
        if (now := checkpoints(folder))[-1:] > newest:
            left, newest = now, now[-1:]
        elif problem is not None and path.exists():
            raise InputError(
                f"checkpoint {path} must be one of this version of Orbax",
                str(problem).splitlines()[0],
                "Install the version that wrote it.",
            )
        elif path.exists():
            log.warning(
                "checkpoint %s is damaged (%s): falling back to the one before", path, damage
            )
            if aside:
                shutil.rmtree(path.with_name(f"{path.name}.damaged"), ignore_errors=True)
                path.rename(path.with_name(f"{path.name}.damaged"))
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first."""
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise InputError(
            "the checkpoints must lie in a folder", f"{folder}, a file", "Remove the file."
        )
    found = (p for p in folder.iterdir() if _NAME.fullmatch(p.name))
    return sorted(found, key=lambda path: [*map(int, path.name.split("-"))])


def _write(folder: Path, name: str, host: Any, record: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    fresh = folder.resolve() / f".new-{name}"
    try:
        fresh.mkdir()
        _ask_for_room(fresh, host)
        with _checkpointer() as checkpointer:
            checkpointer.save(fresh / ARRAYS, args=_orbax().args.StandardSave(host))
        (fresh / RECORD).write_text(record)
        (fresh / MANIFEST).write_text(json.dumps(_checksums(fresh), indent=1))
        shutil.rmtree(folder / name, ignore_errors=True)
        fresh.rename(folder / name)
    except BaseException:  # an unfinished checkpoint takes room on a full disk
        _remove_unfinished(folder)
        raise
    return folder / name


def _orbax() -> Any:
    import orbax.checkpoint  # a slow import, which ranks that keep no checkpoints do without

    return orbax.checkpoint


def _checkpointer() -> Any:
    """A checkpointer that waits for no other process of jax.distributed."""
    ocp, me = _orbax(), jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _ask_for_room(folder: Path, arrays: Any) -> None:
    """Raises OSError where the disk lacks room, before Orbax's threads log tracebacks."""
    # 1 MiB for Orbax's own files.
    size = sum(a.nbytes for a in jax.tree.leaves(arrays)) + (1 << 20)
    probe = folder / "room"
    with open(probe, "wb") as file:
        reserve(file.fileno(), size, folder)
    probe.unlink()


def _remove_unfinished(folder: Path) -> None:
    for leftover in folder.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _damage(path: Path) -> str | None:
    try:
        listed = json.loads((path / MANIFEST).read_text())
        found = _checksums(path)
    except (OSError, ValueError, RecursionError) as error:
        return f"{MANIFEST}: {error}"
    if not isinstance(listed, dict) or RECORD not in listed:
        return f"{MANIFEST}: not a list of the checkpoint's files"
    bad = sorted(n for n in {*listed, *found} if listed.get(n) != found.get(n))
    return f"{', '.join(bad[:3])} missing or changed" if bad else None


def _checksums(path: Path) -> dict[str, str]:
    files = (p for p in sorted(path.rglob("*")) if p.is_file() and p.name != MANIFEST)
    return {p.relative_to(path).as_posix(): sha256(p) for p in files}
