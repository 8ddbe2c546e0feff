"""Operations as programs: taken eagerly, each of their steps is compiled by itself."""

from unittest import mock

import jax
from blocks import with_weight

from jgs import kernels, ops


def pulled(f):
    """`run(grads, *operands)`: `f`, and its gradients; `grads` may be made of its outputs."""

    def run(grads, *operands):
        out, pull = jax.vjp(f, *operands)
        return out, pull(grads(out) if callable(grads) else grads)

    return run


def pulled_aggregate(reduce):
    """`run(block, x, grad)`: `ops.aggregate`, and the gradients by `x` and by the weights."""

    def run(block, x, grad):
        f = pulled(lambda x, weight: ops.aggregate(with_weight(block, weight), x, reduce))
        return f(grad, x, block.edge_weight)

    return run


def twins(f, threads=(0,), *, plain=True, everywhere=False):
    """A function of `f`'s operands, which is one program: what `f` computes by the kernels on
    each number of threads, and then, with `plain`, by their plain forms. Without kernels these
    are all the same. With `everywhere` the kernels are traced beside their plain forms, as in
    users' programs."""

    @jax.jit
    def program(*operands):
        found = []
        with kernels.this_host_only(not everywhere):
            for number in threads:
                with mock.patch.object(kernels, "NUM_THREADS", number):  # read while tracing
                    found.append(f(*operands))
        with kernels.plain():
            return [*found, f(*operands)] if plain else found

    return lambda *operands: jax.device_get(program(*operands))
