#!/usr/bin/env bash
# One would guess: `jax.random.choice(key, n, shape, p=p)` draws every item that has a probability, if one
# draws long enough. With equal probabilities it draws as it does without `p`.
#
# What happens: an item is found by one float32 of `uniform`, which has 2**23 values, in a running sum of
# float32. So at most 8,388,608 different items are ever drawn, under every key: of 33 million nodes of
# equal weight three quarters never are. Without `p` all are. PyTorch's `multinomial` refuses more than
# 2**24 categories, and NumPy's choice has float64. The documentation warns of small probabilities where
# Gumbel noise is drawn (`categorical`, `replace=False`), which this is not, and `mode="high"` changes
# nothing here. Negatives drawn by a power of the degree, and seeds by weight, are such draws.
#
# Seen on 2026-12-01, jax 0.10.2, Python 3.11, CPU, 33,554,432 items of equal weight, as many draws:
#   different items with p: 8234564 (24.5%)
#   different items without p: 21212064 (63.2%), as many as expected
#   items that both of two keys draw, with p: 98.18% of the smaller set
#
# What jgs does: it compares random bits with sums in int64, of fixed-point weights (jgs/graph/weights.py)
# and of powers of degrees (jgs/sampling/links.py). No draw of jgs uses choice or categorical.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PROGRAM'
import jax
import jax.numpy as jnp
import numpy as np

print("jax", jax.__version__)
COUNT = 1 << 25
weights = jnp.full(COUNT, 1 / COUNT, jnp.float32)


def drawn(seed, p):
    """Which items are drawn."""
    seen = np.zeros(COUNT, bool)
    for part in range(2):
        key = jax.random.fold_in(jax.random.key(seed), part)
        seen[np.asarray(jax.random.choice(key, COUNT, (COUNT // 2,), p=p, mode="high"))] = True
    return seen


first, second, plain = drawn(0, weights), drawn(1, weights), drawn(0, None)
for what, seen in (("with p", first), ("without p", plain)):
    print(f"different items {what}: {seen.sum()} ({seen.mean():.1%})")
both = (first & second).sum() / min(first.sum(), second.sum())
print(f"items that both of two keys draw, with p: {both:.2%} of the smaller set")
assert first.sum() <= 1 << 23 and both > 0.97, "changed: more items are reached"
assert plain.sum() > 0.63 * COUNT
PROGRAM
