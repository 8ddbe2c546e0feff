"""The random keys of a run: one for each use."""

import json
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np

import jgs
from jgs.sampling.edges.random import threefry
from jgs.train.config import Config
from jgs.train.loop import keys


def data_of(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_no_two_uses_of_a_seed_share_a_key():
    """The parameters, the batches and the dropout have those that they always had, by a split,
    so what else the seed decides is beyond any split that a model or a loader makes of it."""
    config = Config(seed=7)
    found = {use: data_of(keys.key_of(config, use)) for use in keys.USES}
    assert len(set(found.values())) == len(keys.USES) == 9
    split = jax.random.split(threefry(7), 16)
    assert list(found.values())[:3] == [data_of(key) for key in split[:3]]
    assert not {*found.values()} & {data_of(key) for key in split[3:]}
    assert all(a < b for a, b in pairwise(keys.USES.values()))


def test_runs_of_before_keep_their_keys():
    saved = json.loads(Config(seed=7).to_json())
    assert saved.pop("keys") == 1
    old = Config.from_json(json.dumps(saved))
    for use, number in {"split": 1, "negatives of val": 2, "samples of moments": 4}.items():
        want = jax.random.fold_in(threefry(7), number)
        assert data_of(keys.key_of(old, use)) == data_of(want)


def test_keys_of_the_seed_are_made_in_one_place():
    """And are the seed's own where a run begins, where `Run.predict` draws by default, and
    where an exported model does."""
    own = Path(jgs.__file__).parent
    found = {
        path.relative_to(own).as_posix()
        for folder in ("train", "predict")
        for path in (own / folder).rglob("*.py")
        if "config.seed)" in path.read_text()
    }
    wanted = {"train/loop/keys.py", "train/loop/training.py"}
    own_seed = {"predict/run.py", "train/tasks/seal.py", "train/tasks/task.py"}
    assert found == wanted | own_seed
