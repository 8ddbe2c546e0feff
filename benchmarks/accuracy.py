"""Test accuracy on the three real graphs, with the reference settings of other libraries.

    python benchmarks/accuracy.py [--data FOLDER] [--seeds N] [NAME ...]

Prints a Markdown table. The reference is mini-batch GraphSAGE: mean aggregator, fanouts 10 and
10, dropout 0.5, row-normalised features. Its figure is the test accuracy at the best validation
epoch.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

COMMON = "--fanouts 10 10 --dropout 0.5"
PLANETOID = "--hidden 64 --batch-size 64 --lr 5e-3 --weight-decay 5e-4 --epochs 50"
FLAGS = {
    "cora": PLANETOID,
    "citeseer": PLANETOID,
    "facebook": "--hidden 256 --batch-size 1000 --lr 6e-3 --epochs 10",
}
REFERENCE = {"cora": 80.5, "citeseer": 69.3, "facebook": 94.3}


def train(name: str, data: str, seed: int) -> dict:
    with tempfile.TemporaryDirectory() as run_dir:
        flags = f"--dataset {name} --root {data} {COMMON} {FLAGS[name]} --seed {seed}"
        command = [sys.executable, "-m", "jgs.train", *flags.split(), "--run-dir", run_dir]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FLAGS), metavar="NAME")
    parser.add_argument("--data", default="../shared/data", help="folder of the .npz archives")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N-1")
    arguments = parser.parse_args()
    print("| graph | test accuracy, mean | each seed | reference | seconds a run, median |")
    print("|---|---|---|---|---|")
    for name in arguments.names:
        runs = [train(name, arguments.data, seed) for seed in range(arguments.seeds)]
        accuracy = [100 * run["test_accuracy"] for run in runs]
        print(
            f"| {name} | {statistics.mean(accuracy):.2f} % "
            f"| {', '.join(f'{a:.1f}' for a in accuracy)} | {REFERENCE[name]} % "
            f"| {statistics.median(run['seconds'] for run in runs):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
