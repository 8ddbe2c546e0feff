"""Artifacts of graphs that may grow, and engines of them."""

import pytest
from trained import whole

import jgs
from jgs.serve import Application, Engine

__all__ = ["whole"]


@pytest.fixture(scope="session")
def artifact(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "model"
    jgs.export_run(whole.folder, out, with_graph=True, live=True, batch_sizes=(1, 8))
    return out


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "graph"


@pytest.fixture
def engine(artifact, folder):
    made = Engine(artifact, folder)
    yield made
    made.live.close()


@pytest.fixture
def app(engine):
    made = Application(engine)
    yield made
    made.close()
