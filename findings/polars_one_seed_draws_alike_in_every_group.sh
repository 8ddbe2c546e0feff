#!/usr/bin/env bash
# One would guess: `group_by("user").agg(pl.col("item").sample(2, seed=0))` draws two items of each user,
# independently of each other and repeatably, as `groupby.sample(random_state=0)` of pandas does. Without
# a seed, but after `pl.set_random_seed(0)`, the draws repeat too.
#
# What happens: the seed begins anew in each group. Users with the same number of items draw the same
# places: of sorted histories all users keep the same weeks, and neighbours that are drawn so for all nodes
# are one draw, not one for each node. Without a seed the groups differ, but the global seed is handed out
# in the order in which a hash table has the groups, which is another one each time: after the same
# set_random_seed nearly all users draw other items, with one thread too. `shuffle().over("user")` does
# the same. With maintain_order=True and without a seed draws differ and repeat.
#
# Seen on 2026-12-01, polars 2.1.0, pandas 3.1.1, Python 3.11, 2 cores, 1,000 users with ten items each:
#   polars, seed=0: 1 different draws; 0 of 1000 differ again
#   polars, no seed: 90 different draws; 989 of 1000 differ again
#   polars, no seed, maintain_order=True: 90 different draws; 0 of 1000 differ again
#   pandas, random_state=0: 90 different draws; 0 of 1000 differ again
#
# What jgs does: the draws of a node belong to (key, hop, node), on any number of threads, and are tested
# for independence between nodes (`python -m benchmarks.battery`).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet polars==2.1.0 pandas==3.1.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import pandas as pd
import polars as pl

USERS, ITEMS = 1000, 10
table = {"user": np.repeat(np.arange(USERS), ITEMS), "item": np.tile(np.arange(ITEMS), USERS)}


def by_polars(seed, **how):
    pl.set_random_seed(0)
    groups = pl.DataFrame(table).group_by("user", **how)
    drawn = groups.agg(pl.col("item").sample(2, seed=seed)).sort("user")
    return [tuple(items) for items in drawn["item"].to_list()]


def by_pandas():
    drawn = pd.DataFrame(table).groupby("user").sample(2, random_state=0)
    return [tuple(items) for items in drawn["item"].to_numpy().reshape(-1, 2).tolist()]


def told(what, draw):
    """How many draws differ between users, and of how many users between two runs, at most."""
    first = draw()
    changed = max(sum(a != b for a, b in zip(first, draw(), strict=True)) for _ in range(5))
    print(f"{what}: {len(set(first))} different draws; {changed} of {USERS} differ again")
    return len(set(first)), changed


print("polars", pl.__version__, "pandas", pd.__version__)
seeded = told("polars, seed=0", lambda: by_polars(0))
free = told("polars, no seed", lambda: by_polars(None))
ordered = told("polars, no seed, maintain_order=True", lambda: by_polars(None, maintain_order=True))
pandas = told("pandas, random_state=0", by_pandas)
assert seeded == (1, 0), "changed: groups have draws of their own"
assert free[0] > 80 and free[1] > 900, "changed: draws repeat after set_random_seed"
assert ordered[0] > 80 and ordered[1] == 0 and pandas[0] > 80 and pandas[1] == 0
PROGRAM
