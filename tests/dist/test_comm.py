"""The same checks for every kind of communicator; most of them are in check_comm.py."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from ranks import run_ranks

from jgs.dist.communicators.comm import OWN, SAME, Alone
from jgs.dist.communicators.emulate import Emulated


@pytest.mark.parametrize(
    ("kind", "n"), [("mpi", 2), ("mpi", 3), ("mpi", 4), ("jax", 2), ("devices", 4)]
)
def test_collectives(kind, n):
    output = run_ranks(Path(__file__).with_name("check_comm.py"), kind, n, n)
    assert output.count("is content") == (1 if kind == "devices" else n)


def test_one_rank():
    comm = Emulated(Alone(), latency=1, bandwidth=1)  # no round is needed, so no time passes
    program = comm.program(
        lambda x: (comm.all_to_all(x), comm.all_reduce(x), comm.all_gather(x), comm.index()),
        (OWN,),
        (OWN, SAME, SAME, OWN),
    )
    x = jnp.arange(3.0)[None]
    exchanged, total, gathered, index = program(comm.own([x]))
    np.testing.assert_array_equal(exchanged, x)
    np.testing.assert_array_equal(total, x)
    np.testing.assert_array_equal(gathered, x[None])
    assert index == 0
    assert comm.counters.rounds == comm.counters.bytes == comm.seconds == 0
