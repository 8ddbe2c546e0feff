"""Numbers keep their digits until their mean is taken off: what a run says of its error is what
NumPy finds in its predictions, also where float32 has steps of 128."""

import json

import numpy as np
import pytest

import jgs
from jgs import InputError
from jgs.data.columns import FeatureColumns
from jgs.data.values import as_features, standardized
from jgs.train.__main__ import main as train

N, BEGIN = 80, 1_700_000_000
FLAGS = """--fanouts 3 3 --hidden 4 --epochs 1 --batch-size 20 --metric mae --no-progress
    --sampler neighbors"""


def nodes(folder, y):
    rng = np.random.default_rng(0)
    edges = "".join(f"{a},{b}\n" for a, b in rng.integers(0, N, (400, 2)))
    rows = "".join(f"{i},{i % 7},{y[i]},{('train', 'val', 'test')[i % 3]}\n" for i in range(N))
    (folder / "edges.csv").write_text(f"src,dst\n{edges}")
    (folder / "nodes.csv").write_text(f"id,x,label,split\n{rows}")
    own = np.arange(2, N, 3)
    return "--task nodes", lambda run: (run.predict(own), y[own])


def edges(folder, y):
    a, b = np.random.default_rng(0).permutation(N * 9)[:N], np.arange(N)
    rows = "".join(f"{s // 9},{s % 9},{y[i]},{i % 3}\n" for i, s in zip(b, a, strict=True))
    names = {"0": "train", "1": "val", "2": "test"}
    rows = "".join(f"{r[:-1]}{names[r[-1]]}\n" for r in rows.splitlines())
    (folder / "edges.csv").write_text(f"src,dst,label,split\n{rows}")
    own = b % 3 == 2
    pairs = np.stack([a // 9, a % 9], 1)[own]
    return "--task edges", lambda run: (
        run.predict(run.node_ids.nodes(pairs.ravel()).reshape(-1, 2)),
        y[own],
    )


def moments(folder, y):
    _, _ = nodes(folder, y * 0)
    text = (folder / "nodes.csv").read_text().splitlines()
    (folder / "nodes.csv").write_text(
        "\n".join(",".join(line.split(",")[:2]) for line in text) + "\n"
    )
    table = (folder / "edges.csv").read_text().splitlines()
    (folder / "edges.csv").write_text(
        "src,dst,time\n" + "".join(f"{line},{i}\n" for i, line in enumerate(table[1:]))
    )
    rows = "".join(
        f"{i},{100 + i},{y[i]},{('train', 'val', 'test')[i % 3]}\n" for i in range(N)
    )
    (folder / "labels.csv").write_text(f"node,time,label,split\n{rows}")
    own = np.arange(2, N, 3)
    return "--task nodes", lambda run: (run.predict(own, time=100 + own), y[own])


@pytest.mark.parametrize("write", [nodes, edges, moments])
def test_the_error_that_is_said_is_that_of_the_predictions(tmp_path, write, capsys):
    y = BEGIN + np.arange(N) * 0.5
    flags, predicted = write(tmp_path, y)
    run_dir = tmp_path / "run"
    argv = f"--dataset {tmp_path} --run-dir {run_dir} {FLAGS} {flags}"
    assert train(argv.split()) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)["test_accuracy"]
    values, truth = predicted(jgs.open_run(run_dir))
    assert values.dtype == np.float64
    assert said == pytest.approx(np.abs(values - truth).mean(), abs=1e-6)
    assert 1 < said < 100  # the mean of all is 10 away; float32 would say 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: as_features("x", x), "steps of 128. Subtract"),
        (lambda x: FeatureColumns.fit({"t": x[:, 0]}), "encode=t:standard"),
    ],
    ids=["array", "table"],
)
def test_a_column_that_float32_would_merge(make, words):
    with pytest.raises(InputError, match=words):
        make(BEGIN + np.arange(60.0)[:, None])
    for fine in (BEGIN + 1000 * np.arange(60.0), 1 + 1e-15 * np.arange(60), np.ones(60)):
        make(fine[:, None])
    narrow = (1 + 1e-7 * np.arange(60)).astype(np.float32)
    make(narrow.astype(np.float64)[:, None])  # float32 has all of it


def test_what_is_standardised_is_centred_first():
    x = BEGIN + np.arange(60.0)[:, None]
    wanted = (x - x.mean()) / x.std()
    np.testing.assert_allclose(standardized("x", x, np.arange(60)), wanted, atol=1e-6)
