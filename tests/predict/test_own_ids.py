"""Nodes with their own ids (`jgs.NodeIds`) are asked for, and written, by these ids."""

import json

import numpy as np
import pandas
import pytest
from refusals import command_refused
from trained import predicted

import jgs
from jgs import NodeIds
from jgs.partition.__main__ import main as partition
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train

N = 200
NAMES = [f'paper "{i}", of {i % 7}' for i in range(N)]
SMALL = "--fanouts 3 --hidden 4 --batch-size 20 --epochs 1 --no-progress"
FLAGS = {
    "nodes": SMALL,
    "links": SMALL,
    "embed": "--dim 4 --walk-length 5 --num-walks 1 --batch-size 20 --epochs 1 --no-progress",
}


def synthetic():
    return jgs.data.load(
        "synthetic", num_nodes=N, num_edges=1500, num_features=4, num_classes=3
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder of tables in which the nodes of `synthetic` are called by `NAMES`."""
    folder, data, split = tmp_path_factory.mktemp("tables"), synthetic(), np.full(N, "", "U5")
    for name in ("train", "val", "test"):
        split[getattr(data, f"{name}_idx")] = name
    src, dst = np.array(NAMES)[data.graph.edge_index()]
    pandas.DataFrame({"src": src, "dst": dst}).to_csv(folder / "edges.csv", index=False)
    columns = {f"x{i}": column for i, column in enumerate(np.asarray(data.features).T)}
    nodes = {"id": NAMES, "label": data.labels, "split": split, **columns}
    pandas.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
    return folder


def opened(run_dir, *flags):
    assert train([*map(str, flags), "--run-dir", str(run_dir)]) == 0
    return jgs.open_run(run_dir)


@pytest.mark.parametrize("task", FLAGS)
def test_text_that_tables_call_nodes_by(task, tables, tmp_path, capsys):
    flags = ["--dataset", tables, "--task", task, *FLAGS[task].split()]
    run = opened(tmp_path / "run", *flags)
    assert run.node_ids.values.tolist() == NAMES
    pairs = np.array([[7, 150], [7, 0]])
    flag, nodes = ("--pairs", pairs) if task == "links" else ("--nodes", pairs.reshape(-1))
    ids = run.node_ids[nodes]
    np.save(tmp_path / "ids.npy", ids.astype(str))
    lines = ["\t".join(np.atleast_1d(line)) for line in ids]
    (tmp_path / "ids.txt").write_text("\n".join([*lines, "", ""]))
    if task == "links":
        want = {"source": ids[:, 0], "target": ids[:, 1], "probability": run.predict(nodes)}
    elif task == "embed":
        want = {"node": ids, "embedding": run.embed(nodes)}
    else:
        want = {"node": ids, **run.predict(nodes)._asdict()}
        everything = predicted(run.run_dir, tmp_path / "all.csv")
        assert everything["node"].tolist() == NAMES
        assert everything["prediction"].tolist() == run.predict().prediction.tolist()
    for file, ending in (("ids.npy", ".npy"), ("ids.txt", ".parquet"), ("ids.txt", ".csv")):
        got = predicted(run.run_dir, tmp_path / f"out{ending}", flag, tmp_path / file)
        if ending == ".csv":  # a column for each number of an embedding
            want.pop("embedding", None)
        else:
            assert list(got) == list(want)
        for name, column in want.items():
            np.testing.assert_array_equal(got[name], column)
    for text, says in (
        ("\t".join(("nobody", NAMES[3])[: ids.ndim]), "the 200 nodes'; got 'nobody' at"),
        ("a\tb\tc", "'a\\tb\\tc' in line 1" if task == "links" else "got 'a\\tb\\tc' at"),
    ):
        (tmp_path / "ids.txt").write_text(text)
        argv = ["--run-dir", run.run_dir, "--out", tmp_path / "no.csv", flag]
        argv = [*map(str, argv), str(tmp_path / "ids.txt")]
        command_refused(capsys, says, predict, argv)
    assert not (tmp_path / "no.csv").exists()


def test_integers_of_a_saved_data_set_in_parts(tmp_path):
    """The parts renumber the nodes; files have the user's ids."""
    data, ids = synthetic(), 10**12 + 7 * np.random.default_rng(0).permutation(N)
    splits = {name: getattr(data, f"{name}_idx") for name in ("train", "val", "test")}
    own = jgs.data.Dataset.from_arrays(
        data.graph, data.features, data.labels, splits, node_ids=NodeIds(ids)
    )
    own.save(tmp_path / "data")
    argv = ["--dataset", tmp_path / "data", "--parts", 2, "--method", "ldg"]
    assert partition([*map(str, argv), "--out", str(tmp_path / "parts")]) == 0
    run = opened(tmp_path / "run", "--partition", tmp_path / "parts", *SMALL.split())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    got = predicted(run.run_dir, tmp_path / "out.npy", "--split", "test")
    test = np.sort(data.test_idx)
    assert got["node"].tolist() == ids[test].tolist()
    assert np.mean(got["prediction"] == data.labels[test]) == result["test_accuracy"]
    (tmp_path / "ids.txt").write_text("\n".join(map(str, ids[[9, 3]])))
    some = predicted(run.run_dir, tmp_path / "out.npy", "--nodes", tmp_path / "ids.txt")
    assert some["node"].tolist() == ids[[9, 3]].tolist()
    assert some["prediction"].tolist() == run.predict([9, 3]).prediction.tolist()
