"""`--feature-memory`: the run in memory, bit for bit; also when the features' file fails."""

import os
import shutil

import numpy as np
import scipy.sparse
from cases import cases, rarely
from small_data import papers, thirds
from small_runs import command, result, same_run

import jgs.data
from jgs.data import Dataset
from jgs.partition.memory import Machine
from jgs.sampling.loading import disk_rows
from jgs.train.loop import folder as run_folder
from jgs.train.loop import open_data

RUN = "--hidden 8 --batch-size 10 --no-progress --norm layer --dropout 0.2"
IN_MEMORY, SOME, MORE = "0", "1 --feature-block 0", "1 --feature-block 3"


def wide():
    """A graph of whose 400 rows of features a third fits into a MiB."""
    return jgs.data.load(
        "synthetic", num_nodes=400, num_edges=3000, num_features=2048, num_classes=3
    )


def words_of_nodes():
    """Sparse features."""
    rng = np.random.default_rng(0)
    graph = jgs.Graph.from_edges(*rng.integers(0, 300, (2, 2000)), 300)
    words = scipy.sparse.random(300, 3000, 0.05, format="csr", rng=rng)
    return Dataset.from_arrays(graph, words, rng.integers(0, 3, 300), thirds(300))


def train(data, run_dir, memory, *more):
    flags = (RUN, "--dataset", data, "--run-dir", run_dir, "--feature-memory", memory)
    return command(*flags, *more)


def digest(run_dir):
    return result(run_dir)["params_sha256"]


MEMORIES = [
    # 2 %, a third and all of the rows.
    (wide, "--fanouts 3 3 --epochs 2", (SOME, MORE, "9")),
    (wide, "--fanouts 3 --reduce max --input-dropout 0.1", (SOME,)),
    (wide, "--fanouts 3 --model gat", (MORE,)),
    # Samplers that list their inputs anyway, and one that learns.
    (wide, "--sampler shadow --fanouts 3 --layers 1", ("1",)),
    (wide, "--sampler saint --layers 1", ("1",)),
    (wide, "--sampler ladies --sizes 20", ("1",)),
    (wide, "--sampler thanos --fanouts 3", ("1",)),
    (words_of_nodes, "--fanouts 3", (SOME, MORE)),
    (words_of_nodes, "--fanouts 3 --model gat", (MORE,)),
    # Tables of several types.
    (papers, "--fanouts 3 --model rgcn --task links --relation cites", ("1",)),
]


@cases("make, flags, memories", *rarely(MEMORIES, 1, 4, 5, 6, 8, 9))
def test_the_same_parameters(saved, tmp_path, make, flags, memories):
    digests = []
    for number, memory in enumerate((IN_MEMORY, *memories)):
        run_dir = tmp_path / f"{number}"
        assert train(saved(make), run_dir, memory, "--epochs 1", flags) == 0
        digests.append(digest(run_dir))
    assert len(set(digests)) == 1
    rows = run_folder.read_metrics(run_dir, 9)
    assert make is not wide or all(row["disk_bytes"] > row["disk_rows"] > 0 for row in rows)


def test_a_file_that_fails_loses_nothing(saved, tmp_path, capsys, monkeypatch):
    data = shutil.copytree(saved(wide), tmp_path / "data")
    flags = "--fanouts 3 --epochs 2 --checkpoint-every 3"
    assert train(data, tmp_path / "whole", 1, flags) == 0
    file, steps = data / "features.npy", []
    content, make = file.read_bytes(), disk_rows.DiskRows.make

    def failing(self, *given):
        steps.append(given)
        if len(steps) == 13:  # in the middle of the second epoch, of 8 steps
            os.truncate(file, len(content) // 3)
        return make(self, *given)

    monkeypatch.setattr(disk_rows.DiskRows, "make", failing)
    capsys.readouterr()
    assert train(data, tmp_path / "run", SOME, flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    last = err.strip().splitlines()
    assert "features.npy must stay readable, with all of its rows" in last[-1]
    assert "a checkpoint has what was learned up to step 12" in last[-2]
    file.write_bytes(content)
    assert train(data, tmp_path / "run", 2, flags, "--resume") == 0
    assert "resuming after 1 epochs and 4 steps" in capsys.readouterr().err
    same_run(tmp_path / "run", tmp_path / "whole")


def test_a_graph_larger_than_memory_is_read_ahead(saved, tmp_path, monkeypatch):
    ahead, read_ahead = [], open_data.read_ahead
    monkeypatch.setattr(
        open_data, "read_ahead", lambda graph: ahead.append(0) or read_ahead(graph)
    )
    for free in (1 << 40, 0):
        monkeypatch.setattr(open_data, "machine", lambda free=free: Machine(1 << 40, free))
        assert train(saved(wide), tmp_path / f"{free}", 0, "--fanouts 3 --epochs 1") == 0
    assert digest(tmp_path / "0") == digest(tmp_path / f"{1 << 40}")
    assert len(ahead) == 1
    read_ahead(jgs.data.load(str(saved(wide))).graph, threads=0)  # for the tests that follow
