"""Runs that tests of predictions, reports and exports read. Each is trained once a process."""

import csv
import functools
import io
import json
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import pytest
from flax import nnx

import jgs.data
from jgs.dist.communicators.comm import Alone
from jgs.partition.__main__ import main as partition
from jgs.predict import Run
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop.folder import configure
from jgs.train.tasks.task import open_job

N, F = 300, 8
CLASSES = ("<script>alert(1)</script>", "a & b, or not", 'a "blue"', "über")
FLAGS = "--fanouts 3 3 --hidden 8 --batch-size 20 --epochs 3 --lr 0.05 --no-progress"


class Trained(NamedTuple):
    folder: Path
    result: dict  # what the command printed
    data: jgs.data.Dataset
    file: Path  # the data set's

    @property
    def raw(self) -> np.ndarray:
        """The features before they were normalised."""
        with np.load(self.file) as arrays:
            return arrays["features"]


def arrays(labels: str = "classes") -> dict[str, np.ndarray]:
    """An archive of `classes`, `numbers` or several `labels`, mostly told by features."""
    rng = np.random.default_rng(0)
    of = rng.integers(0, len(CLASSES), N)
    features = rng.random((N, F), dtype=np.float32)
    features[np.arange(N), of] += 4
    src, dst = rng.integers(0, N, (2, 6000))
    kept = (of[src] == of[dst]) | (rng.random(src.size) < 0.2)
    own = {"labels": np.where(rng.random(N) < 0.1, 0, of), "class_names": CLASSES}
    if labels == "numbers":
        own = {"labels": (of + rng.random(N)).astype(np.float32)}
    if labels == "labels":
        several = np.float32(of[:, None] == np.arange(len(CLASSES)))
        several[rng.random(several.shape) < 0.1] = 1
        own = {"labels": several}
    train_idx, val_idx, test_idx = np.split(rng.permutation(N), [160, 220])
    return {
        "edge_index": np.stack([src, dst])[:, kept],
        "features": features,
        "train_idx": train_idx,
        "val_idx": val_idx,
        "test_idx": test_idx,
        **own,
    }


@functools.cache
@functools.cache
def run_of(base: Path, kind: str) -> Trained:
    """A run of `arrays(kind)`; for `parts`, of classes on two parts. A process trains it once,
    whichever of its tests comes first."""
    folder = base / f"run of {kind}"
    folder.mkdir()
    file, run_dir = folder / "data.npz", folder / "run <b>"
    np.savez(file, **arrays("classes" if kind == "parts" else kind))
    argv = ["--dataset", str(file), "--data-options", "normalize_features=true"]
    if kind == "parts":
        parts = ["--partition", str(folder / "parts")]
        more = ["--parts", "2", "--method", "ldg", "--out", parts[1]]
        assert partition([*argv, *more]) == 0
        argv = parts
    with redirect_stdout(io.StringIO()) as said:
        assert train([*argv, *FLAGS.split(), "--run-dir", str(run_dir)]) == 0
    data = jgs.data.load(file, normalize_features=True)
    return Trained(run_dir, json.loads(said.getvalue()), data, file)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Trained:
    return run_of(tmp_path_factory.getbasetemp(), "classes")


@pytest.fixture(scope="session")
def in_parts(tmp_path_factory) -> Trained:
    return run_of(tmp_path_factory.getbasetemp(), "parts")


def untrained(model, num_features, num_classes, config=None, **shape) -> Run:
    """A run of a model with its first parameters."""
    of = {"num_features": num_features, "num_classes": num_classes, "sparse": False}
    of |= {"multilabel": False} | shape
    record = {"best_epoch": 1, "val_accuracy": 0.5, "data": {}, "shape": of}
    params = dict.fromkeys(("best", "last"), nnx.state(model))
    return Run(config or Config(), model, record, Alone(), params)


def of_data(flags: str, shape: dict | None = None) -> Run:
    """The run that flags of `jgs train` describe, with first parameters, on its data; or with
    the `shape` of a checkpoint, whose data are not opened."""
    config, digests = configure(parse(flags.split())), {}
    if shape is None:
        job = open_job(config)
        shape = json.loads(json.dumps(job.shape(), default=list))
        digests = job.data.digests
    model = config.made("task").model(config, shape)
    record = {"best_epoch": 1, "val_accuracy": 0.5, "data": digests, "shape": shape}
    params = dict.fromkeys(("best", "last"), nnx.state(model))
    return Run(config, model, record, Alone(), params)


def predicted(run_dir, out: Path, *flags) -> dict[str, np.ndarray]:
    """The columns of the file that `jgs predict` wrote."""
    argv = ["--run-dir", run_dir, "--out", out, "--no-progress", *flags]
    assert predict([str(word) for word in argv]) == 0
    return columns(out)


def columns(path: Path) -> dict[str, np.ndarray]:
    """Of a CSV file the columns are text where they are no numbers."""
    if path.suffix == ".npy":
        table = np.load(path)
        return {name: table[name] for name in table.dtype.names}
    if path.suffix == ".parquet":
        lists = pyarrow.parquet.read_table(path).to_pydict()
        return {name: np.array(values) for name, values in lists.items()}
    with open(path, newline="") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, map(_parsed, zip(*rows, strict=True)), strict=True))


def _parsed(words) -> np.ndarray:
    for dtype in (np.int64, np.float32):
        with suppress(ValueError):
            return np.array(words).astype(dtype)
    return np.array(words)
