import numpy as np
import pytest
import scipy.sparse

from jgs import InputError, Schema
from jgs.data.padded import padded
from jgs.graph import SparseFeatures, TypedFeatures

A = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
B = -A[:2]


def dense(features):
    if not isinstance(features, SparseFeatures):
        return np.asarray(features)
    arrays = (np.asarray(a) for a in (features.values, features.indices, features.indptr))
    return scipy.sparse.csr_matrix(tuple(arrays), shape=features.shape).toarray()


@pytest.mark.parametrize("sparse", [(), ("a",), ("b",), ("a", "b")])
@pytest.mark.parametrize("parts", [(), ((1, 1, 0), (0, 1, 2), (2, 0, 0))])
def test_rows_are_in_the_order_of_ids(sparse, parts):
    schema = Schema((("a", 3), ("none", 2), ("b", 2)), parts=parts)
    tables = {"a": A, "b": B}
    given = {k: scipy.sparse.csr_array(t) if k in sparse else t for k, t in tables.items()}
    found = padded("it", TypedFeatures.from_dict(schema, given))
    assert isinstance(found, SparseFeatures) == bool(sparse)
    assert found.shape == (7, 2)
    expected = np.zeros((7, 2), np.float32)
    for name, table in tables.items():
        ids = np.concatenate([np.arange(r.start, r.stop) for r in schema.ranges(name)])
        expected[ids] = table
    np.testing.assert_array_equal(dense(found), expected)


def test_dtypes_and_what_is_refused():
    schema = Schema((("a", 3), ("b", 2)))
    half = TypedFeatures.from_dict(schema, {"a": A.astype(np.float16)})
    assert padded("it", half).dtype == np.float16
    mixed = TypedFeatures.from_dict(schema, {"a": A.astype(np.float16), "b": B})
    assert padded("it", mixed).dtype == np.float32
    assert padded("it", TypedFeatures.from_dict(schema, {})).shape == (5, 0)
    other = TypedFeatures.from_dict(schema, {"a": A, "b": B[:, :1]})
    with pytest.raises(
        InputError, match="equally many for a model that knows no types; got a 2"
    ):
        padded("it", other)
