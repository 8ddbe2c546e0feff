"""Derivatives as programs: taken eagerly, each of their operations is compiled by itself."""

import jax


def vjp(f, *operands, grads):
    """`f(*operands)`, and the gradients by each operand that `jax.vjp` pulls back: one program.

    `grads` are those by the outputs, or a function that computes them from the outputs. The
    program is traced anew.
    """
    of = grads if callable(grads) else None

    def program(operands, grads):
        out, pull = jax.vjp(f, *operands)
        return out, pull(of(out) if of else grads)

    return jax.jit(program)(operands, None if of else grads)
