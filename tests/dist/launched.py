"""`python -m jgs.train --partition` as several processes."""

import json
import time

from jgs.partition.__main__ import main as partition

FLAGS = ["--fanouts", "3", "2", "--hidden", "8", "--no-progress", "--watchdog", "8"]
LIMIT = 240  # seconds; enough on a machine that is busy with other work


def make_parts(out, seed=0, num_parts=4):
    options = ["num_nodes=600", "num_edges=4000", "num_features=5", f"seed={seed}"]
    argv = ["--dataset", "synthetic", "--data-options", *options]
    argv += ["--parts", str(num_parts)]
    assert partition([*argv, "--method", "ldg", "--out", str(out)]) == 0
    return out


def finish(processes):
    """Exit statuses, and what all processes wrote to standard output and to standard error."""
    end = time.monotonic() + LIMIT
    said = [p.communicate(timeout=max(end - time.monotonic(), 1)) for p in processes]
    outs, errs = zip(*said, strict=True)
    err = "".join(line for line in "".join(errs).splitlines(True) if "[Gloo]" not in line)
    return [p.returncode for p in processes], "".join(outs), err


def result(processes):
    statuses, out, err = finish(processes)
    assert set(statuses) == {0}, err
    assert out.count("\n") == 1, out
    assert "Traceback" not in err
    return json.loads(out), err
