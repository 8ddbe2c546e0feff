"""What tests of samplers share."""

import jax
import programs
import pytest

from jgs import kernels


@pytest.fixture
def alike(implemented, same_bits):
    """`alike(program, *operands)`: its result in NumPy, for which plain JAX and the kernels,
    with 1 and 4 threads, have the same bits. `optimised`: how floats are rounded matters, so
    plain JAX is compiled as a user has it."""

    def run(program, *operands, threads=(1, 4), optimised=False):
        options = programs.OPTIMISED if optimised else None
        with kernels.plain():
            plain = jax.device_get(jax.jit(program, compiler_options=options)(*operands))
        for number in threads if kernels.available() else ():
            implemented(True, number)
            same_bits(jax.device_get(jax.jit(program)(*operands)), plain)
        return plain

    return run


@pytest.fixture
def graph(make_graph):
    """The graph of files that have none of their own."""
    return make_graph(300, 4000)
