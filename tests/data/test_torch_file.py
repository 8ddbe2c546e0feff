"""Files of `torch.save` are read without torch: exactly, or refused, and no code runs."""

import os
import pickle
import resource
import zipfile

import numpy as np
import pytest
from torch_files import MACHINE, Named, Tensor, torch_pickles, torch_zip

from jgs import InputError
from jgs.data.torch_file import load_torch

CONTAINERS = pytest.mark.parametrize("container", [torch_zip, torch_pickles])
PAIRS = np.arange(12).reshape(6, 2)


def read(tmp_path, data):
    (tmp_path / "train.pt").write_bytes(data)
    return load_torch(tmp_path / "train.pt")


@CONTAINERS
def test_tensors_and_arrays_are_read_as_they_were(tmp_path, container):
    given = {
        "edge": Tensor(PAIRS),
        "turned": Tensor(PAIRS.T),
        "one_row": Tensor(PAIRS[:1], stride=(99, 1)),
        "weight": Tensor(np.array([0.5, np.nan, -1], np.float32)),
        "empty": Tensor(np.empty((0, 2), np.int64)),
        "year": np.array([2019, 2020], np.int32),
        "rows": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    found = read(tmp_path, container(given))
    assert list(found) == list(given)
    for name, value in given.items():
        expected = value.array if isinstance(value, Tensor) else value
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype


@CONTAINERS
def test_two_tensors_may_share_a_storage(tmp_path, container):
    half = Tensor(PAIRS, "0", offset=4, size=(4, 2))
    found = read(tmp_path, container({"all": Tensor(PAIRS, "0"), "rest": half}))
    assert found["all"].tolist() == PAIRS.tolist()
    assert found["rest"].tolist() == PAIRS[2:].tolist()


class Call:
    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


@CONTAINERS
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"edge": Tensor(PAIRS, size=(7, 2))}, "do not fit its storage"),
        ({"edge": Tensor(PAIRS, offset=1)}, "do not fit its storage"),
        ({"edge": Tensor(PAIRS, offset=-1)}, "without a storage and a shape"),
        ({"edge": Tensor(PAIRS, size=(-1, 2))}, "without a plain shape"),
        ({"edge": Tensor(PAIRS, size=(10**9, 10**9), stride=(0, 0))}, "do not fit"),
        ({"edge": Tensor(PAIRS, size=(3, 2), stride=(4, 1))}, "with gaps"),
        ({"edge": Tensor(PAIRS, size=(2, 2), stride=(0, 1))}, "with gaps"),
        ({"edge": Tensor(PAIRS, size=(2,), stride=(1, 1))}, ""),
        ({"edge": Tensor(PAIRS, pid=("module", 1, "0", "cpu", 12))}, "than a storage"),
        ({"edge": Tensor(PAIRS, pid=("storage", 1, "0", "cpu", 12))}, "unknown kind"),
        ({"edge": [1, 2]}, "edge, a list and no array"),
        ({"edge": {"a": Tensor(PAIRS)}}, "no array"),
        ({1: Tensor(PAIRS)}, "no dict of arrays by name"),
        ([Tensor(PAIRS)], ""),
        ({"edge": Named("torch", "BFloat16Storage")}, "torch.BFloat16Storage is not allowed"),
        ({"edge": Named("torch", "load")}, "the global torch.load is not allowed"),
        ({"edge": Call(os.system, "touch {mark}")}, "system is not allowed"),
    ],
)
def test_anything_else_is_refused_in_a_line(tmp_path, container, value, says):
    mark = tmp_path / "mark"
    if "edge" in value and isinstance(value["edge"], Call):
        value = {"edge": Call(os.system, f"touch {mark}")}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        read(tmp_path, container(value))
    message = str(caught.value)
    assert says in message
    assert "must be a whole dict of tensors or arrays that torch.save wrote; got" in message
    assert "as train.npz beside it" in message
    assert "\n" not in message
    assert not mark.exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000


def test_containers_of_other_kinds_are_refused(tmp_path):
    given = {"edge": Tensor(PAIRS)}
    for data, says in (
        (torch_zip(given, order=b"big"), "highest byte first"),
        (torch_zip(given, compression=zipfile.ZIP_DEFLATED), "compressed members"),
        (torch_pickles(given, magic=1), "no file of torch.save"),
        (torch_pickles(given, machine=MACHINE | {"little_endian": False}), "another kind of"),
        (pickle.dumps({"edge": PAIRS}, 2), ""),
        (b"", ""),
    ):
        with pytest.raises(InputError) as caught:
            read(tmp_path, data)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="readable"):
        load_torch(tmp_path / "none.pt")


@CONTAINERS
def test_cut_and_damaged_files_are_input_errors(tmp_path, container, may_refuse):
    whole = container({"edge": Tensor(PAIRS), "year": np.arange(6)})
    for cut in range(0, len(whole) - 1, 5):
        with pytest.raises(InputError):
            read(tmp_path, whole[:cut])
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0x15
        with may_refuse():
            read(tmp_path, bytes(damaged))  # a changed number is still a valid number
