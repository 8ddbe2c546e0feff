"""Folders of `.npy` files with a manifest: written whole or not at all, and memory-mapped."""

from __future__ import annotations

import json
import os
import reprlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jgs.errors import InputError, refusing
from jgs.files.array_file import ArrayFile
from jgs.files.npy import NOT_ZIP, Members, map_npy, plain_file
from jgs.files.replacing import replacing
from jgs.files.verified import Verify, is_whole, sha256

MANIFEST = "manifest.json"


class Chunks(NamedTuple):
    """An array that is written piece by piece, and is never all in memory.

    Fields:
      shape, dtype: those of the whole array.
      pieces: arrays that make up the whole one, in order along the first axis.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Iterable[np.ndarray]


def save_arrays(folder: str | os.PathLike, kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays` to `folder` with a manifest of shapes, dtypes and checksums.

    The folder is written beside `folder`, and renamed at the end. It replaces an empty folder,
    or one of the same `kind` with nothing else in it. Raises `InputError` for any other folder,
    and when it cannot be written.
    """
    with replacing(folder, kind, lambda old: array_files(old, kind)) as fresh:
        write_arrays(fresh, kind, arrays)


def array_files(folder: Path, kind: str) -> set[str]:
    """The names of the files that `write_arrays` wrote there; raises `InputError`."""
    return {MANIFEST, *(entry["file"] for entry in _read_manifest(folder, kind).values())}


def write_arrays(
    folder: Path, kind: str, arrays: Mapping[str, np.ndarray | Chunks | ArrayFile]
) -> None:
    """Write `arrays` and their manifest into an existing folder, where the files of
    `ArrayFile`s are already; raises `OSError`."""
    entries = {}
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        if isinstance(array, ArrayFile):
            assert array.path == file
        elif isinstance(array, Chunks):
            array = _write_chunks(file, array)
        else:
            np.save(file, array, allow_pickle=False)
        entries[name] = {
            "file": file.name,
            "shape": list(array.shape),
            "dtype": np.dtype(array.dtype).str,
            "sha256": array.sha256() if isinstance(array, ArrayFile) else sha256(file),
        }
    manifest = {"kind": kind, "version": 1, "arrays": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


def _write_chunks(path: Path, array: Chunks) -> ArrayFile:
    with ArrayFile(path.parent, path.stem, array.shape, array.dtype) as file:
        for piece in array.pieces:
            file.append(piece)
    return file


def open_arrays(
    folder: str | os.PathLike, kind: str, verify: Verify = True
) -> dict[str, np.ndarray]:
    """The arrays that `save_arrays` wrote, memory-mapped read-only; raises `InputError`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            "a saved graph must be a folder", f"{folder}, which is none", "Check the path."
        )
    entries = _read_manifest(folder, kind)
    return {name: _open_one(folder, entry, verify) for name, entry in entries.items()}


def _read_manifest(folder: Path, kind: str) -> dict[str, dict]:
    """The entry of each array, with its fields and their types checked; raises `InputError`."""
    path = folder / MANIFEST
    again = f"Write it again, after moving {folder} away."
    try:
        manifest = json.loads(plain_file(path).read_text("utf-8"))
        found = manifest["kind"], manifest["version"]
        entries = manifest["arrays"]
        if found == (kind, 1):
            for name, entry in entries.items():
                _check_entry(name, entry)
            return entries
    except FileNotFoundError:
        raise InputError(f"{folder} must hold {MANIFEST}", "no such file", again) from None
    except InputError:
        raise
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{path} must be whole", error, again) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} must be whole", repr(error), again) from None
    raise InputError(
        f"{folder} must be a {kind} folder of version 1",
        " version ".join(map(reprlib.repr, found)),
        "Open it with the class, and the version of jgs, that wrote it.",
    )


def _check_entry(name: str, entry: dict) -> None:
    sound = (
        # A name with a path could lead out of the folder.
        entry["file"] == f"{name}.npy" == Path(entry["file"]).name
        and isinstance(entry["shape"], list)
        and all(type(n) is int for n in entry["shape"])
        and isinstance(entry["dtype"], str)
        and isinstance(entry["sha256"], str)
    )
    if not sound:
        raise ValueError(f"an entry that no array has, {name!r}")


def _open_one(folder: Path, entry: dict, verify: Verify) -> np.ndarray:
    again = f"It is damaged or incomplete: write it again, after moving {folder} away."
    path = folder / entry["file"]
    rule = f"{folder} must hold every array it lists, {path.name} too"
    with refusing((ValueError, OSError), rule, again):
        array = map_npy(path)
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise InputError(
            f"{path} must be {entry['dtype']}{entry['shape']} as the manifest says",
            f"{array.dtype.str}{list(array.shape)}",
            again,
        )
    if not is_whole(path, entry["sha256"], verify):
        raise InputError(f"{path} must have the manifest's checksum", "another", again)
    return array


@contextmanager
def open_npz(path: str | os.PathLike) -> Iterator[Mapping[str, np.ndarray]]:
    """Opens a NumPy archive, read without pickles. An error in it becomes an `InputError`.

    Only read the archive inside the `with`: an error of other code there would be blamed on it.
    """
    if not plain_file(path).exists():
        raise InputError("the archive must exist", path, "Check the path.")
    rule = f"{path} must be a whole NumPy .npz archive without pickles"
    with (
        refusing(NOT_ZIP, rule, "Fetch or write it again."),
        zipfile.ZipFile(path) as archive,
    ):
        yield Members(archive)
