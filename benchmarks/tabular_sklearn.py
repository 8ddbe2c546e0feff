"""One side of `tabular.py`, in scikit-learn's environment: trees on features made by hand."""

from __future__ import annotations

import time

import numpy as np

from benchmarks import worker


def prepare(task: dict):
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    def measure(setting: dict) -> dict:
        """The AUC on validation and test, after as many tens of trees as are best on
        validation; and the seconds of the fit."""
        data = np.load(setting["data"])
        x, y = data["x"][:, : setting["columns"]], data["y"]
        splits = [data["split"] == number for number in range(3)]
        begun = time.perf_counter()
        model = HistGradientBoostingClassifier(
            max_iter=setting["trees"],
            learning_rate=setting["rate"],
            max_leaf_nodes=setting["leaves"],
            categorical_features=[2],
            early_stopping=False,
            random_state=setting["seed"],
        )
        model.fit(x[splits[0]], y[splits[0]])
        seconds = time.perf_counter() - begun
        staged = [
            [
                roc_auc_score(y[split], odds)
                for odds in list(model.staged_decision_function(x[split]))[9::10]
            ]
            for split in splits[1:]
        ]
        best = int(np.argmax(staged[0]))
        return {"val": staged[0][best], "test": staged[1][best], "seconds": seconds}

    return measure


if __name__ == "__main__":
    worker.main(prepare)
