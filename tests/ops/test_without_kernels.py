"""jgs.ops in a process where `JGS_KERNELS=off` chose the plain path."""

import os
import subprocess
import sys


def test_everything_works_with_the_kernels_switched_off():
    program = """
import jax, jax.numpy as jnp, numpy as np, scipy.sparse
from jgs import Block, kernels, ops
from jgs.graph.features import SparseFeatures
assert not kernels.available()
block = Block(jnp.array([0, 2], jnp.int32), jnp.array([0, 1], jnp.int32),
              jnp.int32(1), jnp.int32(2), jnp.int32(2))
f = jax.jit(jax.value_and_grad(lambda x: ops.aggregate(block, x).sum()))
value, grad = f(jnp.array([[1.0], [4.0]]))
assert (float(value), grad.tolist()) == (2.5, [[0.5], [0.5]])
features = SparseFeatures.from_scipy(scipy.sparse.eye(3, format="csr"))
assert ops.gather(features, np.array([2, 3], np.int32)).tolist() == [[0, 0, 1], [0, 0, 0]]
assert "jgs_" not in f.lower(jnp.ones((2, 1))).as_text()
"""
    environment = {**os.environ, "JGS_KERNELS": "off", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # `off` was asked for, so there is no warning
