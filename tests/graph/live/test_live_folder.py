"""`jgs.graph.Live` in a folder: restarts, positions, merges and readers."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from refusals import refused

from jgs import Graph
from jgs.graph.live import Live
from jgs.graph.live.base import bases

N = 20


def begun(folder, **given):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, 60))
    graph = Graph.from_edges(
        src, dst, N, edge_time=np.arange(60), edge_columns={"x": rng.random((60, 2))}
    )
    features = rng.random((N, 3)).astype(np.float32)
    return Live(graph, features, num_nodes=N + 5, folder=folder, **given)


def changed(live, seed):
    """Makes a random change."""
    rng = np.random.default_rng(seed)
    num = int(rng.integers(1, 8))
    src, dst = rng.integers(0, N, (2, num))
    kind = seed % 5
    if kind == 0 and live.num_nodes < N + 5:
        live.add_nodes(1, rows=rng.random((1, 3)))
    elif kind == 1:
        live.set_rows(src[:1], rng.random((1, 3)))
    elif kind == 2:
        live.delete_edges(rng.integers(0, live.next_edge, num))
    elif kind == 3 and seed % 4 == 3:
        live.delete_nodes(src[:1])
    else:
        times = rng.integers(0, 90, num)
        live.append(src, dst, time=times, edge_columns={"x": rng.random((num, 2))})


def facts(live):
    """All that a live graph says, as arrays."""
    arrays = {name: np.asarray(a) for name, a in live.packed().edge_arrays().items()}
    numbers = [live.position, live.num_nodes, live.next_edge, live.num_edges, live.latest]
    features = np.array(live.features)
    arrays |= {"gone": live.gone.copy(), "numbers": np.array(numbers), "features": features}
    return {"indptr": live.packed().indptr, **arrays}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


@pytest.mark.parametrize("keep", [None, 40])
def test_it_opens_as_it_was_at_each_position(tmp_path, keep):
    live, seen = begun(tmp_path / "live", keep=keep), []
    for seed in range(30):
        seen.append(facts(live))
        changed(live, seed)
        if seed in (9, 19):
            live.merge()
        if seed in (5, 9, 14):  # a restart
            last = facts(live)
            live.close()
            live = Live.open(tmp_path / "live")
            assert_same(facts(live), last)
    first = min(bases(tmp_path / "live"))
    assert first == 20
    for position in range(first, 30):
        assert_same(facts(live.at(position)), seen[position])
    refused("must hold a live graph from a position on", live.at, first - 1)
    refused("must be in [20, 30]; got 31", live.at, 31)


def test_one_process_writes_and_others_follow(tmp_path):
    live = begun(tmp_path / "live")
    reader = Live.open(tmp_path / "live", writes=False)
    assert reader.follow() == []
    for seed in range(6):
        changed(live, seed)
    assert len(reader.follow()) == 6
    assert_same(facts(reader), facts(live))
    refused("open for writing", reader.append, [0], [1], time=[0], edge_columns={"x": [[0, 0]]})
    assert reader.position == 6
    refused("one process that writes", Live.open, tmp_path / "live")
    refused("one log", begun, tmp_path / "live")
    live.close()
    refused("open", live.append, [0], [1], time=[0], edge_columns={"x": [[0, 0]]})


def test_what_was_deleted_is_in_no_file_after_a_merge(tmp_path):
    live = begun(tmp_path / "live")
    rows, column = np.full((1, 3), 1234.5678, np.float32), np.full((1, 2), 8765.4321)
    moment = 0x0123_4567_89AB_CDE
    (node,) = live.add_nodes(1, rows=rows)
    (edge,) = live.append([0], [1], time=[moment], edge_columns={"x": column})
    traces = [rows.tobytes(), column.tobytes(), np.int64(moment).tobytes()]

    def found():
        files = [path for path in (tmp_path / "live").rglob("*") if path.is_file()]
        texts = [path.read_bytes() for path in files]
        return [any(trace in text for text in texts) for trace in traces]

    live.merge()
    assert found() == [True] * 3
    live.delete_nodes([node])
    live.delete_edges([edge])
    live.merge()
    assert found() == [False] * 3
    assert live.at(live.position).latest == live.latest == moment  # of what has come
    # In memory too: the next base is made of it.
    state = live._state
    arrays = [*state.rows.arrays.values(), *state.features.values()]
    assert not any(trace in array.tobytes() for trace in traces for array in arrays)


def test_changes_go_on_while_a_thread_merges(tmp_path):
    live, stop = begun(tmp_path / "live"), threading.Event()

    def merge():
        while not stop.is_set():
            live.merge()

    thread = threading.Thread(target=merge)
    thread.start()
    for seed in range(40):
        changed(live, seed)
    stop.set()
    thread.join(30)
    last = facts(live)
    live.close()
    assert_same(facts(Live.open(tmp_path / "live")), last)


WRITER = """
import sys, numpy as np
sys.path[:0] = sys.argv[2:]
from test_live_folder import begun, changed
from jgs.graph.live import Live
live = begun(sys.argv[1])
print("begun", flush=True)
for seed in range(10**6):
    changed(live, seed)
    if seed % 7 == 6:
        live.merge()
    print(seed, flush=True)
"""


@pytest.mark.parametrize("moment", [0.05, 0.4])
def test_a_killed_writer_loses_no_acknowledged_change(tmp_path, moment):
    paths = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../..")]
    command = [
        sys.executable,
        "-c",
        WRITER,
        str(tmp_path / "live"),
        *map(os.path.abspath, paths),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "begun\n"
        time.sleep(moment)
        writer.send_signal(signal.SIGKILL)
        told = [int(line) for line in writer.stdout if line.endswith("\n")]
    live = Live.open(tmp_path / "live")
    assert live.position >= len(told)
    alike = begun(tmp_path / "other")
    seed = 0
    while alike.position < live.position:
        changed(alike, seed)
        seed += 1
    assert_same(facts(live), facts(alike))
