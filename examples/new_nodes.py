"""A trained model on nodes and edges that came after training: exact predictions, predictions
from sampled neighbours, and an explanation. Writes neighborhood.png.

python examples/new_nodes.py [EPOCHS]
"""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import jgs
from jgs.train.__main__ import main as train

epochs = sys.argv[1] if len(sys.argv) > 1 else "10"
later = jgs.data.load("synthetic", num_nodes=2000, num_edges=20_000, num_classes=5)
old, new = np.arange(1600), np.arange(1600, 2000)

# What is known at first: 1,600 nodes, and the edges among them.
graph, folder = later.graph.subgraph(old), Path(tempfile.mkdtemp())
np.savez(
    folder / "first.npz",
    indptr=np.asarray(graph.indptr),
    indices=np.asarray(graph.indices),
    features=np.asarray(later.features)[old],
    labels=later.labels[old],
    class_names=np.array([f"class {label}" for label in range(later.num_classes)]),
    train_idx=old[:1000],
    val_idx=old[1000:1300],
    test_idx=old[1300:],
)
flags = f"--dataset {folder / 'first.npz'} --batch-size 100 --hidden 16 --epochs {epochs}"
train([*flags.split(), "--run-dir", str(folder / "run")])

# The same model on today's graph: nothing is trained again.
run = jgs.open_run(folder / "run")
print(run)
now = {"graph": later.graph, "features": later.features}
for how, options in (
    ("by all neighbours", {}),
    ("by 5 sampled ones a node", {"fanouts": (5, 5), "key": jax.random.key(1)}),
):
    found = run.predict(new, **now, **options)
    right = np.mean(found.prediction == later.labels[new])
    print(f"{right:.3f} of the new nodes are classified rightly {how}")
print(f"node {new[0]} is of {run.class_names[run.predict(new[:1], **now).prediction[0]]}")

# What decided the prediction: the node's features, its neighbours' features, the edges.
why = run.explain(new[0], **now)
strongest = np.argsort(-np.abs(why.edges))[:3]
for e in strongest:
    edge = f"{why.src[e]} -> {why.dst[e]} (hop {why.hop[e]})"
    print(f"the edge {edge} adds {why.edges[e]:+.3f} to an output of {why.output:.3f}")
jgs.viz.neighborhood(why).figure.savefig("neighborhood.png", dpi=120)
