"""The forms of arrays: what each allows, and what the errors say."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from refusals import refused

import jgs
from jgs import InputError
from jgs.arrays import described, fits, require_array
from jgs.files.row_file import DiskError

ROWS = jgs.SparseFeatures.from_scipy(scipy.sparse.csr_array((2, 3)))  # without a dtype
RIGHT = [
    ("int32 [n]", np.zeros(3, np.int32), {}),
    ("int32 or int64 [n]", np.zeros(3, np.int64), {}),
    ("float32 [2, n]", np.zeros((2, 5), np.float32), {}),
    ("numbers [N, F]", np.zeros((2, 3), bool), {}),
    ("numbers [N, F]", scipy.sparse.csr_array((2, 3)), {"F": 3}),
    ("integers [E, 2]", np.zeros((4, 2), np.uint64), {}),
    ("integers [n]", jnp.zeros(2, jnp.int4), {}),
    ("floats [n]", jnp.zeros(2, jnp.bfloat16), {}),
    ("text [n]", np.array(["a", "b"]), {}),
    ("numbers or object [n]", np.array([None, True]), {}),
    ("integers or empty [n]", np.array([]), {}),
    ("integers or empty [n, 2]", np.zeros((0, 2)), {}),
    ("integers []", np.int64(3), {}),
    ("[]", jnp.float32(3), {}),
    ("[N, N], square", np.zeros((3, 3)), {}),
    ("[N + 1]", np.zeros(4), {"N": 3}),
    ("[N, N + 1]", np.zeros((3, 4)), {}),
    ("[E] or [E, H]", np.zeros(4), {"E": 4}),
    ("[E] or [E, H]", np.zeros((4, 2)), {"E": 4}),
    ("[n, ...]", np.zeros((4, 2, 0)), {}),
    ("numbers [...]", np.zeros(()), {}),
    ("[n], any dtype, [even] this", np.array(["a"]), {}),
    ("[N, F]", ROWS, {"N": 2}),
    ("[N, F]", jax.ShapeDtypeStruct((2, 3), jnp.float32), {}),
    (">i4 [n]", np.zeros(2, ">i4"), {}),
]
WRONG = [  # and what the message says after "x must be"
    ("int32 [n]", np.zeros(3), {}, "int32 [n]; got float64[3]. Mend it."),
    ("int32 [n]", np.zeros(3, ">i4"), {}, "int32 [n]; got >i4[3]."),
    ("int32 [n]", np.zeros((3, 1), np.int32), {}, "int32 [n]; got int32[3, 1]."),
    ("int32 [n]", jnp.zeros(3), {"n": 3}, "int32 [3]; got float32[3]."),
    ("[n], one a node", np.zeros(3), {"n": 4}, "[4], one a node; got float64[3]."),
    ("int32 or int64 [n]", np.zeros(3, "i2"), {}, "int32 or int64 [n]; got int16[3]."),
    ("int32 [n]", [1, 2], {}, "int32 [n]; got list."),
    ("[n]", None, {}, "[n]; got none."),
    ("numbers [N, F]", np.zeros((2, 3), complex), {}, "numbers [N, F]; got complex128[2, 3]."),
    ("numbers [n]", np.array(["a"]), {}, "numbers [n]; got <U1[1]."),
    ("numbers [n]", np.array([None]), {}, "numbers [n]; got object[1]."),
    ("numbers [n]", np.zeros(1, "M8[s]"), {}, "numbers [n]; got datetime64[s][1]."),
    ("numbers [n]", jnp.zeros(1, jnp.bfloat16), {}, "numbers [n]; got bfloat16[1]."),
    ("numbers [n]", scipy.sparse.coo_array((3, 2)), {}, "numbers [n]; got float64[3, 2]."),
    ("integers [n]", np.zeros(2, bool), {}, "integers [n]; got bool[2]."),
    ("integers [n]", jax.random.split(jax.random.key(0)), {}, "integers [n]; got key<fry>[2]."),
    ("float64 [N, F]", ROWS, {}, "float64 [N, F]; got SparseFeatures[2, 3]."),
    ("numbers [n], 1 or empty", ["a"], {}, "numbers [n], 1 or empty; got list."),
    ("text [n]", np.zeros(2, "S1"), {}, "text [n]; got |S1[2]."),
    ("integers or empty [n]", np.zeros((0, 2)), {}, "integers [n]; got float"),
    ("[E, 2]", np.zeros((2, 3)), {}, "[E, 2]; got float64[2, 3]."),
    ("[N, N], square", np.zeros((2, 3)), {}, "[N, N], square; got float64[2, 3]."),
    ("[N + 1]", np.zeros(3), {"N": 3}, "[4]; got float64[3]."),
    ("[N, N + 1]", np.zeros((3, 3)), {}, "[N, N + 1]; got float64[3, 3]."),
    ("[E] or [E, H]", np.zeros((3, 2)), {"E": 4}, "[4] or [4, H]; got float64[3, 2]."),
    ("[E] or [E, H]", np.zeros((4, 2)), {"H": 3}, "[E] or [E, 3]; got float64[4, 2]."),
    ("[n, ...]", np.zeros(()), {}, "[n, ...]; got float64[]."),
    ("[n, ...], [n] of n", np.zeros((3, 2)), {"n": 2}, "[2, ...], [2] of n; got float64[3"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "array", "sizes"), RIGHT)
def test_right(form, array, sizes):
    require_array("x", array, form, "Mend it.", **sizes)
    assert fits(array, form, **sizes)


@pytest.mark.parametrize(("form", "array", "sizes", "says"), WRONG)
def test_wrong(form, array, sizes, says):
    refused(f"x must be {says}", require_array, "x", array, form, "Mend it.", **sizes)
    assert not fits(array, form, **sizes)


def test_tracers():
    def function(x):
        require_array("x", x, "float32 [N, F]", "Mend it.", F=2)
        assert described(x) == "float32[3, 2]"
        refused(
            "x must be int32 [N, 3]; got float32[3, 2]",
            require_array, "x", x, "int32 [N, F]", "Mend it.", F=3,
        )  # fmt: skip
        return x

    jax.jit(function)(jnp.zeros((3, 2)))


def test_symbolic_sizes():
    """The sizes of an exported program are unknown, but equal to themselves."""
    n, f = jax.export.symbolic_shape("n, f")

    def function(x):
        assert fits(x, "float32 [N, F]", N=n)
        assert fits(x, "[N + 1, F]", N=n - 1)
        assert not fits(x, "[N, F]", N=f)
        assert not fits(x, "[N, N]")
        return x

    jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((n, f), jnp.float32))


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        ("int32", {}),
        ("int33 [n]", {}),
        ("int32 or whatever [n]", {}),
        ("int32 [n", {}),
        ("[n * 2]", {}),
        ("[..., n]", {}),
        ("int32 [n]", {"m": 3}),
        ("[E], one for each of N", {"N": 3}),
    ],
)
def test_wrong_forms_are_faults_of_the_code(form, sizes):
    with pytest.raises((ValueError, TypeError)) as caught:
        require_array("x", np.zeros(3, np.int32), form, "Mend it.", **sizes)
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("kind", [InputError, DiskError])
def test_an_error_comes_from_another_process(kind):
    """A pool waits for ever for a result that it cannot read, an error too."""
    error = kind("a rule must hold", lambda: 0, "Keep it.")  # a value that cannot be sent
    error.place = "rank 1"
    for found in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(found) is kind
        assert str(found) == str(error)
        assert (found.rule, found.remedy) == (error.rule, error.remedy)
        assert (found.value, found.place) == (str(error.value), "rank 1")
