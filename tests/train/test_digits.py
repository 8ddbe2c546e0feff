"""What a run says of its error is NumPy's, also where float32 has steps of 128."""

import json

import numpy as np
import pandas
import pytest
from cases import cases
from refusals import refused

import jgs
from jgs.data.columns import FeatureColumns
from jgs.data.values import as_features, standardized
from jgs.train.__main__ import main as train

N, BEGIN = 80, 1_700_000_000
FLAGS = """--fanouts 3 3 --hidden 4 --epochs 1 --batch-size 20 --metric mae --no-progress
    --sampler neighbors"""


NODE, OWN = np.arange(N), np.arange(2, N, 3)
SPLIT = np.array(["train", "val", "test"])[NODE % 3]


def write(folder, **tables):
    for name, columns in tables.items():
        pandas.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)


def ends():
    src, dst = np.random.default_rng(0).integers(0, N, (2, 400))
    return {"src": src, "dst": dst}


def nodes(folder, y):
    write(folder, edges=ends(), nodes={"id": NODE, "x": NODE % 7, "label": y, "split": SPLIT})
    return "--task nodes", lambda run: run.predict(OWN)


def edges(folder, y):
    pairs = np.random.default_rng(0).permutation(N * 9)[:N]
    src, dst = pairs // 9, pairs % 9
    write(folder, edges={"src": src, "dst": dst, "label": y, "split": SPLIT})
    asked = np.stack([src, dst], 1)[OWN].ravel()
    return "--task edges", lambda run: run.predict(run.node_ids.nodes(asked).reshape(-1, 2))


def moments(folder, y):
    labels = {"node": NODE, "time": 100 + NODE, "label": y, "split": SPLIT}
    timed = ends() | {"time": np.arange(400)}
    write(folder, edges=timed, nodes={"id": NODE, "x": NODE % 7}, labels=labels)
    return "--task nodes", lambda run: run.predict(OWN, time=100 + OWN)


@pytest.mark.parametrize("write", [nodes, edges, moments])
def test_the_error_that_is_said_is_that_of_the_predictions(tmp_path, write, capsys):
    y = BEGIN + np.arange(N) * 0.5
    flags, predicted = write(tmp_path, y)
    run_dir = tmp_path / "run"
    argv = f"--dataset {tmp_path} --run-dir {run_dir} {FLAGS} {flags}"
    assert train(argv.split()) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)["test_accuracy"]
    values = predicted(jgs.open_run(run_dir))
    assert values.dtype == np.float64
    assert said == pytest.approx(np.abs(values - y[OWN]).mean(), abs=1e-6)
    assert 1 < said < 100  # the mean of all is 10 away; float32 would say 0


def of_types(x):
    graph = jgs.Graph.from_relations({"a": len(x), "b": 1}, {("a", "to", "b"): ([0], [0])})
    about = {"labels": {"a": np.zeros(len(x), int)}, "splits": {"train": [0]}, "name": "mine"}
    jgs.data.Dataset.from_arrays(graph, {"a": x}, **about)


@cases(
    "make, words",
    (lambda x: as_features("x", x), "steps of 128. Subtract"),
    (of_types, "the features of a in mine must differ"),
    (lambda x: FeatureColumns.fit({"t": x[:, 0]}), "encode=t:standard"),
    ids=["array", "typed", "table"],
)
def test_a_column_that_float32_would_merge(make, words):
    refused(words, make, BEGIN + np.arange(60.0)[:, None])
    for fine in (BEGIN + 1000 * np.arange(60.0), 1 + 1e-15 * np.arange(60), np.ones(60)):
        make(fine[:, None])
    narrow = (1 + 1e-7 * np.arange(60)).astype(np.float32)
    make(narrow.astype(np.float64)[:, None])  # float32 has all of it


def test_what_is_standardised_is_centred_first():
    x = BEGIN + np.arange(60.0)[:, None]
    wanted = (x - x.mean()) / x.std()
    np.testing.assert_allclose(standardized("x", x, np.arange(60)), wanted, atol=1e-6)
