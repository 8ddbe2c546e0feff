"""`all_features`: each rank gets the features of all ranks."""

import jax
import numpy as np
import scipy.sparse

from jgs.dist.communicators.collect import all_features
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import SparseFeatures


def test_dense_and_sparse_rows_of_two_ranks_and_of_one():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 4)).astype(np.float32) * (rng.random((9, 4)) < 0.5)
    rows[6:] = 0
    sparse = [
        SparseFeatures.from_scipy(scipy.sparse.csr_array(p)) for p in (rows[:5], rows[5:])
    ]
    whole = SparseFeatures.from_scipy(scipy.sparse.csr_array(rows))
    two = Mesh(jax.devices()[:2])
    for comm, dense, parts in (
        (two, [[rows[:3], rows[3:5]], [rows[5:]]], sparse),
        (Alone(), [[rows[:5], rows[5:]]], [whole]),
    ):
        np.testing.assert_array_equal(all_features(comm, dense), rows)
        found = all_features(comm, parts)
        assert (found.shape, found.max_row) == (whole.shape, whole.max_row)
        for mine, true in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
            assert mine.dtype == true.dtype
            np.testing.assert_array_equal(mine, true)
