#!/usr/bin/env bash
# One would guess: a model that gives all candidates the same score has a mean reciprocal rank near that of
# guessing, as in OGB's evaluators. And the area under the ROC curve depends on the order of the scores.
#
# What happens: metrax, the metrics of Google for JAX, ranks equal scores by their column. With the link in
# column 0 and its negatives behind it, as most code lays them, a dead model (all zeros, a saturated
# sigmoid, bfloat16) is perfect: MRR 1, NDCG 1. With the link in the last column it is the worst. AUCROC
# counts at 200 fixed thresholds from 0 to 1. Probabilities of a rare event are nearly all in the first two
# of 199 steps, where they are ties, and of logits nothing is told that is below 0 or above 1.
#
# Seen on 2026-12-01, google-metrax 0.2.4, jax 0.10.2, Python 3.11:
#   all of 100 scores equal, link in column 0: MRR 1.000, NDCG@10 1.000
#   all of 100 scores equal, link in column 99: MRR 0.010, NDCG@10 0.000
#   rare events, probabilities: AUROC 0.607, exact 0.911
#   rare events, their logits: AUROC 0.000, exact 0.911
#
# What jgs does: a tie counts half a place in ranks and half a pair in AUROC, which is of all different
# scores (jgs/train/evaluation/ranking.py, metrics.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet google-metrax==0.2.4 jax==0.10.2 jaxlib==0.10.2 scikit-learn==1.9.1
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PROGRAM'
from importlib.metadata import version

import jax
import jax.numpy as jnp
import metrax
import numpy as np
from sklearn.metrics import roc_auc_score

print("google-metrax", version("google-metrax"), "jax", jax.__version__)
QUERIES, EACH = 200, 100
ranked = {}
for column in (0, EACH - 1):
    links = jnp.zeros((QUERIES, EACH), jnp.int32).at[:, column].set(1)
    asked = jnp.zeros((QUERIES, EACH)), links
    mrr = float(metrax.MRR.from_model_output(*asked, jnp.array([EACH])).compute()[0])
    ndcg = float(metrax.NDCGAtK.from_model_output(*asked, jnp.array([10])).compute()[0])
    ranked[column] = round(mrr, 3), round(ndcg, 3)
    print(f"all of {EACH} scores equal, link in column {column}: MRR {mrr:.3f}, NDCG@10 {ndcg:.3f}")
chance = np.random.default_rng(0)
happened = chance.random(20_000) < 0.01
logits = chance.normal(size=happened.size) + 2 * happened - 8
scores = {"probabilities": 1 / (1 + np.exp(-logits)), "their logits": logits}
areas = {}
for what, values in scores.items():
    values = values.astype(np.float32)
    found = metrax.AUCROC.from_model_output(jnp.array(values), jnp.array(happened))
    areas[what] = abs(float(found.compute())), roc_auc_score(happened, values)
    print(f"rare events, {what}: AUROC {areas[what][0]:.3f}, exact {areas[what][1]:.3f}")
assert ranked == {0: (1, 1), EACH - 1: (0.01, 0)}, "changed: ties"
assert all(area < exact - 0.2 for area, exact in areas.values()), "changed: thresholds"
PROGRAM
