"""Pickles, also those in files of `torch.save`: read exactly or refused, and no code runs."""

import os
import pickle
import resource
import struct
import subprocess
import zipfile
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import scipy.sparse
from folders import cases, refused
from torch_files import MACHINE, Call, Named, Tensor, torch_pickles, torch_zip

from jgs.data.unpickle import load_pickle, load_torch


def read(folder, data, load=load_pickle):
    (folder / "p").write_bytes(data)
    return load(folder / "p")


def python2_csr(matrix, protocol):
    """The bytes that Python 2 and an old SciPy wrote: old module names, strings for arrays."""

    def array(a):
        raw = a.tobytes().decode("latin1")
        shape = f"I{a.size}\n"
        text = (
            "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
            f"(I1\n({shape}tcnumpy\ndtype\n(S'{a.dtype.str[1:]}'\nI0\nI1\ntR"
            "(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
        )
        if protocol == 0:
            return text.encode() + b"S" + repr(a.tobytes())[1:].encode() + b"\ntb"
        return text.encode() + b"T" + struct.pack("<I", len(raw)) + raw.encode("latin1") + b"tb"

    state = b"(dS'_shape'\n(I%d\nI%d\ntsS'maxprint'\nI50\ns" % matrix.shape
    for name in ("indices", "indptr", "data"):
        state += b"S'%s'\n" % name.encode() + array(getattr(matrix, name)) + b"s"
    if protocol == 0:
        head = b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\n"
        head += b"c__builtin__\nobject\nNtR"
    else:
        head = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81"
    return head + state + b"b."


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_what_the_files_hold_round_trips(tmp_path, protocol):
    matrix = scipy.sparse.random(5, 7, 0.5, "csr", np.float32, 0)
    got = read(tmp_path, pickle.dumps(matrix, protocol))
    assert isinstance(got, scipy.sparse.csr_matrix)
    np.testing.assert_array_equal(got.toarray(), matrix.toarray())
    for array in (
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">i8"),
        np.zeros((0, 4), np.float32),
        np.array([True, False]),
        np.arange(200, 256).astype(np.uint8),
    ):
        got = read(tmp_path, pickle.dumps(array, protocol))
        np.testing.assert_array_equal(got, array)
        assert got.dtype == array.dtype.newbyteorder("=")
    graph = defaultdict(list, {0: [1, 2], 1: [], 2: [0, 0]})
    assert read(tmp_path, pickle.dumps(graph, protocol)) == graph
    shape, text = (1, 2), "a word"  # small values may be shared
    value = {0: [text, text], 1: [shape, shape], 2: [b"", b""], 3: [2**40, None, True]}
    assert read(tmp_path, pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [0, 2])
def test_pickles_of_python_2(tmp_path, protocol):
    matrix = scipy.sparse.random(5, 7, 0.5, "csr", np.float32, 1)
    got = read(tmp_path, python2_csr(matrix, protocol))
    np.testing.assert_array_equal(got.toarray(), matrix.toarray())
    graph = b"\x80\x02ccollections\ndefaultdict\nq\x01c__builtin__\nlist\nq\x02\x85Rq\x03"
    assert read(tmp_path, graph + b"K\x00]q\x04(K\x01K\x02es.") == {0: [1, 2]}


def stack_global(*texts):
    """A call of a global, which protocol 4 names by two texts; the second may have dots."""
    module, name, argument = (b"\x8c" + bytes([len(s)]) + s.encode() for s in texts)
    return b"\x80\x04" + module + name + b"\x93" + argument + b"\x85R."


def test_malicious_pickles_are_refused_and_do_not_run(tmp_path):
    mark = tmp_path / "mark"
    shell, code = f"touch {mark}", f"open({str(mark)!r}, 'w')"
    values = [
        *(Call(run, code) for run in (eval, exec)),
        *(Call(open_file, str(mark)) for open_file in (np.load, np.fromfile)),
        *(Call(save, str(mark), 1) for save in (np.save, scipy.sparse.save_npz)),
        Call(getattr, 1, "real"),
        Call(subprocess.check_call, ["touch", str(mark)]),
        Call(pickle.loads, b"."),
        Call(__import__, "os"),
        np.array([Call(os.system, shell)], dtype=object),
        defaultdict(list, {0: Call(os.system, shell)}),
        OrderedDict(),
    ]
    attacks = [
        *(pickle.dumps(Call(os.system, shell), protocol) for protocol in range(5)),
        *(pickle.dumps(value, 2) for value in values),
        f"cos\nsystem\n(S'{shell}'\ntR.".encode(),
        f"(S'{shell}'\nios\nsystem\n.".encode(),
        f"(cos\nsystem\nS'{shell}'\no.".encode(),
        f"cnumpy.testing._private.utils\nrunstring\n(S'{code}'\n(dtR.".encode(),
        f"cnumpy.f2py.diagnose\nos.system\n(S'{shell}'\ntR.".encode(),
        stack_global("os", "system", shell),
        stack_global("builtins", "eval", code),
        stack_global("numpy", "ndarray.__init__.__globals__", shell),
        stack_global("numpy.core.multiarray", "_reconstruct.__globals__", shell),
        stack_global("_codecs", "encode.__self__", shell),
        stack_global("collections", "defaultdict.__class__", shell),
        stack_global("builtins", "list.__class__", shell),
    ]
    for attack in attacks:
        refused("runs no code from pickles", read, tmp_path, attack)
    assert not mark.exists()


NDARRAY = b"cnumpy\nndarray\n"
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"


@cases(
    "trick",
    RECONSTRUCT + b"(c__builtin__\nlist\n(I0\ntS'b'\ntR.",  # an odd class
    RECONSTRUCT + b"(c__builtin__\nobject\n(I0\ntS'b'\ntR.",
    b"ccopy_reg\n_reconstructor\n(c__builtin__\nlist\nc__builtin__\nobject\nNtR.",
    b"ccopy_reg\n_reconstructor\n(" + NDARRAY + b"c__builtin__\nobject\nNtR.",
    b"ccollections\ndefaultdict\n(c_codecs\nencode\ntR.",  # another factory
    b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.",  # another codec
    b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",  # objects
    b"cnumpy\ndtype\n(S'f4,O8'\nI0\nI1\ntR.",
    b"cnumpy\ndtype\n(S'V99999999999'\nI0\nI1\ntR.",
    b"cscipy.sparse.csr\ncsr_matrix\n)\x81.",  # no state
    b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81}b.",
    b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81(dS'data'\nI1\nsS'indices'\nI1\ns"
    b"S'indptr'\nI1\nsS'_shape'\n(I1\nI1\ntsb.",
    b"\x80\x02\x8a\xffKrubbish.",
    b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",  # BYTEARRAY8 of a terabyte
    b"\x82\x01.",  # extension registry
    b"P1\n.",  # persistent id
    b"",
    b".",
    b"\x00" * 50,
)
def test_tricks(tmp_path, trick):
    refused("readable", load_pickle, tmp_path / "none")
    refused("", read, tmp_path, trick)


def test_a_huge_memo_index_takes_no_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(tmp_path, b"\x80\x02Nr\xff\xff\xff\x7f.") is None  # C: 32 GB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000


def nested_key(depth):
    """A dict with the key ((((...)))), whose hash recurses in C."""
    return b"\x80\x02})" + b"\x85" * depth + b"Ns."


def doubled(depth):
    """((t, t), (t, t)) and so on: 2 ** depth to hash, a few bytes to write."""
    return b"\x80\x02}" + b")q\x00" + b"0h\x00h\x00\x86q\x00" * depth + b"Ns."


def many(head, each, times=20_000):
    return b"\x80\x02" + head + b"]q\x01(" + each * times + b"e."


TEXT = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x00"
LIST = b"](" + b"K\x01" * 50_000 + b"eq\x00"
FIELDS = b"}(" + b"".join(b"X\x05\x00\x00\x00%05dN" % i for i in range(9000)) + b"uq\x00"
OBJECT = b"c__builtin__\nobject\nq\x02"


@cases(
    "bomb",
    *(pickle.dumps(dict.fromkeys(range(20_000), [1] * 10_000), at) for at in (0, 2, 4)),
    many(LIST, b"h\x00"),
    b"\x80\x02](" + b"K\x01" * 50_000 + b"e" + b"2" * 50_000 + b"\x85.",  # DUP
    many(TEXT + b"c_codecs\nencode\nq\x02", b"h\x02h\x00X\x06\x00\x00\x00latin1\x86R"),
    many(LIST + NDARRAY + b"q\x02", b"h\x02)\x81h\x00b"),
    many(FIELDS + OBJECT, b"h\x02)\x81h\x00b"),
    doubled(60),
    nested_key(1_000_000),
    b"\x80\x02(" + b")" + b"\x85" * 1_000_000 + b"Nd.",
    b"\x80\x04\x8f(" + b")" + b"\x85" * 1_000_000 + b"\x90.",  # into a set
    b"\x80\x05\x96" + struct.pack("<Q", 2**31) + b".",  # a BYTEARRAY8 that is not there
    pickle.dumps(np.empty((10**9, 0), np.float32), 2),  # rows of nothing
    ids=range(14),
)
def test_what_a_pickle_expands_to_is_bounded_by_its_size(tmp_path, bomb):
    """Without a bound each took from seconds to for ever, up to 20 GB, or the whole process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused("", read, tmp_path, bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000


def test_state_of_arrays_is_checked(tmp_path):
    whole = pickle.dumps(np.arange(4, dtype=np.int32), 2)
    at = whole.index(b"K\x04\x85")  # the shape (4,)
    for shape in (b"K\x05", b"J\xff\xff\xff\xff", b"N", b"G" + b"\x40" * 8):
        refused("", read, tmp_path, whole[:at] + shape + b"\x85" + whole[at + 3 :])
    # BUILD with slot state sets attributes: here `__setstate__` of the class itself.
    spoil = b"\x80\x02" + NDARRAY + b"N}S'__setstate__'\nc__builtin__\nlist\ns\x86b0"
    refused("", read, tmp_path, spoil + pickle.dumps(np.arange(3), 2)[2:])
    np.testing.assert_array_equal(read(tmp_path, pickle.dumps(np.arange(3), 2)), np.arange(3))


def test_csr_contents_are_checked(tmp_path):
    for change in (
        {"indices": np.array([9], np.int32)},
        {"indices": np.array([-1], np.int32)},
        {"indptr": np.array([0, 7], np.int32)},
        {"indptr": np.array([0], np.int32)},
        {"data": np.ones(3)},
        {"_shape": (1, -5)},
        {"_shape": "ab"},
    ):
        matrix = scipy.sparse.csr_matrix(np.array([[0.0, 1.0]]))
        matrix.__dict__.update(change)
        refused("", read, tmp_path, pickle.dumps(matrix, 2))


# -- files of torch.save -----------------------------------------------------------------------

CONTAINERS = pytest.mark.parametrize("container", [torch_zip, torch_pickles])
PAIRS = np.arange(12).reshape(6, 2)


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
    found = read(tmp_path, container(given), load_torch)
    assert list(found) == list(given)
    for name, value in given.items():
        expected = value.array if isinstance(value, Tensor) else value
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype


@CONTAINERS
def test_two_tensors_may_share_a_storage(tmp_path, container):
    half = Tensor(PAIRS, "0", offset=4, size=(4, 2))
    data = container({"all": Tensor(PAIRS, "0"), "rest": half})
    found = read(tmp_path, data, load_torch)
    assert found["all"].tolist() == PAIRS.tolist()
    assert found["rest"].tolist() == PAIRS[2:].tolist()


@CONTAINERS
@cases(
    "value, says",
    ({"edge": Tensor(PAIRS, size=(7, 2))}, "do not fit its storage"),
    ({"edge": Tensor(PAIRS, offset=-1)}, "without a storage and a shape"),
    ({"edge": Tensor(PAIRS, size=(-1, 2))}, "without a plain shape"),
    ({"edge": Tensor(PAIRS, size=(10**9, 10**9), stride=(0, 0))}, "do not fit"),
    ({"edge": Tensor(PAIRS, size=(3, 2), stride=(4, 1))}, "with gaps"),
    ({"edge": Tensor(PAIRS, size=(2, 2), stride=(0, 1))}, "with gaps"),
    ({"edge": Tensor(PAIRS, size=(2,), stride=(1, 1))}, ""),
    ({"edge": Tensor(PAIRS, pid=("module", 1, "0", "cpu", 12))}, "than a storage"),
    ({"edge": Tensor(PAIRS, pid=("storage", 1, "0", "cpu", 12))}, "unknown kind"),
    ({"edge": [1, 2]}, "edge, a list and no array"),
    ({1: Tensor(PAIRS)}, "no dict of arrays by name"),
    ([Tensor(PAIRS)], ""),
    ({"edge": Named("torch", "load")}, "the global torch.load is not allowed"),
    ({"edge": Call(os.system, "touch mark")}, "system is not allowed"),
)
def test_anything_else_is_refused_in_a_line(tmp_path, monkeypatch, container, value, says):
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rule = "must be a whole dict of tensors or arrays that torch.save wrote; got"
    refused(f"{rule}*{says}*as p.npz beside it", read, tmp_path, container(value), load_torch)
    assert not (tmp_path / "mark").exists()
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
        refused(says, read, tmp_path, data, load_torch)
    refused("readable", load_torch, tmp_path / "none.pt")
