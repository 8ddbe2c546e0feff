"""`replacing` loses no file of the user's, whatever happens while the folder is written."""

import os
import signal
import subprocess

import numpy as np
import pytest
from forks import quick_python
from refusals import refused

from jgs.files import replacing, storage

KIND = "test"


def ours(folder):
    return {"one.txt", "two.txt"}


def write(folder, text="new", meanwhile=lambda: None):
    with replacing.replacing(folder, KIND, ours) as fresh:
        (fresh / "one.txt").write_text(text)
        meanwhile()


def contents(folder):
    return {p.name: p.read_text() for p in folder.iterdir()}


@pytest.mark.parametrize("before", ["absent", "empty", "ours"])
def test_a_file_that_comes_while_it_is_written_is_not_lost(tmp_path, before):
    folder = tmp_path / "out"
    if before != "absent":
        folder.mkdir()
    if before == "ours":
        write(folder, "old")

    def come():
        folder.mkdir(exist_ok=True)
        (folder / "notes.txt").write_text("precious")

    refused("notes.txt", write, folder, "new", come)
    assert contents(folder)["notes.txt"] == "precious"
    assert contents(folder).get("one.txt") == ("old" if before == "ours" else None)
    assert list(tmp_path.iterdir()) == [folder]


_KILLED = """
import os, signal, sys
from pathlib import Path
from jgs.files import replacing, storage
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == 'exchanging':
    rename = Path.rename
    Path.rename = lambda path, to: die() if path.name == 'new' else rename(path, to)
    replacing.ctypes.CDLL = lambda *_, **__: object()
with replacing.replacing(sys.argv[1], 'test', lambda _: {'one.txt'}) as fresh:
    (fresh / 'one.txt').write_text('new')
    if sys.argv[2] == 'writing':
        die()
"""


def killed(folder, where):
    """A process that is killed while it writes, or between the two steps of an exchange."""
    done = subprocess.run([quick_python(), "-c", _KILLED, str(folder), where])
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    folder = tmp_path / "out"
    write(folder, "old")
    killed(folder, "writing")
    assert contents(folder) == {"one.txt": "old"}
    assert len(list(tmp_path.iterdir())) == 2
    mine = tmp_path / ".out.mine.new"  # without a lock in it, so not jgs's own
    mine.mkdir()
    write(folder)
    assert contents(folder) == {"one.txt": "new"}
    assert sorted(tmp_path.iterdir()) == [mine, folder]


def test_the_only_copy_is_put_back(tmp_path):
    folder = tmp_path / "out"
    write(folder, "old")
    killed(folder, "exchanging")
    assert not folder.exists()

    def full():
        raise OSError("full")

    refused("full", write, folder, "new", full)
    assert contents(folder) == {"one.txt": "old"}
    assert list(tmp_path.iterdir()) == [folder]


def test_two_that_write_at_once_leave_each_other_alone(tmp_path):
    folder = tmp_path / "out"
    with replacing.replacing(folder, KIND, ours) as first:
        (first / "one.txt").write_text("first")
        write(folder, "second")
        assert contents(first) == {"one.txt": "first"}
    assert contents(folder) == {"one.txt": "first"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_amid_the_exchange_waits_for_its_end(tmp_path, monkeypatch):
    folder, exchange = tmp_path / "out", replacing._exchange

    def pressed(*args):
        exchange(*args)
        os.kill(os.getpid(), signal.SIGINT)

    write(folder, "old")
    monkeypatch.setattr(replacing, "_exchange", pressed)
    with pytest.raises(KeyboardInterrupt):
        write(folder)
    assert contents(folder) == {"one.txt": "new"}
    assert list(tmp_path.iterdir()) == [folder]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_everything_is_on_the_disk_before_the_exchange(tmp_path, monkeypatch):
    synced, exchange = set(), replacing._exchange
    monkeypatch.setattr(replacing.os, "fsync", lambda f: synced.add(os.fstat(f).st_ino))

    def check(fresh, *rest):
        assert synced == {path.stat().st_ino for path in (fresh, *fresh.rglob("*"))}
        exchange(fresh, *rest)

    monkeypatch.setattr(replacing, "_exchange", check)
    with replacing.replacing(tmp_path / "out", KIND, ours) as fresh:
        (fresh / "sub").mkdir()
        for name in ("one.txt", "sub/two.txt"):
            (fresh / name).write_text("new")
    assert len(synced) == 4


def test_what_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("mine")
    for bad in (tmp_path / "file" / "x", tmp_path / ("x" * 250), "/proc/x"):
        refused("must be a folder that can be written", replacing.check_writable, bad)
    refused("Name a folder inside it", replacing.check_replaceable, "/", KIND, ours)
    replacing.check_writable(tmp_path / "a" / "b" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_array_for_which_the_disk_has_no_room_is_told_in_the_systems_words(tmp_path):
    def save(array):
        with replacing.replacing(tmp_path / "out", KIND, ours) as fresh:
            (fresh / "x.npy").symlink_to("/dev/full")
            storage.write_arrays(fresh, KIND, {"x": array})

    for array in (np.ones((3, 4)), np.ones((200, 300)).T, np.array(5)):
        refused("No space left on device* MiB free on the disk at", save, array)
        storage.save_npy(tmp_path / "y.npy", array)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)
    assert os.listdir(tmp_path) == ["y.npy"]
