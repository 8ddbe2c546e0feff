"""Writes what `torch.save` would, without torch: a dict of arrays, some of them as tensors."""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict

import numpy as np

_NAMES = {"i8": "LongStorage", "i4": "IntStorage", "f4": "FloatStorage", "f8": "DoubleStorage"}
MACHINE = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}


class Named:
    """A global of a module, which pickle writes by its name."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """Pickled as a call of this function."""

    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


class Tensor:
    """A tensor to write: an array, and perhaps another stride or storage."""

    def __init__(self, array, key=None, **changes):
        self.array, self.key, self.changes = array, key, changes


class _Pickler(pickle._Pickler):
    def __init__(self, file, legacy):
        super().__init__(file, 2)
        self.legacy, self.storages = legacy, {}

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Named):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
            return None
        if isinstance(value, Tensor):
            return self._save_tensor(value)
        return super().save(value, save_persistent_id)

    def _save_tensor(self, tensor):
        array, key = tensor.array, tensor.key or str(len(self.storages))
        flat = array.ravel(order="K")
        self.storages[key] = flat
        pid = ("storage", Named("torch", _NAMES[array.dtype.str[1:]]), key, "cpu", flat.size)
        about = {
            "pid": pid + (None,) * self.legacy,
            "offset": 0,
            "size": array.shape,
            "stride": tuple(n // array.itemsize for n in array.strides),
        } | tensor.changes
        self.save(Named("torch._utils", "_rebuild_tensor_v2"))
        self.write(pickle.MARK)
        self.save(about["pid"])
        self.write(pickle.BINPERSID)
        for part in (about["offset"], about["size"], about["stride"], False, OrderedDict()):
            self.save(part)
        self.write(pickle.TUPLE + pickle.REDUCE)


def torch_zip(value, order=b"little", compression=zipfile.ZIP_STORED):
    """The bytes of a zip container."""
    file, found = io.BytesIO(), io.BytesIO()
    pickler = _Pickler(file, False)
    pickler.dump(value)
    with zipfile.ZipFile(found, "w", compression) as archive:
        archive.writestr("train/data.pkl", file.getvalue())
        archive.writestr("train/byteorder", order)
        for key, flat in pickler.storages.items():
            archive.writestr(f"train/data/{key}", flat.tobytes())
        archive.writestr("train/version", b"3\n")
    return found.getvalue()


def torch_pickles(value, magic=0x1950A86A20F9469CFC6C, machine=MACHINE):
    """The bytes of a sequence of pickles."""
    file = io.BytesIO()
    for each in (magic, 1001, machine):
        pickle.dump(each, file, 2)
    pickler = _Pickler(file, True)
    pickler.dump(value)
    pickle.dump(list(pickler.storages), file, 2)
    for flat in pickler.storages.values():
        file.write(struct.pack("<q", flat.size) + flat.tobytes())
    return file.getvalue()


def links(*pairs):
    """int64 `[n, 2]`."""
    return np.array(pairs, np.int64).reshape(-1, 2)
