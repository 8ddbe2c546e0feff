"""The runs of `trained` as fixtures, and an artifact of one of them."""

import io
import json
import os
from contextlib import redirect_stdout

import pytest
from trained import in_parts, whole

from jgs.export.__main__ import main as export

__all__ = ["in_parts", "whole"]


@pytest.fixture(scope="session")
def artifact(whole, tmp_path_factory):
    """The folder that `jgs export` wrote for `whole`, and what it printed."""
    out = tmp_path_factory.mktemp("exported") / "model"
    argv = ["--run-dir", os.path.relpath(whole.folder), "--out", str(out), "--with-graph"]
    argv += ["--batch-sizes", "1", "8", "--platforms", "cpu", "cuda", "tpu"]
    with redirect_stdout(io.StringIO()) as said:
        assert export(argv) == 0
    return out, json.loads(said.getvalue())
