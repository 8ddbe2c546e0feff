"""The same checks for every kind of communicator: they are in check_comm.py."""

from pathlib import Path

import pytest
from cases import cases
from ranks import run_ranks


@cases(
    "kind, n",
    ("mpi", 2),
    ("jax", 2),
    ("devices", 4),
    # Devices show what four ranks do, and three ranks are in test_watchdog.py.
    pytest.param("mpi", 3, marks=pytest.mark.slow),
    pytest.param("mpi", 4, marks=pytest.mark.slow),
)
def test_collectives(kind, n):
    output = run_ranks(Path(__file__).with_name("check_comm.py"), kind, n, n)
    assert output.count("is content") == (1 if kind == "devices" else n)
