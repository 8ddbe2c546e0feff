#!/usr/bin/env bash
# One would guess: BinaryAUROC and BinaryAveragePrecision keep all scores until `compute`, so the result
# is that of all scores, whatever the batches were. The documentation says that logits are accepted: they
# go through a sigmoid, which changes no order.
#
# What happens: each call of `update` decides for its own batch. A batch that has a score outside of [0, 1]
# goes through the sigmoid, one whose scores all happen to lie inside stays as it is, and then both are
# sorted together. So the same model has another AUROC with other batches, the worse the smaller they are.
# And the sigmoid is of float32: logits above 17 are all 1, those of other links too, and count as ties.
#
# Seen on 2026-12-01, torchmetrics 1.9.0, torch 2.13.0, scikit-learn 1.9.1, Python 3.11. 4,096 pairs:
#   scikit-learn: AUROC 0.8691, AP 0.8670
#   in batches of 4096: AUROC 0.8691, AP 0.8670
#   in batches of 8: AUROC 0.8677, AP 0.8628
#   in batches of 2: AUROC 0.8377, AP 0.8192
#   in batches of 1: AUROC 0.8059, AP 0.7853
#   in one batch, all scores times 30: AUROC 0.8416, AP 0.7900
#
# What jgs does: AUROC and AP are of all scores together, as they are, in float64
# (jgs/train/evaluation/metrics.py, ranking.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0 scikit-learn==1.9.1
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import sklearn
import torch
import torchmetrics
from sklearn.metrics import average_precision_score, roc_auc_score
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

print("torchmetrics", torchmetrics.__version__, "torch", torch.__version__, end=" ")
print("scikit-learn", sklearn.__version__)
COUNT = 4096
chance = np.random.default_rng(0)
links = chance.integers(0, 2, COUNT)
scores = (chance.normal(size=COUNT) * 0.6 + links * 0.9).astype(np.float32)


def of_batches(size, factor=1):
    metrics = BinaryAUROC(), BinaryAveragePrecision()
    for start in range(0, COUNT, size):
        part = slice(start, start + size)
        for metric in metrics:
            metric.update(torch.tensor(scores[part] * factor), torch.tensor(links[part]))
    return tuple(float(metric.compute()) for metric in metrics)


found = {"scikit-learn": (roc_auc_score(links, scores), average_precision_score(links, scores))}
found |= {f"in batches of {size}": of_batches(size) for size in (COUNT, 8, 2, 1)}
found["in one batch, all scores times 30"] = of_batches(COUNT, 30)
for what, (area, precision) in found.items():
    print(f"{what}: AUROC {area:.4f}, AP {precision:.4f}")
exact, whole, *parts, large = (area for area, _ in found.values())
assert abs(whole - exact) < 1e-5
assert parts == sorted(parts, reverse=True) and parts[-1] < exact - 0.05, "changed: by batches"
assert large < exact - 0.02, "changed: no ties of large logits"
PROGRAM
