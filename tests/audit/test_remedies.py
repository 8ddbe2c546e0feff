"""A leak helps a model, and no longer when it is taken out as its finding says."""

import json

import pytest
from databases import Made
from test_kinds import PLANTED, alarms

import jgs.train
from jgs.audit import audit
from jgs.train.config import Config

REMEDIES = {
    "label-column": "users.badge",
    "label-copy": "accounts.state",
    "telling-gaps": "users.card",
    "label-in-text": "users.about",
    "timeless-facts": None,  # the table is left out
}
NOISE = 0.04  # of a model's accuracy


def learned(made, folder):
    """The test accuracy of a small model."""
    made.write(folder)
    options = {"task_sql": made.sql, **made.options}
    config = Config(
        dataset=str(folder),
        data_options=tuple(f"{name}={value}" for name, value in options.items()),
        run_dir=str(folder / "run"),
        **{"model": "trsage", "fanouts": ("*=5", "*=5"), "hidden": 16, "batch_size": 200},
        **{"epochs": 8, "dropout": 0.0, "progress": False, "lr": 0.02},
    )
    jgs.train.run(config)
    return json.loads((folder / "run" / "result.json").read_text())["test_accuracy"]


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest") / "db"
    accuracy = learned(Made(3, "vip"), folder)
    assert {each.severity for each in audit(run=folder / "run")} <= {"note"}
    return accuracy


@pytest.mark.slow
@pytest.mark.parametrize("name", REMEDIES)
def test_a_model_no_longer_gains(name, honest, tmp_path):
    made = Made(3, "vip")
    PLANTED[name](made)
    leaking = learned(made, tmp_path / "leak")
    if REMEDIES[name] is None:
        del made.keys["refunds"]
    else:
        made.options["hide"] += f",{REMEDIES[name]}"
    mended = learned(made, tmp_path / "mended")
    print(f"{name}: {honest:.3f} without, {leaking:.3f} with, {mended:.3f} mended")
    assert not alarms(made)
    assert leaking > honest + 2 * NOISE
    assert mended < honest + NOISE
