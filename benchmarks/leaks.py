"""What a model gains by a leak, and by what is left when it is mended as `jgs audit` says.

    python -m benchmarks.leaks [--users 5000] [--seeds 3] [--epochs 20] [--only late-write ...]

A shop: users join, buy for a month, and are asked once, a month after they joined, whether they
buy within the next 60 days. Who bought much, and whose `level` is high, buys. In the kinds of
wrong splits the world changes as validation begins: low levels buy. Each kind of leak is
planted; `trsage` is trained on the shop without it, with it, and with it mended. `jgs audit`
must name the kind in the second and not in the third. Prints a Markdown table of test AUC.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.__main__ import command_line, say
from benchmarks.leaks_data import LEAKS, Shop

CHANGES = ("split-order", "label-window")  # where the world changes
SETTINGS: dict[str, Any] = {"model": "trsage", "fanouts": ("*=10",) * 2, "latest": True}
SETTINGS |= {"hidden": 32, "batch_size": 256, "dropout": 0.0, "lr": 0.01, "metric": "auc"}
SETTINGS |= {
    "progress": False,
    "options": {"reduce": "sum", "time_unit": 30.0, "norm": "layer"},
}


def main() -> int:
    parser = command_line("leaks", __doc__)
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=LEAKS, default=list(LEAKS))
    given = parser.parse_args()
    print("| leak | AUC without | with | mended | what was mended is |\n" + "|---" * 5 + "|")
    clean: dict[bool, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="jgs-leaks-") as name:
        for kind in given.only:
            plant, mend, how = LEAKS[kind]
            changes = kind in CHANGES
            if changes not in clean:
                clean[changes] = measured(Path(name), given, changes, "", [])
            found = [clean[changes]]
            found += [
                measured(Path(name), given, changes, kind, acts)
                for acts in ([plant], [plant, mend])
            ]
            cells = " | ".join(f"{mean(scores):.3f}" for scores in found)
            print(f"| `{kind}` | {cells} | {how} |", flush=True)
    return 0


def measured(folder: Path, given: Any, changes: bool, kind: str, acts: list) -> list[float]:
    """The test AUC of each seed. The audit names the kind if it is planted and not mended."""
    import jgs
    from jgs.audit import audit

    scores = []
    for seed in range(given.seeds):
        shop = Shop(seed, given.users, changes)
        for act in acts:
            act(shop)
        shop.write(folder / "shop")
        options = {"db_task": "buys"} | ({"hide": shop.hide} if shop.hide else {})
        alarms = audit(folder / "shop", trials=False, **options)
        named = {each.kind for each in alarms if each.severity != "note"}
        if (kind in named) != (len(acts) == 1) or (not acts and named):
            say(f"WRONG: {kind}, {len(acts)} acts: {[str(each) for each in alarms]}")
        config = jgs.train.Config(
            dataset=str(folder / "shop"),
            data_options=tuple(f"{key}={value}" for key, value in options.items()),
            run_dir=str(folder / "shop" / "run"),
            seed=seed,
            epochs=given.epochs,
            **SETTINGS,
        )
        jgs.train.run(config)
        result = json.loads((folder / "shop" / "run" / "result.json").read_text())
        scores.append(result["test_accuracy"])
    say(f"{kind}, {len(acts)} acts: {scores}, found {sorted(named)}")
    return scores


if __name__ == "__main__":
    raise SystemExit(main())
