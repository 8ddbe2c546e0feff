"""Unpickling of untrusted files that hold NumPy arrays, SciPy CSR matrices and plain values.

No function or class of NumPy or SciPy is ever called with arguments from the pickle. Every
global that the pickle may name, an exact (module, name) pair, becomes a small stand-in of ours
that only records plain data; all other globals are refused. Arrays are then made of checked
bytes.

Dicts of arrays that `torch.save` wrote are read likewise, without torch. Of two containers each
has a pickle of the dict, in which a tensor names the storage that holds its numbers:
  a zip archive (since torch 1.6): `NAME/data.pkl`, and `NAME/data/KEY` for each storage;
  a sequence of pickles (before): a magic number, the version 1001, a dict about the machine,
    the dict itself, and the list of the storages' keys. Then follows each storage, in the order
    of the list: its length as int64, and its numbers.

The size of the file bounds time and memory: nothing large can be named twice, and only numbers
and text are hashed.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy

from jgs.data.array_files import csr
from jgs.errors import refusing
from jgs.files.npy import plain_file

_PLAIN_DTYPE = re.compile(r"[biuf][1248]")  # booleans and numbers: never objects


def load_pickle(path: Path) -> Any:
    """The value in a pickle: a CSR matrix, an array, or lists and dicts of plain values.

    A `defaultdict(list)` becomes a dict. Protocols 0 to 4 and pickles of Python 2 are read.
    Anything else raises `InputError`, before any of its code could run.
    """
    with refusing(OSError, f"{path} must be readable", "Check the path."):
        data = plain_file(path).read_bytes()
    with refusing(
        Exception,  # a crafted or damaged pickle can raise anything at all
        f"{path} must be a pickle of NumPy arrays, SciPy CSR matrices or lists, and whole",
        "Fetch the file again from where it is published; jgs runs no code from pickles.",
    ):
        value = Unpickler(io.BytesIO(data)).load()
        if isinstance(value, Array):
            array = value.value()
            if array.shape[0:1] > (len(data),):  # rows without columns take no bytes
                raise pickle.UnpicklingError(f"{array.shape[0]:,} rows in {len(data):,} bytes")
            return array
        return value.matrix(path) if isinstance(value, _Csr) else value


class _Memo(dict):
    """The values read so far, by number. Only small values are given out a second time.

    A large value that a thousand places share would be processed, or copied, a thousand times.
    NumPy, SciPy and Planetoid share only names, dtypes and short texts.
    """

    def __getitem__(self, index: int) -> Any:
        value = super().__getitem__(index)
        if not _is_small(value):
            raise pickle.UnpicklingError(f"a {type(value).__name__} that is used twice")
        return value


class Unpickler(pickle._Unpickler):
    """Reads one pickle from `file`, which is left behind its end. Arrays become `Array`."""

    # The one in Python, because the one in C takes 64 GB of memory if a memo index asks for it.

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: io.BytesIO):
        # latin1, because Python 2 wrote the bytes of arrays as strings.
        super().__init__(file, encoding="latin1")
        self.memo = _Memo()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the global {module}.{name} is not allowed") from None

    def dup(self) -> None:
        self.memo[-1] = self.stack[-1]
        self.append(self.memo[-1])

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def set_items(self) -> None:
        self._fill(self.pop_mark())

    def new_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._fill(items)

    def _fill(self, items: list) -> None:
        target: Any = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            # The hash of nested tuples can take for ever, or overflow the stack.
            if type(target) is not dict or not (type(key) is str or _is_small_int(key)):
                raise pickle.UnpicklingError("a dict whose keys are not numbers or text")
            target[key] = value

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Array | Dtype | _Csr):
            raise pickle.UnpicklingError("attributes of what has none")
        self.stack[-1].__setstate__(state)

    def refuse(self) -> None:
        raise pickle.UnpicklingError("sets, byte arrays or extensions")

    _ours: ClassVar[dict[bytes, Callable]] = {
        pickle.DUP: dup,
        pickle.SETITEM: set_item,
        pickle.SETITEMS: set_items,
        pickle.DICT: new_dict,
        pickle.BUILD: build,
        pickle.BYTEARRAY8: refuse,  # it would allocate the memory before it reads
        **dict.fromkeys((pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET), refuse),
        **dict.fromkeys((pickle.EXT1, pickle.EXT2, pickle.EXT4), refuse),
    }
    dispatch: ClassVar[Any] = pickle._Unpickler.dispatch | {ord(k): f for k, f in _ours.items()}


def _is_small_int(value: Any) -> bool:
    return type(value) is int and value.bit_length() < 64


def _is_small(value: Any) -> bool:
    if type(value) in (str, bytes):
        return len(value) <= 64
    if type(value) is tuple:
        return len(value) <= 4 and all(map(_is_small_int, value))
    plain = value is None or type(value) in (bool, float) or _is_small_int(value)
    return plain or isinstance(value, Dtype) or callable(value)  # a stand-in of a global


class Dtype:
    def __init__(self, code: Any, align: Any = 0, copy: Any = 0):
        if type(code) is not str or not _PLAIN_DTYPE.fullmatch(code):
            raise pickle.UnpicklingError(f"the dtype {code!r} is not a plain number")
        self.kind = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        # (version, byte order, subdtype, names, fields, ...); the last three are None if plain
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a dtype that is not plain")
        self.kind = self.kind.newbyteorder(state[1])


class Array:
    state: tuple

    def __setstate__(self, state: tuple) -> None:
        self.state = tuple(state)

    def value(self) -> np.ndarray:
        _, shape, dtype, fortran, raw = self.state
        if not isinstance(dtype, Dtype) or not all(type(n) is int and n >= 0 for n in shape):
            raise pickle.UnpicklingError("an array without a plain shape and dtype")
        raw = raw.encode("latin1") if type(raw) is str else raw
        kind = dtype.kind
        if type(raw) is not bytes or len(raw) != math.prod(shape) * kind.itemsize:
            raise pickle.UnpicklingError("an array whose bytes do not fit its shape")
        flat = np.frombuffer(raw, kind).astype(kind.newbyteorder("="))
        # A Fortran array is the transpose of the C array of the reversed shape.
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


class _Csr:
    state: dict

    def __setstate__(self, state: dict) -> None:
        self.state = dict(state)

    def matrix(self, path: Path) -> scipy.sparse.csr_matrix:
        data, indices, indptr = (self.state[key] for key in ("data", "indices", "indptr"))
        if not all(isinstance(part, Array) for part in (data, indices, indptr)):
            raise pickle.UnpicklingError("a CSR matrix without its arrays")
        shape = self.state["_shape"] if "_shape" in self.state else self.state["shape"]
        what = f"the features of {path}"
        return csr(what, data.value(), indices.value(), indptr.value(), shape)


class _Object:
    pass


class _List:
    pass


def _reconstruct(kind: Any, shape: Any, code: Any) -> Array:
    if kind is not Array:
        raise pickle.UnpicklingError("an array of another class than numpy.ndarray")
    return Array()


def _reconstruct_object(kind: Any, base: Any, state: Any) -> _Csr:
    if kind is not _Csr or base is not _Object or state is not None:
        raise pickle.UnpicklingError("an object of another class than csr_matrix")
    return _Csr()


def _default_dict(*factory: Any) -> dict:
    if factory not in ((), (_List,)):
        raise pickle.UnpicklingError("a defaultdict of something else than lists")
    return {}


def _encode(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("bytes that are not a latin1 string")
    return text.encode("latin1")


# The stand-in for each allowed global.
_GLOBALS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("copy_reg", "_reconstructor"): _reconstruct_object,
    ("copyreg", "_reconstructor"): _reconstruct_object,
    ("collections", "defaultdict"): _default_dict,
    ("_codecs", "encode"): _encode,  # by which Python 3 writes bytes for Python 2
}
for _module in ("__builtin__", "builtins"):
    _GLOBALS[_module, "object"] = _Object
    _GLOBALS[_module, "list"] = _List
    _GLOBALS[_module, "bytes"] = lambda: b""  # which Python 3 writes like this


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
