"""`keep_freed_memory`: freed memory is not handed back to the system."""

import platform
import sys

import pytest
from forks import ran

import jgs
import jgs.train.__main__ as command

PROGRAM = """
import resource, sys
import numpy as np
import jgs
if sys.argv[1] == "keep":
    assert jgs.keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(16 << 20, np.float32)  # 64 MiB: 16,384 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_used_again():
    """Importing jgs alone changes nothing: each time pages are new, huge ones or not."""
    faults = {}
    for mode in ("keep", "leave"):
        faults[mode] = int(ran(sys.executable, "-c", PROGRAM, mode))
    assert faults["keep"] < 100
    assert faults["leave"] >= 30


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jgs.keep_freed_memory() is False


def test_the_training_command_keeps_memory_unless_told_not_to(monkeypatch):
    calls = []
    monkeypatch.setattr(command, "keep_freed_memory", lambda: calls.append(1))
    for flags in ([], ["--no-keep-memory"]):
        assert command.main(["--dataset", "no-such-data", *flags]) == 2
        assert len(calls) == 1
