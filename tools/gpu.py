"""What a machine with GPUs must show: `python tools/gpu.py [--platform cuda] [--seconds 570]`.

It trains the same run on the host, on a GPU, and on all GPUs that draw and share the rows, and
compares what they validate; it runs the tests that lower programs; it builds the CUDA kernels,
runs their tests, and times them beside plain JAX; and it times the ways of
`benchmarks.devices`. Each part has a share of the seconds and is ended after it. Prints what
each part says, and a last line; its status is 0 if all parts passed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = """-m jgs.train --data-options num_nodes=20000 num_edges=400000 num_features=64
    num_classes=8 --fanouts 5 5 --hidden 64 --batch-size 480 --epochs 2 --no-progress
    --run-dir"""
PLACES = {
    "host": "--device cpu",
    "device": "--device {kind}",
    "fused": "--device {kind} --features sharded",
    "all": "--device {kind}:all --features sharded",
}
TESTS = "-m pytest -q -x -n 0 -p no:cacheprovider tests/test_lowering.py"
BUILD = """cmake -S jgs/kernels -B build/cuda -DJGS_CUDA=ON -DPython_EXECUTABLE={python}
    && cmake --build build/cuda --target jgs_cuda"""
LIBRARY = ROOT / "build/cuda/libjgs_cuda.so"
KERNEL_TESTS = "-m pytest -q -n 0 -p no:cacheprovider tests/kernels/test_cuda.py"
KERNEL_TIMES = "-m benchmarks.device_kernels"
WAYS = "-m benchmarks.devices --steps 100 --device {kind}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="cuda", help="cuda; cpu tries this script alone")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--small", action="store_true", help="a small graph for the ways")
    given = parser.parse_args()
    kind = {"cuda": "gpu"}.get(given.platform, given.platform)
    environment = os.environ | {"JAX_PLATFORMS": ",".join({given.platform: 0, "cpu": 0})}
    began, failed = time.monotonic(), []

    def part(name: str, command: str, share: float) -> str:
        left = given.seconds - (time.monotonic() - began)
        print(f"== {name}", flush=True)
        command = command.format(kind=kind, python=sys.executable)
        words = [sys.executable, *command.split()]
        if not command.startswith("-"):
            words = ["sh", "-c", " ".join(command.split())]
        options = {"cwd": ROOT, "env": environment, "text": True, "stdout": subprocess.PIPE}
        try:
            limit = max(1, min(left, share * given.seconds))
            done = subprocess.run(words, timeout=limit, **options)
            text, good = done.stdout, done.returncode == 0
        except subprocess.TimeoutExpired as error:
            text, good = (error.stdout or b"").decode(), False
        print(text.rstrip(), f"{'' if good else 'FAILED '}({name})", sep="\n", flush=True)
        failed.extend([] if good else [name])
        return text

    part("doctor", "-m jgs.doctor", 0.2)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in PLACES.items():
            text = part(f"train: {name}", f"{TRAIN} {folder}/{name} {flags}", 0.2)
            if text.strip():
                found[name] = json.loads(text.strip().splitlines()[-1])["val_accuracy"]
    if len(found) == len(PLACES) and max(found.values()) - min(found.values()) > 0.02:
        failed.append(f"validation differs: {found}")
    part("tests", TESTS, 0.25)
    if given.platform == "cuda":
        part("CUDA kernels", BUILD, 0.2)
        environment["JGS_CUDA"] = str(LIBRARY)
        part("tests of CUDA kernels", KERNEL_TESTS, 0.2)
    small = " --scale 14 --edges 200000" if given.small else ""
    part("kernels and plain JAX", f"{KERNEL_TIMES}{small}", 0.2)
    environment.pop("JGS_CUDA", None)
    more = f"{small} --hidden 32" if given.small else ""
    part("ways", f"{WAYS}{more}", 0.4)
    part("all devices", f"{WAYS}:all{more} --ways fused", 0.2)
    if given.platform == "cuda":
        environment["JGS_CUDA"] = str(LIBRARY)
        part("one program with CUDA kernels", f"{WAYS}{more} --ways fused", 0.2)
    print("failed: " + "; ".join(failed) if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
