"""Beside gradient boosting: jgs and trees on one table of labels, where history matters or not.

    python -m benchmarks.tabular [--seeds 3] [--users 1000] [--only "own history"]

The shops are those of `tabular_data.py`: who buys in the next month is decided by the user's
own columns, by the user's last month, or by that of the user's friend. scikit-learn's histogram
trees get the user's columns; these and counts and means of the user's sales in the last 30 and
90 days; and the same of the friend's sales too. jgs gets the database. Both sides have `GRIDS`
of four settings, of which the best on the validation of seed 0 is taken for all seeds, and both
take the best epoch, or number of trees, on validation. A seed makes other data. Seconds are of
one training: of trees the fit alone, of jgs the whole command. Prints a Markdown table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks import tabular_data as tabular
from benchmarks.__main__ import CACHE, command_line, environment, run, say
from benchmarks.typed_quality import cell

GRIDS: dict[str, dict[str, tuple]] = {
    "trees": {"rate": (0.05, 0.1), "leaves": (8, 31)},
    "jgs": {"lr": (5e-3, 2e-2), "reduce": ("mean", "sum")},
}
TREES, THREADS = 300, 2
JGS = """
    --task-sql buys.sql --entity users --model trsage --norm layer --fanouts *=10 *=10 --latest
    --time-unit 30 --batch-size 200 --hidden 32 --dropout 0 --metric auc --no-progress
"""
_REPOSITORY = Path(__file__).parents[1]


def main() -> int:
    given = _arguments()
    trees = "trees" in given.sides
    interpreter = peers.sklearn_python(given.cache.resolve()) if trees else None
    lines = ["| what decides | side | setting | AUC on the test | seconds |", "|---" * 5 + "|"]
    with tempfile.TemporaryDirectory(prefix="jgs-tabular-") as made_in:
        for case in given.only:
            shops = []
            for seed in range(given.seeds):
                shops.append(shop := Path(made_in, f"{case[:9]}{seed}"))
                shop.mkdir()
                tabular.make(shop, case, given.users, seed)
                begun = time.perf_counter()
                made = tabular.by_hand(shop)
                sizes = made.pop("sizes")
                np.savez(shop / "rows.npz", **made)
                say(f"{case}, {seed}: {made['y'].size:,} rows in {_since(begun):.1f} s")
            sides: list[tuple[str, str, dict[str, Any]]] = [
                ("trees", f"trees, {name}", {"columns": columns, "python": str(interpreter)})
                for name, columns in zip(tabular.FEATURES, sizes, strict=True)
            ]
            sides.append(("jgs", "jgs, the database", {"epochs": given.epochs}))
            for side, label, own in sides:
                if side in given.sides:
                    lines.append(_row(case, label, side, shops, own))
    print("\n".join(lines))
    return 0


def _arguments() -> Any:
    parser = command_line("tabular", __doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=3)
    add("--users", type=int, default=1000)
    add("--epochs", type=int, default=20, help="of jgs")
    add("--only", nargs="+", choices=tabular.CASES, default=list(tabular.CASES))
    add("--sides", nargs="+", choices=GRIDS, default=list(GRIDS))
    add("--cache", type=Path, default=CACHE, help="of scikit-learn's environment")
    return parser.parse_args()


def _row(case: str, name: str, side: str, shops: list[Path], own: dict[str, Any]) -> str:
    """The line of a side, whose setting is chosen on the first shop's validation."""
    grid = GRIDS[side]
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    trained = _SIDES[side]
    first = [trained(shops[0], 0, own | setting) for setting in settings]
    best = int(np.argmax([found["val"] for found in first]))
    found = [first[best]]
    found += [trained(shop, i, own | settings[best]) for i, shop in enumerate(shops[1:], 1)]
    said = ", ".join(f"{key} {value}" for key, value in settings[best].items())
    auc, seconds = cell([one["test"] for one in found]), median(one["seconds"] for one in found)
    say(f"{case}, {name}: {said}, {found}")
    return f"| {case} | {name} | {said} | {auc} | {seconds:.1f} |"


def _by_trees(shop: Path, seed: int, setting: dict[str, Any]) -> dict[str, float]:
    asked = setting | {"data": str(shop / "rows.npz"), "trees": TREES, "seed": seed}
    task = {"threads": THREADS, "settings": [asked]}
    variables = environment(THREADS, False, peer=True)
    variables |= {"OMP_WAIT_POLICY": "passive"}  # other work may have the cores
    return run(setting["python"], "tabular_sklearn", task, variables)[0]


def _by_jgs(shop: Path, seed: int, setting: dict[str, Any]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--dataset", "shop.duckdb", "--horizon", tabular.HORIZON]
        flags += [*JGS.split(), "--run-dir", folder + "/run", "--seed", str(seed)]
        flags += [word for key, value in setting.items() for word in (f"--{key}", str(value))]
        begun = time.perf_counter()
        command = [sys.executable, "-m", "jgs.train", *flags]
        variables = environment(THREADS, False) | {"PYTHONPATH": str(_REPOSITORY)}
        subprocess.run(command, cwd=shop, env=variables, check=True, capture_output=True)
        found = json.loads(Path(folder, "run", "result.json").read_text())
        seconds = _since(begun)
        return {
            "val": found["val_accuracy"],
            "test": found["test_accuracy"],
            "seconds": seconds,
        }


def _since(begun: float) -> float:
    return time.perf_counter() - begun


_SIDES = {"trees": _by_trees, "jgs": _by_jgs}


if __name__ == "__main__":
    sys.exit(main())
