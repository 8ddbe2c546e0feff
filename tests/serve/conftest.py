"""Artifacts of graphs that may grow, and engines of them."""

import pytest
from small_data import typed_moments
from trained import of_data, whole

import jgs
from jgs.serve import Application, Engine

__all__ = ["whole"]


@pytest.fixture(scope="session")
def artifact(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "model"
    jgs.export_run(whole.folder, out, with_graph=True, live=True, batch_sizes=(1, 8))
    return out


@pytest.fixture(scope="session")
def typed(tmp_path_factory):
    """The artifact of a run on 30 users, told at moments by the last of 6 items."""
    folder = tmp_path_factory.mktemp("typed")
    typed_moments().save(folder / "data")
    flags = "--fanouts *=2 --model rsage --latest --hidden 8 --dropout 0 --batch-size 20"
    run = of_data(f"{flags} --dataset {folder / 'data'}")
    options = {"with_graph": True, "live": True, "batch_sizes": (4,), "new_nodes": 5}
    spec = jgs.export_run(run, folder / "model", **options)
    assert spec.new_nodes == [5, 0]  # items have no features
    return folder / "model"


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
