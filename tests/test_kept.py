"""What an earlier version wrote still opens: its runs, parts, artifact and built graph.

`kept/write.py` made each archive with the commands of the version that names it.
"""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cases import cases, rarely
from trained import columns, predicted

import jgs
import jgs.data
from jgs.train.__main__ import main as train

ARCHIVES = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))


def said_by(archive):
    """The folder in which an archive was written, and its runs with what was asked of each."""
    with tarfile.open(archive) as file:
        return json.load(file.extractfile("./runs.json"))


RUNS = [(archive, run) for archive in ARCHIVES for run in said_by(archive)["runs"]]
# One of each kind of data goes on in every test, the others in the slow ones.
OFTEN = ("parts", "types", "events", "vectors")
RESUMED = sorted(RUNS, key=lambda each: each[1] not in OFTEN)
SELDOM = range(len(OFTEN) * len(ARCHIVES), len(RUNS))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of each archive, where its runs find their data."""
    folders = {}
    for archive in ARCHIVES:
        folders[archive] = tmp_path_factory.mktemp("kept")
        shutil.unpack_archive(archive, folders[archive])
        for config in folders[archive].glob("*/config.json"):
            now = config.read_text().replace(said_by(archive)["folder"], str(folders[archive]))
            config.write_text(now)
    return folders


def name_of(value):
    return value.name.removesuffix(".tar.xz") if isinstance(value, Path) else value


def close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


@cases("archive, run", *RUNS, ids=name_of)
def test_a_run_predicts_the_same(archive, run, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(kept[archive])
    asked = said_by(archive)["runs"][run].split()
    close(predicted(run, tmp_path / "now.csv", *asked), columns(Path(f"{run}.predicted.csv")))


@cases("archive, run", *rarely(RESUMED, *SELDOM))
def test_a_run_goes_on(archive, run, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(kept[archive])
    shutil.copytree(run, tmp_path / run)
    flags = ["--resume", "--no-progress", "--epochs", "3", "--run-dir", str(tmp_path / run)]
    assert train(flags) == 0
    both = (tmp_path / run / "metrics.jsonl"), Path(f"{run}.jsonl")
    now, then = ([json.loads(line) for line in path.read_text().splitlines()] for path in both)
    assert len(now) == len(then)
    same = {key for key in then[-1] if key.startswith(("epoch", "train_", "val_"))}
    for key in same:
        assert now[-1][key] == pytest.approx(then[-1][key], rel=1e-2, abs=1e-3), key


@cases("archive", *ARCHIVES, ids=name_of)
def test_an_artifact_answers_and_a_built_graph_opens(archive, kept):
    """The old program draws and computes what the run does today."""
    folder, nodes = kept[archive], np.arange(40)
    served = jgs.load_exported(folder / "artifact").logits(nodes)
    wanted = jgs.open_run(folder / "classes").logits(nodes, fanouts=(2, 2))
    np.testing.assert_allclose(served, wanted, rtol=1e-4, atol=1e-5)
    table, built = columns(folder / "events.csv"), jgs.data.load(folder / "built").graph
    made = jgs.Graph.from_edges(
        table["source"], table["target"], built.num_nodes, edge_time=table["time"]
    )
    for column in ("indptr", "indices", "edge_time"):
        ours, theirs = (np.asarray(getattr(graph, column)) for graph in (built, made))
        np.testing.assert_array_equal(ours, theirs)
