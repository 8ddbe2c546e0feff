"""In-degrees in the whole graph, from a split topology and in the batches of ranks."""

import jax
import numpy as np
import pytest
from launched import make_parts

from jgs.data.parts import open_parts
from jgs.dist.batches.rank_parts import RankParts
from jgs.dist.communicators.collect import all_degrees
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.progress import Meter
from jgs.train.tasks.task import open_job


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("parts") / "parts", num_parts=2)


@pytest.mark.parametrize("mode", ["hybrid", "vanilla"])
def test_batches_of_ranks_have_the_degrees_of_the_whole_graph(parts, mode):
    whole = np.diff(np.asarray(open_parts(parts).graph.indptr))
    comm = Mesh(jax.devices()[:2])
    ranks = RankParts(comm, open_parts(parts))
    degrees = all_degrees(comm, ranks.graphs(mode), ranks.offsets)
    np.testing.assert_array_equal(degrees, whole)
    assert degrees.dtype == np.int32
    shape = {"partition": str(parts), "mode": mode, "model": "gcn", "hidden": 4}
    job = open_job(Config(**shape, batch_size=6, fanouts=(3, 2), ranks=2, prefetch=0), comm)
    model = make_model(
        job.config, job.data.num_features, job.data.num_classes, False, jax.random.key(0)
    )
    job.start(model, jax.random.key(1), None)
    batches = job.batches(Meter())
    batch, _ = next(batches)
    for own in comm.local(batch):
        nodes = np.asarray(own.nodes)
        real = nodes < len(whole)
        np.testing.assert_array_equal(own.degrees, np.where(real, np.r_[whole, 0][nodes], 0))
    batches.close()
    job.close()


def test_one_rank_has_them_at_hand(parts):
    ranks = RankParts(Alone(), open_parts(parts))
    whole = ranks.parts.graph
    got = all_degrees(Alone(), [whole], ranks.offsets)
    np.testing.assert_array_equal(got, np.diff(np.asarray(whole.indptr)))
