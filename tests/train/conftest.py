"""What the tests of whole runs share: data sets that are written once, and a run of a model."""

import contextlib
import functools
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from small_runs import train

from jgs.partition.folder import write_parts
from jgs.train.loop import progress, training


@pytest.fixture(scope="module", autouse=True)
def _empty_pictures():
    """Drawing the curves of a run takes longer than its steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "curves", lambda *_: Figure(figsize=(1, 1)))
        yield


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder of a run that was not interrupted. What it said lies beside it."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(training, "curves", progress.curves)
        assert train(run_dir, "--checkpoint-every 5 --keep 99") == 0
    run_dir.with_suffix(".out").write_text(out.getvalue())
    run_dir.with_suffix(".err").write_text(err.getvalue())
    return run_dir


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """`saved(make, *of)`: the folder of the data set `make(*of)`, which no test changes."""

    @functools.cache
    def saved(make, *of):
        folder = tmp_path_factory.mktemp("data") / make.__name__
        make(*of).save(folder)
        return folder

    return saved


@pytest.fixture(scope="session")
def parted(tmp_path_factory):
    """`parted(number, make, *of)`: the folder of its parts; nodes are dealt by chance."""

    @functools.cache
    def parted(number, make, *of):
        folder, data = tmp_path_factory.mktemp("parts") / make.__name__, make(*of)
        dealt = np.random.default_rng(2).permutation(data.graph.num_nodes) % number
        write_parts(folder, data, dealt, number, method="random")
        return folder

    return parted
