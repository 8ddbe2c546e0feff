"""Words a second of skip-gram beside gensim's Word2Vec, and what the embeddings are worth.

    python -m benchmarks.words [--root ../shared/data] [--rounds 3]

Uniform walks of 80 steps on Cora, 10 from each node an epoch, 128 dimensions, window 10, 5
negatives, 2 epochs, 2 threads. In each round gensim runs first, on walks that jgs has drawn.
Then `python -m jgs.train --task embed` runs, which draws its own walks while it trains. Each is
a process of its own. gensim's time is that of `train`. jgs's time is that of the second epoch,
because the first one compiles. Prints a Markdown table: medians, and the accuracy of each
round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import jgs.data
from benchmarks import peers
from benchmarks.__main__ import CACHE
from jgs.sampling import Walk
from jgs.train.tasks.embed import probe

LENGTH, PASSES, EPOCHS = 80, 10, 2


def run(command: list) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="../shared/data", help="folder of cora.npz")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        gensim = peers.gensim_python(CACHE)
    except peers.Missing as error:
        sys.exit(f"gensim could not be installed: {error}")
    data = jgs.data.load("cora", arguments.root)
    roots = np.arange(data.graph.num_nodes, dtype=np.int32)
    speeds: dict[str, list[float]] = {"gensim": [], "jgs": []}
    scores: dict[str, list[float]] = {"gensim": [], "jgs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawn = [
            Walk(LENGTH).sample(jax.random.key(i), data.graph, (), roots) for i in range(PASSES)
        ]
        np.save(folder / "walks.npy", np.concatenate([walks.nodes for walks in drawn]))
        task = {
            "walks": str(folder / "walks.npy"),
            "vectors": str(folder / "vectors.npy"),
            "num_nodes": roots.size,
            **{"width": 128, "window": 10, "negatives": 5, "epochs": EPOCHS, "workers": 2},
        }
        flags = f"--task embed --dataset cora --root {arguments.root} --epochs {EPOCHS}"
        for number in range(arguments.rounds):
            script = Path(__file__).with_name("words_gensim.py")
            given = json.dumps(task | {"seed": number})
            said = json.loads(run([gensim, script, given]).splitlines()[-1])
            speeds["gensim"].append(said["words"])
            vectors = np.load(task["vectors"])
            scores["gensim"].append(
                probe(vectors, data.labels, data.train_idx, data.test_idx)["accuracy"]
            )
            place = folder / f"run{number}"
            command = [sys.executable, "-m", "jgs.train", *flags.split()]
            command += ["--no-progress", "--seed", str(number), "--run-dir", place]
            result = json.loads(run(command).splitlines()[-1])
            lines = (place / "metrics.jsonl").read_text().splitlines()
            walks_a_second = json.loads(lines[-1])["seeds_per_second"]
            speeds["jgs"].append(walks_a_second * (LENGTH + 1))
            scores["jgs"].append(result["accuracy"])
    print("| | words a second | accuracy |\n|---|---|---|")
    for name, measured in speeds.items():
        accuracies = ", ".join(f"{score:.3f}" for score in scores[name])
        print(f"| {name} | {statistics.median(measured):,.0f} | {accuracies} |")
    pairs = zip(speeds["jgs"], speeds["gensim"], strict=True)
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    print(f"\njgs: {ratio:.1f} times as many.")


if __name__ == "__main__":
    main()
