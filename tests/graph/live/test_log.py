"""The log of changes: acknowledged ones are whole, others absent, damage is told."""

import os
import sys
import threading

import numpy as np
from cases import cases
from forks import ran
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal, refused

from jgs.graph.live import Change
from jgs.graph.live.log import Log


def change(number, size=3):
    src = np.arange(number, number + size, dtype=np.int32)
    fields = {"src": src, "time": None, "relation": "likes", "number": number}
    return Change("append", fields | {"weight": np.float32([[0.1, number]])})


def same(found, wanted):
    assert [each.kind for each in found] == [each.kind for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.fields.keys() == theirs.fields.keys()
        for name, value in theirs.fields.items():
            np.testing.assert_array_equal(ours.fields[name], value, strict=True)


def written(folder, groups, most=1 << 20, position=0):
    """A log with `groups` frames of the given numbers of changes."""
    log, number = Log.create(folder, position, most=most), position
    for count in groups:
        number += count
        frame = [change(at) for at in range(number - count, number)]
        assert log.write(*frame) == log.position == number
    log.close()


def reopened(folder):
    log = Log.open(folder)
    found = list(log.changes(log.begin))
    log.close()
    return found


def test_changes_come_back_as_they_were(tmp_path):
    fields = {
        "text": np.array(["ann", "böb"]),
        "empty": np.zeros((0, 4), np.float16),
        "none": None,
        "word": "a\nb",
        "big": 2**62 + 1,
        "times": np.array([[2**62 + 1, -1]]).T,
        "relation": ("user", "likes", "item"),
        "scalar": np.array(3, np.uint8),
    }
    log = Log.create(tmp_path / "a" / "log", position=7)
    assert (log.begin, log.position) == (7, 7)
    assert log.write(Change("set_rows", fields), change(1)) == 9
    same(list(log.changes(7)), [Change("set_rows", fields), change(1)])
    same(list(log.changes(8)), [change(1)])
    assert log.write() == 9
    log.close()
    assert len(reopened(tmp_path / "a" / "log")) == 2
    with refusal("position 6*base"):
        next(log.changes(6))
    with refusal("position 10"):
        next(log.changes(10))


@cases("bad", np.array([object()]), np.zeros(2, "V2"), {"a": 1}, [1, "a", None])
def test_other_values_are_refused_and_nothing_is_written(tmp_path, bad):
    log = Log.create(tmp_path)
    refused("x, *Convert", log.write, change(0), Change("append", {"x": bad}))
    assert log.position == 0
    assert log.write(change(0)) == 1


TAILS = [b"", b"\0" * 5000, b"jgsC" * 30, bytes(range(256))]


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    most=st.sampled_from([1, 1000, 1 << 20]),
    data=st.data(),
)
def test_of_a_torn_tail_the_whole_frames_are_left(tmp_path_factory, groups, most, data):
    folder = tmp_path_factory.mktemp("log")
    written(folder, groups, most)
    path = max(folder.glob("*.log"))
    frames = path.read_bytes()
    cut = data.draw(st.integers(0, len(frames) - 1))
    path.write_bytes(frames[:cut] + data.draw(st.sampled_from(TAILS)))
    whole = int(path.stem) + changes_in(frames[:cut])
    log = Log.open(folder, most=most)
    assert log.position == whole
    same(list(log.changes()), [change(at) for at in range(whole)])
    assert log.write(change(whole)) == whole + 1
    log.close()
    same(reopened(folder), [change(at) for at in range(whole + 1)])


def test_cut_at_every_byte(tmp_path):
    log = Log.create(tmp_path)
    log.write(Change("a", {}))
    log.write(Change("b", {"n": 1}), Change("c", {}))
    log.close()
    path = min(tmp_path.glob("*.log"))
    frames = path.read_bytes()
    for cut in range(len(frames) + 1):
        path.write_bytes(frames[:cut])
        assert Log.open(tmp_path, writes=False).position == changes_in(frames[:cut])
        log = Log.open(tmp_path)
        assert log.position == changes_in(frames[:cut])
        log.close()
        assert frames.startswith(path.read_bytes())


def changes_in(data):
    """How many changes are in the frames that `data` has whole, by their heads."""
    found = 0
    while len(data) >= 28:
        end = 28 + int.from_bytes(data[16:24], "little")
        found += int.from_bytes(data[4:8], "little") * (end <= len(data))
        data = data[end:]
    return found


@cases("most", 1, 1 << 20)
def test_damage_in_the_middle_is_told(tmp_path, most):
    written(tmp_path, [1, 2, 1, 1], most)
    files = sorted(tmp_path.glob("*.log"))
    data = bytearray(files[0].read_bytes())
    for place in (0, 5, 9, 17, 25, 60, len(data) // 6):
        damaged = bytearray(data)
        damaged[place] ^= 1
        if most > 1:
            files[0].write_bytes(b"")
        reader = Log.open(tmp_path, writes=False)
        files[0].write_bytes(damaged)
        if most > 1:
            for writes in (True, False):
                refused("whole change at position 0*copy", Log.open, tmp_path, writes=writes)
            refused("whole change at position 0*copy", reader.follow)
        else:
            refused("whole change at position 0*copy", list, reader.changes())
        assert files[0].read_bytes() == damaged
    files[0].write_bytes(data)
    assert len(reopened(tmp_path)) == 5
    if most == 1:
        files[1].unlink()
        refused("whole change at position 1*copy", reopened, tmp_path)


def test_damage_of_the_last_change_is_told(tmp_path):
    written(tmp_path, [1, 2])
    (path,) = tmp_path.glob("*.log")
    data = path.read_bytes()
    last = data.rfind(b"jgsC")
    for place in [*range(last, last + 28), *range(last + 28, len(data), 9)]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        for writes in (True, False):
            says = f"no whole change at position 1. Restore*copy*truncate -s {last} "
            refused(says, Log.open, tmp_path, writes=writes)
        assert path.read_bytes() == damaged
    path.write_bytes(data[:last])  # as the remedy says
    assert Log.open(tmp_path).position == 1


def test_one_process_writes(tmp_path):
    writer = Log.create(tmp_path)
    refused("one process that writes*in use*end.", Log.open, tmp_path)
    refused("one log", Log.create, tmp_path)
    reader = Log.open(tmp_path, writes=False)
    refused("open for writing", reader.write, change(0))
    writer.close()
    Log.open(tmp_path).close()
    refused("must have a log", Log.open, tmp_path / "none")


def test_a_follower_sees_whole_changes_through_files_and_drops(tmp_path):
    writer = Log.create(tmp_path, most=600)
    reader, late = (Log.open(tmp_path, writes=False) for _ in range(2))
    found, number = [], 0
    for count in (1, 0, 2, 5, 1, 3):
        for _ in range(count):
            writer.write(change(number))
            number += 1
        while some := reader.follow():
            found += some
        assert reader.position == number == len(found)
    same(found, [change(at) for at in range(number)])
    last = max(tmp_path.glob("*.log"))
    with open(last, "ab") as file:
        file.write(last.read_bytes()[:40])
    assert reader.follow() == []
    assert writer.write(change(number)) == number + 1
    same(reader.follow(), [change(number)])
    assert writer.cut() == writer.cut() == number + 1
    writer.drop(number + 1)
    assert (writer.begin, len(list(tmp_path.glob("*.log")))) == (number + 1, 1)
    same(late.follow(), [change(at) for at in range(late.position)])  # its file was open
    refused("changes from a position on", late.follow)
    writer.write(change(9))
    same(reader.follow(), [change(9)])
    assert reader.follow() == []
    refused("position 3", lambda: next(writer.changes(3)))


def test_threads_write_whole_frames_while_another_reads(tmp_path):
    writer = Log.create(tmp_path, most=5000)
    reader = Log.open(tmp_path, writes=False)

    def write(number):
        for at in range(20):
            writer.write(change(number), change(number + at))

    threads = [threading.Thread(target=write, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    found = []
    while any(thread.is_alive() for thread in threads) or reader.position < 160:
        found += reader.follow()
    same(found, list(writer.changes()))
    numbers = [each.fields["number"] for each in found]
    assert all(n % 100 == 0 for n in numbers[::2])
    assert [m - n for n, m in zip(numbers[::2], numbers[1::2], strict=True)].count(7) == 4


KILLED = """
import os, signal, sys
import numpy as np
from jgs.graph.live import Change
from jgs.graph.live.log import Log
folder = sys.argv[1]
Log.create(folder).close()
said = 0
for round_ in range(25):
    ours, theirs = os.pipe()
    if not (pid := os.fork()):
        log = Log.open(folder, most=20_000)
        while True:
            at = log.position
            src = np.arange(at % 700)
            each = (Change("append", {"n": n, "src": src}) for n in range(at, at + 3))
            os.write(theirs, b"%d\\n" % log.write(*each))
    os.close(theirs)
    with os.fdopen(ours) as lines:
        said = max(int(lines.readline()) for _ in range(1 + round_ % 7))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        said = max([said, *map(int, lines)])
    log = Log.open(folder)  # the lock of the dead is free
    numbers = [change.fields["n"] for change in log.changes()]
    assert numbers == list(range(log.position)), numbers
    assert log.position % 3 == 0 and log.position - said in (0, 3), (said, log.position)
    log.close()
"""


def test_kill_loses_no_acknowledged_change(tmp_path):
    ran(sys.executable, "-c", KILLED, tmp_path / "log")
    assert len(list((tmp_path / "log").glob("*.log"))) > 2


def test_a_full_disk_refuses_a_change_and_takes_the_next(tmp_path, monkeypatch, caplog):
    log, pwrite = Log.create(tmp_path), os.pwrite

    def full(number, data, offset):
        pwrite(number, bytes(data)[:50], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    refused("room on its disk*No space*Free space", log.write, change(0))
    monkeypatch.undo()
    assert log.write(change(0)) == 1

    def fails(number):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    refused("Input/output error", log.write, change(1))
    monkeypatch.undo()
    refused("disk has failed*Open it again", log.write, change(1))
    refused("disk has failed*Open it again", log.cut)
    log.close()
    log = Log.open(tmp_path)
    assert log.position in (1, 2)
    with open(max(tmp_path.glob("*.log")), "ab") as file:
        file.write(b"jgsCgarbage")
    log.close()
    Log.open(tmp_path).close()
    assert "dropped the last 11 bytes" in caplog.text
