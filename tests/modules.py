"""Models with parameters from NumPy: made as users make them, each weight is a program."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


def module(make, seed=0):
    """What `make(rngs)` builds, with random parameters, which hide no mistake."""
    graphdef, params = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    rng = np.random.default_rng(seed)

    def drawn(leaf):
        scale = np.sqrt(2 / sum(leaf.shape[-2:])) if leaf.ndim > 1 else 0.3
        return jnp.asarray((scale * rng.standard_normal(leaf.shape)).astype(leaf.dtype))

    return nnx.merge(graphdef, jax.tree.map(drawn, params))


def exact(param):
    """A parameter in float64 NumPy."""
    return np.asarray(param[...], np.float64)


def assert_slopes(total, operands, grads):
    """Asserts that `grads` are `total`'s derivatives, of each leaf in a random direction."""
    leaves, structure = jax.tree.flatten(operands)
    rng, step = np.random.default_rng(11), 1e-6
    for i, ((path, _), grad) in enumerate(
        zip(jax.tree.leaves_with_path(operands), jax.tree.leaves(grads), strict=True)
    ):
        way = rng.standard_normal(grad.shape)
        moved = [
            total(structure.unflatten([*leaves[:i], leaves[i] + side * way, *leaves[i + 1 :]]))
            for side in (step, -step)
        ]
        parts = np.float64(grad) * way
        want, atol = (moved[0] - moved[1]) / (2 * step), 1e-4 * np.abs(parts).sum() + 1e-6
        np.testing.assert_allclose(parts.sum(), want, rtol=1e-4, atol=atol, err_msg=str(path))
        assert np.abs(parts).sum() > 0, path


def arrays_of(params):
    """Parameters as nested dicts of float64 NumPy."""
    return jax.tree.map(lambda a: np.asarray(a, np.float64), nnx.to_pure_dict(params))
