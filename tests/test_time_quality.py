"""The benchmark of models that see time, without its peer: the data that both sides read, and
jgs's side on a few events."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import time_quality, time_quality_jgs
from benchmarks import time_quality_data as quality

N = 30


def events(num=400):
    """A log with many equal times, whose targets are the nodes from 20 on."""
    rng = np.random.default_rng(0)
    time = rng.integers(50, 150, num)
    return quality._log(rng.integers(0, 20, num), rng.integers(20, N, num), time, 20, N)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The file of a log of messages among 300 nodes, and what it holds."""
    folder = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 300, (2, 400)).astype(np.int32)
    log = folder / "collegemsg.npz"
    np.savez(log, num_nodes=300, edge_index=pairs, edge_time=rng.integers(1000, 1100, 400))
    quality.write(folder / "data.npz", quality.messages(log), 20)
    with np.load(folder / "data.npz") as file:
        return str(folder / "data.npz"), dict(file)


def test_splits_are_in_the_order_of_time_and_negatives_are_no_targets(written):
    _, data = written
    time, (first, second) = data["time"], data["ends"]
    assert time[0] == 0
    assert (np.diff(time) >= 0).all()
    # No time is in two splits, and these are as large as they can then be.
    assert time[first - 1] < time[first] == time[280]
    assert time[second - 1] < time[second] == time[340]
    assert (data["val"] >= first).all()
    assert (data["val"] < second).all()
    assert (data["test"] >= second).all()
    for split in ("val", "test"):
        places, others = data[split], data[f"{split}_others"]
        assert places.shape == (20,)
        assert (np.diff(places) > 0).all()
        assert others.shape == (20, quality.OTHERS)
        for place, some in zip(places, others, strict=True):
            alike = (data["src"] == data["src"][place]) & (time == time[place])
            assert not set(some) & {*data["dst"][alike], data["src"][place]}
            assert len(set(some)) == quality.OTHERS


def test_ratings_have_the_users_before_the_films(tmp_path):
    text = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    text += "7\t242\t3\t20\n9\t11\t5\t10\n7\t11\t1\t10\n"
    with zipfile.ZipFile(tmp_path / "recbole.whl", "w") as wheel:
        wheel.writestr(quality._RATINGS, text)
    log = quality.ratings(tmp_path / "recbole.whl")
    assert (int(log["num_nodes"]), log["targets"].tolist()) == (4, [2, 4])
    np.testing.assert_array_equal(log["src"], [1, 0, 0])
    np.testing.assert_array_equal(log["dst"], [2, 2, 3])
    np.testing.assert_array_equal(log["time"], [0, 0, 10])


def test_the_past_has_the_latest_edges_before_the_cutoff_in_both_directions():
    log = events()
    src, dst, time = (log[name] for name in ("src", "dst", "time"))
    past = quality.Past(src, dst, time)
    nodes, cutoff = np.repeat(np.arange(N), 3), np.tile([0, 40, 1000], N)
    row, edge = past.latest(nodes, cutoff, 5)
    assert (np.diff(row) >= 0).all()
    for i, (node, until) in enumerate(zip(nodes, cutoff, strict=True)):
        own = ((src == node) | (dst == node)) & (time < until)
        found = past.time[edge[row == i]]
        np.testing.assert_array_equal(found, np.sort(time[own])[::-1][:5])
        partners = {*dst[own & (src == node)], *src[own & (dst == node)]}
        assert set(past.neighbor[edge[row == i]]) <= partners


def test_without_times_the_graph_has_training_events_alone(written):
    data = written[1]
    graphs = [time_quality_jgs.open_graph(data, timed) for timed in (True, False)]
    for made, end in zip(graphs, (400, data["ends"][0]), strict=True):
        src, dst = data["src"][:end], data["dst"][:end]
        target = np.repeat(np.arange(300), np.diff(made.indptr))
        found = sorted(zip(np.asarray(made.indices).tolist(), target.tolist(), strict=True))
        there, back = (
            zip(a.tolist(), b.tolist(), strict=True) for a, b in ((src, dst), (dst, src))
        )
        assert found == sorted([*there, *back])
    timed, untimed = graphs
    np.testing.assert_array_equal(np.sort(timed.edge_time), np.sort(np.tile(data["time"], 2)))
    assert untimed.edge_time is None


def test_a_model_trains_and_is_judged(written):
    path, model = written[0], "tgat"
    small = {"hidden": 4, "time_width": 4, "fanouts": (2, 2), "epochs": 2, "eval_batch": 10}
    setting = time_quality.SETTINGS["messages"] | small
    setting |= {"data": path, "model": model, "seed": 0, "batch_size": 50}
    found = time_quality_jgs.train(setting)
    assert 0.01 < found["mrr"] < 0.5  # chance gives 0.05
    assert found["epoch"] in (0, 1)
    side = next(name for name, of in time_quality.SIDES.items() if of[1].get("model") == model)
    (line,) = time_quality.table({("messages", side): [found]})[2:]
    assert f"| messages | {side} | 1 | {found['mrr']:.4f} |" in line


def test_the_peer_imports_no_jgs():
    text = (Path(time_quality.__file__).parent / "time_quality_tgat.py").read_text()
    assert not re.search(r"^\s*(import|from) jgs", text, re.MULTILINE)
