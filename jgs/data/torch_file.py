"""Dicts of arrays that `torch.save` wrote, read without torch and without running any code.

Two containers are read. Both have a pickle of the dict, in which a tensor names the storage
that holds its numbers:
  a zip archive (since torch 1.6): `NAME/data.pkl`, and `NAME/data/KEY` for each storage;
  a sequence of pickles (before): a magic number, the version 1001, a dict about the machine,
    the dict itself, and the list of the storages' keys. Then follows each storage, in the order
    of the list: its length as int64, and its numbers.

The pickles are those of `jgs.data.unpickle`, with a few more stand-ins for torch's globals.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.unpickle import Array, Dtype, Unpickler
from jgs.errors import refusing
from jgs.files.npy import plain_file

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "b1",
}


def load_torch(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a dict of tensors and of NumPy arrays, by name.

    Tensors must be dense and on a CPU. The numbers of a tensor are not copied, and may be
    read-only. Anything else raises `InputError`, before any of its code could run.
    """
    with refusing(OSError, f"{path} must be readable", "Check the path."):
        data = plain_file(path).read_bytes()
    with refusing(
        Exception,  # a crafted or damaged file can raise anything at all
        f"{path} must be a whole dict of tensors or arrays that torch.save wrote",
        "Fetch it again, or write the arrays with numpy.savez, under the same names, as "
        f"{path.with_suffix('.npz').name} beside it.",
    ):
        zipped = data.startswith(b"PK\x03\x04")
        found, storages = (_read_zip if zipped else _read_pickles)(data)
        if type(found) is not dict or not all(type(name) is str for name in found):
            raise pickle.UnpicklingError("no dict of arrays by name")
        return {name: _value(name, value, storages) for name, value in found.items()}


class _Storage:
    """The numbers that tensors share: `size` of a dtype, in the storage `key` of the file."""

    def __init__(self, kind: Any, key: Any, size: Any):
        if not isinstance(kind, Dtype) or type(key) is not str or type(size) is not int:
            raise pickle.UnpicklingError("a storage of an unknown kind")
        self.kind, self.key, self.size = kind.kind, key, size


class _Tensor:
    """A tensor: numbers of a storage from `offset` on, of a shape."""

    def __init__(self, storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any):
        whole = type(offset) is int and offset >= 0 and type(shape) is type(stride) is tuple
        if not isinstance(storage, _Storage) or not whole:
            raise pickle.UnpicklingError("a tensor without a storage and a shape")
        if not all(type(n) is int and n >= 0 for n in (*shape, *stride)):
            raise pickle.UnpicklingError("a tensor without a plain shape")
        self.storage, self.offset, self.shape, self.stride = storage, offset, shape, stride

    def value(self, storages: dict[str, bytes]) -> np.ndarray:
        size, kind = math.prod(self.shape), self.storage.kind
        raw, room = storages[self.storage.key], self.storage.size
        if len(raw) != room * kind.itemsize or self.offset + size > room:
            raise pickle.UnpicklingError("a tensor whose numbers do not fit its storage")
        flat = np.frombuffer(raw, kind, size, self.offset * kind.itemsize)
        for array in (flat.reshape(self.shape), flat.reshape(self.shape[::-1]).T):
            steps = [n // kind.itemsize for n in array.strides]
            axes = zip(self.shape, steps, self.stride, strict=True)
            # The stride of an axis of length 1 has no meaning.
            if size == 0 or all(n == 1 or step == own for n, step, own in axes):
                return array
        raise pickle.UnpicklingError("a tensor that is a view of another one, with gaps")


class _TorchUnpickler(Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return Dtype(_STORAGES[name])
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if (module, name) == ("collections", "OrderedDict"):
            return _no_hooks
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> _Storage:
        # ("storage", kind, key, location, size), and before torch 1.6 the metadata of a view
        if type(pid) is not tuple or len(pid) not in (5, 6) or pid[0] != "storage":
            raise pickle.UnpicklingError("a reference to something else than a storage")
        if pid[5:] not in ((), (None,)):
            raise pickle.UnpicklingError("a storage that is a view of another one")
        return _Storage(pid[1], pid[2], pid[4])


def _no_hooks(*items: Any) -> dict:
    if items:
        raise pickle.UnpicklingError("an OrderedDict that is not empty")
    return {}


def _value(name: str, value: Any, storages: dict[str, bytes]) -> np.ndarray:
    if isinstance(value, _Tensor):
        return value.value(storages)
    if isinstance(value, Array):
        return value.value()
    raise pickle.UnpicklingError(f"{name}, a {type(value).__name__} and no array")


def _read_zip(data: bytes) -> tuple[Any, dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {info.filename.partition("/")[2]: info for info in file.infolist()}
        stored = all(info.compress_type == zipfile.ZIP_STORED for info in members.values())
        if not stored or sum(info.file_size for info in members.values()) > len(data):
            raise zipfile.BadZipFile("compressed members, which torch does not write")
        if "byteorder" in members and file.read(members["byteorder"]) != b"little":
            raise pickle.UnpicklingError("numbers with the highest byte first")
        found = _TorchUnpickler(io.BytesIO(file.read(members["data.pkl"]))).load()
        prefix = "data/"
        return found, {
            name.removeprefix(prefix): file.read(info)
            for name, info in members.items()
            if name.startswith(prefix)
        }


def _read_pickles(data: bytes) -> tuple[Any, dict[str, bytes]]:
    file = io.BytesIO(data)
    # The first number has more than 64 bits, which no other pickle needs.
    magic, version, machine, found, keys = (_TorchUnpickler(file).load() for _ in range(5))
    if (magic, version) != (_MAGIC, _VERSION) or machine["little_endian"] is not True:
        raise pickle.UnpicklingError("no file of torch.save, or of another kind of machine")
    kinds = {}
    for value in found.values():
        if isinstance(value, _Tensor):
            kinds[value.storage.key] = value.storage.kind
    storages = {}
    for key in keys:
        if key not in kinds:
            raise pickle.UnpicklingError("a storage that belongs to no array of the dict")
        (size,) = np.frombuffer(file.read(8), "<i8").tolist()
        storages[key] = file.read(max(0, size) * kinds[key].itemsize)
    return found, storages
