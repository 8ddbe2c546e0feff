"""Folders of `.npy` files with a manifest: written whole or not at all, and memory-mapped; with
checksums, and integers in as few bits as their range needs."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import math
import os
import reprlib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from jgs.arrays import aligned_empty
from jgs.errors import InputError, refusing
from jgs.files.npy import NOT_ZIP, Members, map_npy, plain_file
from jgs.files.replacing import replacing

MANIFEST = "manifest.json"
# True: always. False: never. "once": unless the same file was found whole before.
Verify = bool | Literal["once"]
_WHOLE = b"whole\n"
_AT_ONCE = 1 << 26  # bytes
_MOST_NOTES = 1 << 13  # of files that were whole


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file as hexadecimal digits; raises `OSError` and `InputError`."""
    with open(plain_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(path: Path, digest: str, verify: Verify) -> bool:
    """Whether the file has the SHA-256 `digest`, checked as `verify` says.

    With "once" a file counts as the same while its path, device, inode, size and time of
    modification are the same. If several processes ask at once, one reads it and the others
    wait. Files found whole are remembered in the user's cache folder, `jgs/whole` in
    `XDG_CACHE_HOME` or `~/.cache`; of many, those that were asked for last. The folder of a
    file may be read-only, or be copied to another machine. Raises `OSError` and `InputError`.
    """
    if verify != "once":
        return not verify or sha256(path) == digest
    with suppress(OSError), open(_note(path, digest), "rb+") as note:
        with suppress(OSError):  # without locks each process reads the file
            fcntl.flock(note, fcntl.LOCK_EX)
        if note.read() == _WHOLE:
            return True
        whole = sha256(path) == digest
        if whole:
            note.seek(0)
            note.write(_WHOLE)
        return whole
    return sha256(path) == digest  # nothing can be remembered


def _note(path: Path, digest: str) -> Path:
    state = path.stat()
    parts = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size)
    text = repr((*parts, state.st_mtime_ns, digest))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jgs" / "whole"
    cache.mkdir(parents=True, exist_ok=True)
    note = cache / hashlib.sha256(text.encode()).hexdigest()
    if not note.exists():
        _forget_oldest(cache)
    note.touch()
    return note


def _forget_oldest(cache: Path) -> None:
    """Removes half of the notes, the oldest ones, if there are `_MOST_NOTES`."""
    if len(notes := os.listdir(cache)) < _MOST_NOTES:
        return
    with suppress(OSError):  # another process may remove them too
        oldest = sorted((cache / name for name in notes), key=os.path.getmtime)
        for note in oldest[: _MOST_NOTES // 2]:
            note.unlink()


class Chunks(NamedTuple):
    """An array that is written piece by piece, and is never all in memory.

    Fields:
      shape, dtype: those of the whole array.
      pieces: arrays that make up the whole one, in order along the first axis.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Iterable[np.ndarray]


class ArrayFile:
    """The file `NAME.npy` in `folder`, for an array of known shape that is never all in memory.

    Pieces are appended in order, along the first axis, inside a `with`, which opens and closes
    the file. `write_arrays`, which writes the rest of the folder, takes it in place of the
    array. Raises `OSError`.
    """

    def __init__(self, folder: Path, name: str, shape: tuple[int, ...], dtype: Any):
        self.path, self.shape, self.dtype = folder / f"{name}.npy", shape, np.dtype(dtype)
        self._left = math.prod(shape) * self.dtype.itemsize
        self._hash = hashlib.sha256()

    def __enter__(self) -> ArrayFile:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {"descr": self.dtype.str, "fortran_order": False, "shape": tuple(self.shape)},
        )
        self._file = open(self.path, "wb")
        self._write(header.getbuffer())
        return self

    def append(self, piece: np.ndarray) -> None:
        """Appends the next rows of the array."""
        assert (piece.dtype, piece.shape[1:]) == (self.dtype, tuple(self.shape)[1:])
        self._left -= piece.nbytes
        rows = max(1, _AT_ONCE // max(1, math.prod(piece.shape[1:]) * piece.itemsize))
        for begin in range(0, piece.shape[0] if piece.ndim else 1, rows):  # few are copied
            some = np.ascontiguousarray(piece[begin : begin + rows] if piece.ndim else piece)
            self._write(some.reshape(-1).view(np.uint8).data)

    def _write(self, data: memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        self._file.close()
        assert error is not None or self._left == 0, "pieces are missing, or too many"

    def sha256(self) -> str:
        """The SHA-256 of the whole file, as hexadecimal digits."""
        return self._hash.hexdigest()


def save_npy(path: Path, array: np.ndarray) -> ArrayFile:
    """Writes one `.npy` file. Of a full disk, `OSError` has the system's words and number;
    those of `np.save` have neither."""
    with ArrayFile(path.parent, path.stem, array.shape, array.dtype) as file:
        file.append(array)
    return file


def save_arrays(
    folder: str | os.PathLike, kind: str, arrays: Mapping[str, np.ndarray], pack: bool = False
) -> None:
    """Write `arrays` to `folder` with a manifest of shapes, dtypes and checksums. With `pack`
    integers have as many bits as their range needs, and `open_arrays` reads them into memory.

    The folder is written beside `folder`, and renamed at the end. It replaces an empty folder,
    or one of the same `kind` with nothing else in it. Raises `InputError` for any other folder,
    and when it cannot be written.
    """
    with replacing(folder, kind, lambda old: array_files(old, kind)) as fresh:
        write_arrays(fresh, kind, arrays, pack)


def array_files(folder: Path, kind: str) -> set[str]:
    """The names of the files that `write_arrays` wrote there; raises `InputError`."""
    return {MANIFEST, *(entry["file"] for entry in _read_entries(folder, kind).values())}


def write_arrays(
    folder: Path,
    kind: str,
    arrays: Mapping[str, np.ndarray | Chunks | ArrayFile],
    pack: bool = False,
) -> None:
    """Write `arrays` and their manifest into an existing folder, where the files of
    `ArrayFile`s are already; raises `OSError`."""
    entries: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        file, packing = folder / f"{name}.npy", None
        if isinstance(array, ArrayFile):
            written = array
            assert array.path == file
        elif isinstance(array, Chunks):
            with ArrayFile(folder, name, array.shape, array.dtype) as written:
                for piece in array.pieces:
                    written.append(piece)
        else:
            packing = packing_of(array) if pack else None
            written = save_npy(file, array if packing is None else packed(array, packing))
        entries[name] = {
            "file": file.name,
            "shape": list(array.shape),
            "dtype": np.dtype(array.dtype).str,
            "sha256": written.sha256(),
        }
        if packing is not None:
            entries[name]["packed"] = packing._asdict()
    # Versions of jgs that know no packed arrays refuse those of version 2.
    version = 2 if any("packed" in entry for entry in entries.values()) else 1
    manifest = {"kind": kind, "version": version, "arrays": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


def open_arrays(
    folder: str | os.PathLike, kind: str, verify: Verify = True, again: str | None = None
) -> dict[str, np.ndarray]:
    """The arrays that `save_arrays` wrote, memory-mapped read-only, or in memory if they are
    packed; raises `InputError`, where they are damaged with the remedy `again`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            "a saved graph must be a folder", f"{folder}, which is none", "Check the path."
        )
    entries = _read_entries(folder, kind, again)
    return {name: _open_one(folder, entry, verify, again) for name, entry in entries.items()}


def _read_entries(folder: Path, kind: str, again: str | None = None) -> dict[str, dict]:
    again = again or f"Write it again, after moving {folder} away."
    return read_manifest(folder, kind, _check_entries, again, newest=2)["arrays"]


def read_manifest(
    folder: Path, kind: str, check: Callable[[dict], None], again: str, newest: int = 1
) -> dict[str, Any]:
    """The manifest in `folder`, which must be of this `kind`, of a version up to the `newest`.

    `check` gets it, and raises anything if it is not as it was written. Raises `InputError`,
    with the remedy `again` if the manifest is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(plain_file(path).read_text("utf-8"))
        found = manifest["kind"], manifest["version"]
        if found in [(kind, version) for version in range(1, newest + 1)]:
            check(manifest)
            return manifest
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder} must hold {MANIFEST}", "no such file", again) from None
    except InputError:
        raise
    except (ValueError, OSError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} must be whole", repr(error), again) from None
    raise InputError(
        f"{folder} must be a {kind} folder of a version that this jgs reads",
        " version ".join(map(reprlib.repr, found)),
        "Open it with the class, and the version of jgs, that wrote it.",
    )


def _check_entries(manifest: dict) -> None:
    for name, entry in manifest["arrays"].items():
        sound = (
            # A name with a path could lead out of the folder.
            entry["file"] == f"{name}.npy" == Path(entry["file"]).name
            and isinstance(entry["shape"], list)
            and all(type(n) is int for n in entry["shape"])
            and isinstance(entry["dtype"], str)
            and isinstance(entry["sha256"], str)
            and all(type(entry.get("packed", {}).get(n, 0)) is int for n in Packing._fields)
        )
        if not sound:
            raise ValueError(f"an entry that no array has, {name!r}")


def _open_one(folder: Path, entry: dict, verify: Verify, again: str | None) -> np.ndarray:
    again = again or f"It is damaged or incomplete: write it again, after moving {folder} away."
    path = folder / entry["file"]
    rule = f"{folder} must hold every array it lists, {path.name} too"
    with refusing((ValueError, OSError), rule, again):
        array = map_npy(path)
    packing = entry.get("packed")
    as_stated = list(array.shape) == entry["shape"] and array.dtype.str == entry["dtype"]
    if packing is None and not as_stated:
        raise InputError(
            f"{path} must be {entry['dtype']}{entry['shape']} as the manifest says",
            f"{array.dtype.str}{list(array.shape)}",
            again,
        )
    if not is_whole(path, entry["sha256"], verify):
        raise InputError(f"{path} must have the manifest's checksum", "another", again)
    if packing is None:
        return array
    with refusing((ValueError, TypeError), rule, again):
        return unpacked(array, Packing(**packing), entry["shape"], entry["dtype"])


@contextmanager
def open_npz(path: str | os.PathLike) -> Iterator[Mapping[str, np.ndarray]]:
    """Opens a NumPy archive, read without pickles. An error in it becomes an `InputError`.

    Only read the archive inside the `with`: an error of other code there would be blamed on it.
    """
    if not plain_file(path).exists():
        raise InputError("the archive must exist", path, "Check the path.")
    rule = f"{path} must be a whole NumPy .npz archive without pickles"
    with refusing(NOT_ZIP, rule, "Fetch or write it again."), zipfile.ZipFile(path) as archive:
        yield Members(archive)


_GROUP = 64  # values of `bits` bits, which fill `bits` words
_CHUNK = 4096  # groups at a time, so that their words stay in cache


class Packing(NamedTuple):
    """How integers of a packed array are kept: `(value - least) / step`, of `bits` bits each.

    The number of value `i` has its lowest bit at bit `i * bits` of the file's 64-bit words,
    lowest bit first.
    """

    least: int
    step: int
    bits: int


def packing_of(array: np.ndarray) -> Packing | None:
    """The packing of an array's values; None where it would take no less room, or where they
    are no integers."""
    if array.dtype.kind not in "iub" or array.size == 0:
        return None
    flat = array.reshape(-1)
    least, most = int(flat.min()), int(flat.max())
    step = _step(flat, least)
    # One bit at least: so no small file claims an array that fills the memory.
    bits = max(((most - least) // step).bit_length(), 1)
    return Packing(least, step, bits) if bits < 8 * array.dtype.itemsize else None


def _step(flat: np.ndarray, least: int) -> int:
    """The greatest number of which all values are multiples, counted from the least one."""
    step = 0
    for start in range(0, flat.size, _CHUNK * _GROUP):
        part = _above(flat[start : start + _CHUNK * _GROUP], least)
        step = int(np.gcd(np.gcd.reduce(part), np.uint64(step)))
        if step == 1:
            break
    return max(step, 1)


def _above(flat: np.ndarray, least: int) -> np.ndarray:
    """uint64: how far each value is above the least one."""
    return flat.astype(np.uint64) - np.uint64(least % 2**64)


def packed(array: np.ndarray, packing: Packing) -> np.ndarray:
    """uint64: the words of an array that has this packing."""
    least, step, bits = packing
    flat = array.reshape(-1)
    words = np.zeros((-(-flat.size // _GROUP), bits), np.uint64)
    for first in range(0, len(words), _CHUNK):
        part = flat[first * _GROUP : (first + _CHUNK) * _GROUP]
        values = np.zeros((-(-part.size // _GROUP), _GROUP), np.uint64)
        values.reshape(-1)[: part.size] = _above(part, least) // np.uint64(step)
        own = words[first : first + _CHUNK]
        for i in range(_GROUP):
            word, shift = divmod(i * bits, 64)
            own[:, word] |= values[:, i] << np.uint64(shift)
            if shift + bits > 64:
                own[:, word + 1] |= values[:, i] >> np.uint64(64 - shift)
    return words.reshape(-1)


def unpacked(words: np.ndarray, packing: Packing, shape: Any, dtype: Any) -> np.ndarray:
    """The array of `packed`, in memory, where XLA can use it without a copy. Raises
    `ValueError` for facts that fit no array."""
    (least, step, bits), dtype, size = packing, np.dtype(dtype), math.prod(shape)
    groups = -(-size // _GROUP)
    sound = 1 <= bits < 8 * dtype.itemsize and step >= 1 and dtype.kind in "iub"
    if not sound or min(shape) < 1 or words.shape != (groups * bits,):
        raise ValueError(f"{words.size:,} words of {bits} bits a value, for {shape}")
    out = aligned_empty(size, dtype)
    words, mask = words.reshape(groups, bits), np.uint64(2**bits - 1)
    for first in range(0, groups, _CHUNK):
        own = words[first : first + _CHUNK]
        values = np.zeros((len(own), _GROUP), np.uint64)
        for i in range(_GROUP):
            word, shift = divmod(i * bits, 64)
            values[:, i] = own[:, word] >> np.uint64(shift)
            if shift + bits > 64:
                values[:, i] |= own[:, word + 1] << np.uint64(64 - shift)
        values = (values & mask) * np.uint64(step) + np.uint64(least % 2**64)
        part = out[first * _GROUP : (first + _CHUNK) * _GROUP]
        part[:] = values.reshape(-1)[: part.size].astype(out.dtype)
    return out.reshape(shape)
