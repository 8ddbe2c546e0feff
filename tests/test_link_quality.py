"""The benchmark of links' quality, without DGL: both sides are judged alike."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from benchmarks import link_quality
from benchmarks.link_quality import DATA, RecordedJob, Trained
from jgs.train.config import Config


@pytest.fixture
def root(tmp_path):
    """A folder with a `usair.npz` of 80 nodes in a ring, each linked to the next 4."""
    node = np.arange(80)
    src = np.repeat(node, 4)
    dst = (src + np.tile(np.arange(1, 5), 80)) % 80
    both = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])])
    np.savez(tmp_path / "usair.npz", num_nodes=80, edge_index=both.astype(np.int32))
    return tmp_path


def test_jgs_alone(root):
    [(side, one)] = link_quality.turn("usair", 0, str(root), python=None, epochs=2)
    assert side == "jgs"
    assert one.metrics.keys() == {"auc"}
    assert 0 <= one.metrics["auc"] <= 1
    assert one.num_steps == 2  # 272 links, 256 in a batch
    assert [len(each) for each in one.seconds.values()] == [1, 1, 1]  # the first is left out


def test_the_split_that_dgl_reads(root, tmp_path):
    config = Config(task="links", dataset="usair", root=str(root), batch_size=256, epochs=2)
    job = RecordedJob(config, config.made("task"))
    link_quality.write_split(job, tmp_path)
    split = dict(np.load(tmp_path / "split.npz"))
    assert scipy.sparse.load_npz(tmp_path / "features.npz").shape == (80, 0)
    np.testing.assert_array_equal(split["bounds"], [0, 80])
    messages = set(zip(split["src"].tolist(), split["dst"].tolist(), strict=True))
    held = [*zip(split["test_src"].tolist(), split["test_dst"].tolist(), strict=True)]
    held += zip(split["val_src"].tolist(), split["val_dst"].tolist(), strict=True)
    assert not messages & {*held, *((b, a) for a, b in held)}
    assert {
        *zip(split["train_src"].tolist(), split["train_dst"].tolist(), strict=True)
    } < messages

    # Right in epoch 1 on validation, and in epoch 0 on the test: epoch 1 is judged.
    ones = {name: np.ones(made.src.size) for name, made in job.judged.items()}
    right = {"0_val_": -1, "0_val_other_": 1, "1_val_": 1, "1_val_other_": -1}
    right |= {"0_test_": 1, "0_test_other_": -1, "1_test_": -1, "1_test_other_": 1}
    scores = {name: value * ones[name.split("_")[1]] for name, value in right.items()}
    assert link_quality.best_epoch(job, DATA["usair"], scores) == {"auc": 0.0}


def test_the_tables():
    one = Trained({"auc": 0.9, "hits": 0.5}, {"sampling": [1.0], "computing": [1.0]}, 10)
    other = one._replace(metrics={"auc": 0.8, "hits": 0.4})
    trained = {("facebook", "jgs"): [one, other], ("facebook", "DGL"): [one]}
    assert link_quality.quality(trained)[2:] == [
        "| facebook | AUC | 2 | 0.8500 ± 0.0707 | 0.9000 |",
        "| facebook | Hits@50 | 2 | 0.4500 ± 0.0707 | 0.5000 |",
    ]
    assert link_quality.times(trained)[2] == "| facebook | jgs | 2.00 | 200.0 | 100.0 + 100.0 |"


def test_dgl_s_program_imports_no_jgs():
    text = Path(link_quality.__file__).with_name("link_quality_dgl.py").read_text()
    assert not re.search(r"^(import|from) jgs", text, re.MULTILINE)
