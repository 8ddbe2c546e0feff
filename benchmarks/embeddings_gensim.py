"""What jgs's skip-gram and gensim's learn from the same walks: macro-F1 and micro-F1.

    python -m benchmarks.embeddings_gensim [--only words] [--walks node2vec] [--seeds 5]

Both have 128 dimensions, window 10, 5 negatives and one epoch, and otherwise their defaults.
jgs draws the walks, 10 of 80 steps from each node, and learns from them as `--task embed` does;
gensim gets the same. For node2vec p and q are 0.25. A seed has its own walks, first vectors and
splits. The graphs are `blogcatalog` and `words`
(`benchmarks/word_graph.py`), which has weights. The probe is logistic regression of each label
against the rest on a tenth, half and nine tenths of the nodes, a mean over 5 splits. A node
with `k` labels is predicted the `k` most likely ones. Prints a Markdown table of means over
the seeds, with their standard errors, and of jgs's scores less gensim's. The standard error of
these differences is the smaller one, as both sides have the same walks and splits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from benchmarks import peers
from benchmarks.__main__ import CACHE
from benchmarks.embeddings import summary
from jgs.command import configure_jax
from jgs.dist.communicators.comm import Alone
from jgs.train.config import Config
from jgs.train.tasks.embed import EmbedJob, EmbedLearner, probe

GRAPHS, SHARES, SPLITS = ("blogcatalog", "words"), (0.1, 0.5, 0.9), 5
WALKS = {
    "DeepWalk": {"sampler": "walk"},
    "node2vec": {"sampler": "node2vec", "p": 0.25, "q": 0.25},
}


def learned(config: Config, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """jgs's embeddings, the walks that they were learned from, and the nodes' labels."""
    job = EmbedJob(config, Alone())
    learner, walks = EmbedLearner(job, jax.random.key(seed), None), []
    for batch in job.loader:
        walks.append(np.asarray(batch.nodes))
        learner.step(batch, None, False)
    job.close()
    nodes = np.concatenate(walks)
    vectors = learner.arrays()["rows"][::2, :-1]
    return vectors, nodes[nodes[:, 0] < len(vectors)], job.data.plain.labels


def by_gensim(
    python: Path, folder: Path, walks: np.ndarray, num_nodes: int, seed: int
) -> np.ndarray:
    """gensim's embeddings from the same walks."""
    task = {"walks": str(folder / "walks.npy"), "vectors": str(folder / "vectors.npy")}
    np.save(task["walks"], walks)
    task |= {"num_nodes": num_nodes, "width": 128, "window": 10, "negatives": 5}
    script = Path(__file__).with_name("words_gensim.py")
    command = [python, script, json.dumps(task | {"epochs": 1, "workers": 2, "seed": seed})]
    subprocess.run(command, check=True, capture_output=True)
    return np.load(task["vectors"])


def scores(vectors: np.ndarray, labels: np.ndarray | None, seed: int) -> np.ndarray:
    """float64 `[3, 2]`: macro-F1 and micro-F1 for each share of nodes with known labels."""
    found = np.zeros((len(SHARES), SPLITS, 2))
    for i, share in enumerate(SHARES):
        for split in range(SPLITS):
            order = np.random.default_rng([seed, split]).permutation(len(vectors))
            known = int(share * len(vectors))
            one = probe(vectors, labels, order[:known], order[known:])
            found[i, split] = one["macro_f1"], one["micro_f1"]
    return found.mean(axis=1)


def cells(found: np.ndarray, sign: str = "") -> str:
    """Of the scores `[S, 3, 2]` of `S` seeds, `macro-F1 / micro-F1` for each share: the mean,
    and for several seeds its standard error."""
    pairs = ([summary(one, sign) for one in share.T] for share in np.moveaxis(found, 1, 0))
    return " | ".join(" / ".join(pair) for pair in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", default="../shared/data", help="folder of blogcatalog.npz")
    add("--seeds", type=int, default=5, help="of each line: seeds 0 to N-1")
    add("--only", nargs="+", choices=GRAPHS, default=list(GRAPHS), metavar="GRAPH")
    add("--walks", nargs="+", choices=WALKS, default=list(WALKS), metavar="WALK")
    arguments = parser.parse_args()
    configure_jax()
    try:
        gensim = peers.gensim_python(CACHE)
    except peers.Missing as error:
        sys.exit(f"gensim could not be installed: {error}")
    known = " | ".join(f"{share:.0%} known" for share in SHARES)
    print(f"| graph | walks | seeds | by | {known} |")
    print("|---" * (4 + len(SHARES)) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graph in arguments.only:
            data, weighted = Path(arguments.root) / f"{graph}.npz", graph == "words"
            if weighted:
                data, script = folder / "words.npz", Path(__file__).with_name("word_graph.py")
                subprocess.run([gensim, script, data], check=True)
            for walk in arguments.walks:
                given = WALKS[walk] | {"weighted": weighted, "epochs": 1, "progress": False}
                config = Config(dataset=str(data), task="embed", **given)
                ours, theirs = [], []
                for seed in range(arguments.seeds):
                    vectors, walks, labels = learned(config, seed)
                    ours.append(scores(vectors, labels, seed))
                    vectors = by_gensim(gensim, folder, walks, len(vectors), seed)
                    theirs.append(scores(vectors, labels, seed))
                mine, wanted = np.array(ours), np.array(theirs)
                for by, row in (("jgs", cells(mine)), ("gensim", cells(wanted))):
                    print(f"| {graph} | {walk} | {arguments.seeds} | {by} | {row} |")
                print(f"| | | | difference | {cells(mine - wanted, '+')} |", flush=True)


if __name__ == "__main__":
    main()
