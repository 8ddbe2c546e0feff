"""What the tests of whole runs share."""

import pytest
from small_runs import train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that was not interrupted."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    assert train(run_dir) == 0
    return run_dir
