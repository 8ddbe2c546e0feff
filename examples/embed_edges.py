"""From an edge list to embeddings of its nodes (node2vec), and a picture of them, which
is written to embeddings.png.

python examples/embed_edges.py [EPOCHS]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jgs.train.__main__ import main as train

epochs = sys.argv[1] if len(sys.argv) > 1 else "10"
rng = np.random.default_rng(0)
group = np.repeat(np.arange(5), 100)  # who knows whom: mostly those of the same group
edges = rng.integers(500, size=(60_000, 2))
edges = edges[(group[edges[:, 0]] == group[edges[:, 1]]) | (rng.random(60_000) < 0.02)]
run = Path(tempfile.mkdtemp())
np.savetxt(run / "edges.txt", edges, fmt="%d")  # any text file of two columns works
flags = f"--task embed --sampler node2vec --p 1 --q 0.5 --dim 32 --epochs {epochs}"
train([*flags.split(), "--dataset", str(run / "edges.txt"), "--run-dir", str(run / "run")])
rows = np.load(json.loads((run / "run" / "result.json").read_text())["embeddings"])
x, y = np.linalg.svd(rows - rows.mean(axis=0))[0].T[:2]  # the rows' two principal components
figure = Figure(figsize=(5, 4), layout="constrained")
figure.subplots().scatter(x, y, c=group, s=8, cmap="tab10")
figure.savefig("embeddings.png", dpi=120)
