"""Predictions for all nodes from features in a file, with layers that are kept in files."""

import numpy as np

import jgs
from jgs.train.__main__ import main as train
from jgs.train.evaluation import exact

DATA = "num_nodes=3000 num_edges=20000 num_features=128 num_classes=7 homophily=0.9"


def test_from_disk_and_to_disk(tmp_path, monkeypatch, capsys):
    """Each of the features, hidden rows and embeddings takes 1.5 MiB; the memory is 1 MiB."""
    flags = "--fanouts 2 2 2 --hidden 128 --batch-size 200 --epochs 1 --no-progress"
    argv = [*flags.split(), "--data-options", *DATA.split()]
    argv += ["--model", "sage", "--run-dir", str(tmp_path / "run"), "--eval-memory", "1"]
    assert train(argv) == 0
    own = jgs.data.load(
        "synthetic",
        **{
            k: float(v) if "." in v else int(v)
            for k, v in (each.split("=") for each in DATA.split())
        },
    )
    np.save(tmp_path / "x.npy", np.asarray(own.features))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = {}
    for place, most in (("memory", 1 << 40), ("disk", 1 << 20)):
        monkeypatch.setattr(exact, "mapped_at_most", lambda memory, most=most: most)
        run = jgs.open_run(tmp_path / "run")
        of = {"graph": own.graph, "features": mapped}
        found[place] = run.embed(**of), run.logits(**of), *run.predict(**of)
    assert isinstance(found["disk"][0], np.memmap)
    for mine, theirs in zip(found["disk"], found["memory"], strict=True):
        np.testing.assert_array_equal(mine, theirs)
