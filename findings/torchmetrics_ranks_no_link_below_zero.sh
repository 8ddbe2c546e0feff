#!/usr/bin/env bash
# One would guess: the mean reciprocal rank depends on the order of the scores alone. Adding a constant to
# all of them, or giving logits in place of their sigmoids, changes nothing.
#
# What happens: since the patch release 1.7.4 an item whose score is not above 0 counts as irrelevant in
# RetrievalMRR, RetrievalMAP, RetrievalPrecision and RetrievalRecall. A link that is ranked first with the
# logit -0.1 has the reciprocal rank 0. RetrievalHitRate and RetrievalNormalizedDCG beside them count it. No
# warning is given. GraphBolt's example of link prediction gives RetrievalMRR the decoder's logits.
#
# Seen on 2026-12-01, torch 2.13.0, Python 3.11. 500 links, each among 49 others, all scores moved by a
# constant:
#   torchmetrics 1.7.3, by 0, -1, -2, -4: MRR 0.414 0.414 0.414 0.414, Recall@10 0.728 0.728 0.728 0.728
#   torchmetrics 1.9.0, by 0, -1, -2, -4: MRR 0.413 0.393 0.261 0.004, Recall@10 0.728 0.680 0.296 0.004
#   the hit rate at 10, both: 0.728 0.728 0.728 0.728
#
# What jgs does: a rank is 1 and the number of negatives above, with halves for ties
# (jgs/train/evaluation/ranking.py). docs/from_dgl.md tells who compares figures with GraphBolt's example.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
cat > "$folder/run.py" <<'PROGRAM'
import sys

import numpy as np
import torch
import torchmetrics
from torchmetrics.retrieval import RetrievalHitRate, RetrievalMRR, RetrievalRecall

LINKS, EACH = 500, 50
chance = np.random.default_rng(0)
scores = chance.normal(size=(LINKS, EACH))
scores[:, 0] += 1.5
links = torch.zeros((LINKS, EACH), dtype=torch.long)
links[:, 0] = 1
queries = torch.arange(LINKS).repeat_interleave(EACH)
exact = (1 / (1 + (scores[:, 1:] > scores[:, :1]).sum(axis=1))).mean()


def measured(metric):
    """The metric of the scores moved by each constant."""
    found = []
    for moved in (0, -1, -2, -4):
        preds = torch.tensor((scores + moved).reshape(-1), dtype=torch.float32)
        found.append(float(metric(preds, links.reshape(-1), indexes=queries)))
        metric.reset()
    return np.array(found)


mrr, recall = measured(RetrievalMRR()), measured(RetrievalRecall(top_k=10))
hits = measured(RetrievalHitRate(top_k=10))
print(f"torchmetrics {torchmetrics.__version__}, torch {torch.__version__}, exact MRR {exact:.3f}")
for name, row in (("MRR", mrr), ("Recall@10", recall), ("hit rate at 10", hits)):
    print(f"  {name}:", *(f"{value:.3f}" for value in row))
assert np.ptp(hits) == 0
if sys.argv[1] == "before":
    assert abs(mrr - exact).max() < 1e-6 and np.ptp(recall) == 0
else:
    assert mrr[-1] < 0.02 < exact and recall[-1] < 0.02, "changed: order alone decides again"
PROGRAM
for version in 1.7.3 1.9.0; do
  "$folder/env/bin/pip" install --quiet --no-compile "torchmetrics==$version"
  when=now
  [ "$version" = 1.7.3 ] && when=before
  "$folder/env/bin/python" "$folder/run.py" "$when"
done
