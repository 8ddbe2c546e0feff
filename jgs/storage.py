"""Folders of `.npy` files with a manifest: written whole or not at all, memory-mapped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jgs.errors import InputError

MANIFEST = "manifest.json"


def sha256(path: str | os.PathLike) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_arrays(folder: str | os.PathLike, kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays` to `folder` with a manifest of shapes, dtypes and checksums.

    Written to a sibling folder first and renamed at the end. Raises `InputError` when
    `folder` exists and is not one of these (so that nothing of the user's is replaced).
    """
    folder = Path(folder)
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise InputError(
            f"{folder} must not exist, or be a folder that jgs wrote",
            "something else",
            "Choose another folder.",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        entries = {}
        for name, array in arrays.items():
            file = fresh / f"{name}.npy"
            np.save(file, array, allow_pickle=False)
            entries[name] = {
                "file": file.name,
                "shape": list(array.shape),
                "dtype": array.dtype.str,
                "sha256": sha256(file),
            }
        manifest = {"kind": kind, "version": 1, "arrays": entries}
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        if folder.exists():
            old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            folder.rename(old)
            fresh.rename(folder)
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def open_arrays(
    folder: str | os.PathLike, kind: str, verify: bool = True
) -> dict[str, np.ndarray]:
    """The arrays that `save_arrays` wrote, memory-mapped read-only; raises `InputError`."""
    folder = Path(folder)
    again = "Write the folder again."
    if not folder.is_dir():
        raise InputError(
            "a saved graph must be a folder", f"{folder}, which is none", "Check the path."
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        entries = manifest["arrays"]
        if manifest["kind"] != kind or manifest["version"] != 1:
            raise InputError(
                f"{folder} must be a {kind} folder of version 1",
                f"{manifest['kind']} version {manifest['version']}",
                "Open it with the class, and the version of jgs, that wrote it.",
            )
    except FileNotFoundError:
        raise InputError(f"{folder} must hold {MANIFEST}", "no such file", again) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / MANIFEST} must be whole", repr(error), again) from None
    return {name: _open_one(folder, entry, verify) for name, entry in entries.items()}


def _open_one(folder: Path, entry: dict, verify: bool) -> np.ndarray:
    again = "The file is damaged or incomplete: write the folder again."
    try:
        path = folder / Path(entry["file"]).name  # never outside the folder
        # A memory map of nothing is an error in every operating system.
        mapped = 0 not in entry["shape"]
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise InputError(f"{folder} must hold every array it lists", error, again) from None
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise InputError(
            f"{path} must be {entry['dtype']}{entry['shape']} as the manifest says",
            f"{array.dtype.str}{list(array.shape)}",
            again,
        )
    if verify and sha256(path) != entry["sha256"]:
        raise InputError(f"{path} must have the manifest's checksum", "another", again)
    return array


@contextmanager
def open_npz(path: str | os.PathLike) -> Iterator[Mapping[str, np.ndarray]]:
    """A NumPy archive, read without pickles; what is wrong with it becomes an `InputError`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            yield archive
    except FileNotFoundError:
        raise InputError("the archive must exist", path, "Check the path.") from None
    except InputError:
        raise
    except (
        *(ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error),
        NotImplementedError,  # a zip feature that Python lacks: a damaged header
    ) as error:
        raise InputError(
            f"{path} must be a whole NumPy .npz archive without pickles",
            error,
            "Fetch or write it again.",
        ) from None
