"""Host and other devices, on four forced CPU devices of processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOUR = "--xla_force_host_platform_device_count=4"


def check(name, *arguments):
    paths = os.pathsep.join(map(str, (HERE.parent.parent, HERE.parent / "train")))
    done = subprocess.run(
        [sys.executable, HERE / name, *map(str, arguments)],
        env=os.environ | {"XLA_FLAGS": FOUR, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_loader_sends_its_batches():
    assert check("check_loader.py").count("passed") == 11


def test_the_command_trains_on_devices(tmp_path):
    assert check("check_training.py", tmp_path).count("passed") == 1
