"""Unpickling of untrusted files that hold NumPy arrays, SciPy CSR matrices and plain values.

No function or class of NumPy or SciPy is ever called with arguments from the pickle. Every
global that the pickle may name, an exact (module, name) pair, becomes a small stand-in of ours
that only records plain data; all other globals are refused. Arrays are then made of checked
bytes.

The size of the file bounds time and memory: nothing large can be named twice, and only numbers
and text are hashed.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy

from jgs.data.formats.npz import csr
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
