"""Unpickling of untrusted files that hold NumPy arrays, SciPy CSR matrices and plain values.

No function or class of NumPy or SciPy is ever called with what the pickle says. Every global
the pickle may name, an exact (module, name) pair, becomes a small stand-in of ours that only
records plain data; anything else is refused. Arrays are then made from checked bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from jgs.data.npz import csr
from jgs.errors import InputError

_PLAIN_DTYPE = re.compile(r"[biuf][1248]")  # booleans and numbers: never objects


def load_pickle(path: Path) -> Any:
    """The value in a pickle: a CSR matrix, an array, or lists and dicts of plain values.

    A `defaultdict(list)` becomes a dict. Protocols 0 to 4 and pickles of Python 2 are read.
    Raises `InputError` for anything else, before it could run.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} must be readable", error, "Check the path.") from None
    try:
        value = _Unpickler(data).load()
        if isinstance(value, _Array):
            return value.value()
        return value.matrix(path) if isinstance(value, _Csr) else value
    except InputError:
        raise
    except Exception as error:  # a crafted or damaged pickle can raise anything at all
        message = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} must be a pickle of NumPy arrays, SciPy CSR matrices or lists, and whole",
            message,
            "Fetch the file again from where it is published; jgs runs no code from pickles.",
        ) from None


class _Unpickler(pickle._Unpickler):
    # The one written in Python: C's takes 64 GB of memory for a memo index that says so.

    def __init__(self, data: bytes):
        # latin1: Python 2 wrote the bytes of arrays as strings.
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._globals = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._globals[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the global {module}.{name} is not allowed") from None


class _Dtype:
    def __init__(self, code: str, *_: Any):
        self.kind = np.dtype(_checked_code(code))

    def __setstate__(self, state: tuple) -> None:
        # (version, byte order, subdtype, names, fields, ...): of a plain dtype, all None
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a dtype that is not plain")
        self.kind = self.kind.newbyteorder(state[1])


class _Array:
    state: tuple

    def __setstate__(self, state: tuple) -> None:
        self.state = tuple(state)

    def value(self) -> np.ndarray:
        _, shape, dtype, fortran, raw = self.state
        if not isinstance(dtype, _Dtype) or not all(type(n) is int and n >= 0 for n in shape):
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
        if not all(isinstance(part, _Array) for part in (data, indices, indptr)):
            raise pickle.UnpicklingError("a CSR matrix without its arrays")
        shape = self.state["_shape"] if "_shape" in self.state else self.state["shape"]
        return csr(str(path), data.value(), indices.value(), indptr.value(), shape)


def _stand_ins() -> dict[tuple[str, str], Any]:
    """What each allowed global becomes; made anew for every file.

    A pickle can set attributes on whatever it can name, so that what it names must be its
    own: subclasses and functions that die with the load.
    """
    array = type("Array", (_Array,), {})
    dtype = type("Dtype", (_Dtype,), {})
    matrix = type("Csr", (_Csr,), {})
    object_type = type("Object", (), {})
    list_type = type("List", (), {})

    def reconstruct(kind: Any, shape: Any, code: Any) -> Any:
        if kind is not array:
            raise pickle.UnpicklingError("an array of another class than numpy.ndarray")
        return array()

    def reconstruct_object(kind: Any, base: Any, state: Any) -> Any:
        if kind is not matrix or base is not object_type or state is not None:
            raise pickle.UnpicklingError("an object of another class than csr_matrix")
        return matrix()

    def default_dict(*factory: Any) -> dict:
        if factory not in ((), (list_type,)):
            raise pickle.UnpicklingError("a defaultdict of something else than lists")
        return {}

    def encode(text: Any, encoding: Any) -> bytes:
        if type(text) is not str or encoding != "latin1":
            raise pickle.UnpicklingError("bytes that are not a latin1 string")
        return text.encode("latin1")

    def no_bytes() -> bytes:
        return b""

    table: dict[tuple[str, str], Any] = {("numpy", "ndarray"): array, ("numpy", "dtype"): dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        table[module, "_reconstruct"] = reconstruct
    for module in ("scipy.sparse.csr", "scipy.sparse._csr"):
        table[module, "csr_matrix"] = matrix
    for module in ("copy_reg", "copyreg"):
        table[module, "_reconstructor"] = reconstruct_object
    for module in ("__builtin__", "builtins"):
        table[module, "object"] = object_type
        table[module, "list"] = list_type
        table[module, "bytes"] = no_bytes  # how Python 3 writes b"" for Python 2
    table["collections", "defaultdict"] = default_dict
    table["_codecs", "encode"] = encode  # how Python 3 writes other bytes for Python 2
    return table


def _checked_code(code: Any) -> str:
    if type(code) is not str or not _PLAIN_DTYPE.fullmatch(code):
        raise pickle.UnpicklingError(f"the dtype {code!r} is not a plain number")
    return code
