"""What ranks put together: features, and in-degrees in the whole graph."""

import jax
import numpy as np
import pytest
import scipy.sparse
from small_ranks import make_parts, ranks_of

from jgs.data.parts import open_parts
from jgs.dist.communicators.collect import all_features
from jgs.dist.communicators.comm import Alone
from jgs.graph import SparseFeatures
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.progress import Meter
from jgs.train.tasks.task import open_job


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return open_parts(make_parts(tmp_path_factory.mktemp("parts") / "parts", num_parts=2))


@pytest.mark.parametrize(("size", "mode"), [(1, "hybrid"), (2, "hybrid"), (2, "vanilla")])
def test_batches_have_the_degrees_in_the_whole_graph(parts, size, mode):
    whole, comm = np.diff(np.asarray(parts.graph.indptr)), ranks_of(size)
    shape = {"partition": str(parts.folder), "mode": mode, "model": "gcn", "hidden": 4}
    shape |= {"batch_size": 6, "fanouts": (3, 2), "ranks": size, "prefetch": 0}
    job = open_job(Config(**shape), comm)
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


def test_dense_and_sparse_features_of_two_ranks_and_of_one():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 4)).astype(np.float32) * (rng.random((9, 4)) < 0.5)
    rows[6:] = 0
    sparse = [
        SparseFeatures.from_scipy(scipy.sparse.csr_array(p)) for p in (rows[:5], rows[5:])
    ]
    whole = SparseFeatures.from_scipy(scipy.sparse.csr_array(rows))
    for comm, dense, of_ranks in (
        (ranks_of(2), [[rows[:3], rows[3:5]], [rows[5:]]], sparse),
        (Alone(), [[rows[:5], rows[5:]]], [whole]),
    ):
        np.testing.assert_array_equal(all_features(comm, dense), rows)
        found = all_features(comm, of_ranks)
        assert (found.shape, found.max_row) == (whole.shape, whole.max_row)
        for mine, true in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
            assert mine.dtype == true.dtype
            np.testing.assert_array_equal(mine, true)
