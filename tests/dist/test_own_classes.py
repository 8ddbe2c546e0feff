"""Classes of a user: `--sampler package.module:Class` and `--model package.module:Class`."""

import sys

import numpy as np
import pytest
from cases import cases
from refusals import command_refused
from small_ranks import FLAGS, ranks_of, train_on

import jgs
from jgs.train.__main__ import main
from jgs.train.flags import help_page

MINE = '''
from dataclasses import dataclass, field
from typing import Annotated

from jgs.models import GNN, SAGEConv
from jgs.options import Option
from jgs.sampling import MatrixSampler


@dataclass(frozen=True)
class ByDegree(MatrixSampler):
    """Neighbours in proportion to a power of their degree."""

    power: Annotated[float, Option("the power", least=0)] = 1.0

    def layer(self, A, frontier, k):
        bias = A.count(axis=0) ** self.power
        sub = A[:, frontier]
        return sub.individual_sample(k, sub.mul(bias[sub.row()], axis=1))


class Wide(GNN):
    def __init__(self, in_features, hidden, out_features, num_layers, *, rngs, **options):
        raise NotImplementedError


class Net(GNN):
    """Layers that are wider."""

    def __init__(
        self, in_features, hidden_features, out_features, num_layers, *, rngs,
        widen: int = 1, **options
    ):
        inner = [hidden_features * widen] * (num_layers - 1)
        widths = [in_features, *inner, out_features]
        layers = [SAGEConv(a, b, rngs=rngs) for a, b in zip(widths, widths[1:])]
        super().__init__(layers, rngs=rngs, **options)


class Seeded(ByDegree):
    def __init__(self, seed: int = 0):
        super().__init__((2, 2))


@dataclass(frozen=True)
class Asking(ByDegree):
    k: int = None
    sizes: tuple[int, ...] = field(default_factory=lambda: (2, 2))
    width: int = field(kw_only=True)


class Unread(ByDegree):
    def __init__(self, one: "Nowhere" = 3):
        super().__init__((2, 2))


thing = 3
'''
OWN = (
    "--sampler mine:ByDegree --sizes 3 2 --power 0.5 --model mine:Net --widen 2 --batch-size 8"
)
# The flags of other tests' runs without their --fanouts.
OWN_FLAGS = [*OWN.split(), *FLAGS[3:]]
DATA = ["--data-options", "num_nodes=600", "num_edges=4000", "num_features=5", "seed=0"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_they_train_resume_and_predict(mine, capsys, monkeypatch):
    saved = mine / "run"
    new = [*OWN_FLAGS, *DATA, "--epochs", "1", "--run-dir", str(saved)]
    assert main(new) == 0
    # The saved run knows its classes, and so which flags it has.
    again = ["--run-dir", str(saved), "--resume", "--epochs", "2"]
    assert main([*again, "--power", "0.5"]) == 0
    run = jgs.open_run(saved)
    assert run.model.layers[0].out_features == 16
    assert run.logits(np.arange(9)).shape[0] == 9
    assert run.config.power == 0.5
    command_refused(capsys, "--power 2.0 there 0.5", main, [*again, "--power", "2"])

    monkeypatch.delitem(sys.modules, "mine")
    (mine / "mine.py").rename(mine / "yours.py")
    assert main([*again, "--power", "2"]) == 2
    with pytest.raises(jgs.InputError, match=r"^--sampler must name a module"):
        jgs.open_run(saved)


@cases(
    "flags, said",
    ("--sampler nowhere:X", "--sampler must name a module that can be imported; got nowh"),
    ("--sampler mine:Nothing", "a class of its module; got mine:Nothing, which is"),
    ("--sampler mine:thing", "a class of its module; got mine:thing, which is no"),
    ("--sampler mine", "or package.module:Class; got 'mine'"),
    ("--sampler mine:Net", "must be a sampler, see the docs; got mine:Net, which has no"),
    ("--model mine:ByDegree", "must be a model, see the docs; got mine:ByDegree, which"),
    ("--model mine:Wide", "--model must be made of its options; got mine:Wide (TypeErr"),
    ("--sampler mine:Seeded", "not have the names of other flags; got seed of mine:Seeded"),
    ("--sampler mine:ByDegree --power -1", "--power must be at least 0"),
    ("--sampler mine:ByDegree --fanouts 3", "--fanouts must be for --sampler neighbors or"),
    ("--sampler labor --power 2", "unrecognized arguments: --power 2"),
    ("--sampler mine:Asking", "--width must be given; got nothing. Give it"),
    ("--sampler mine:Unread", "annotations that can be read; got mine:Unread (NameError"),
)
def test_what_is_refused(mine, capsys, flags, said):
    small = ["--batch-size", "8", *DATA, "--run-dir", str(mine / "run")]
    command_refused(capsys, said, main, [*flags.split(), *small])


def test_help_shows_their_flags(mine):
    assert "Neighbours in proportion to a power" in help_page("mine:ByDegree")
    assert "--power FLOAT" in help_page("mine:ByDegree")
    assert "--edge-ids" not in help_page("mine:ByDegree")
    assert "--widen INT" in help_page("mine:Net")


@pytest.mark.slow  # a training on ranks
def test_they_run_on_ranks(mine, parts):
    two = [*OWN_FLAGS, "--partition", parts, "--epochs", 1, "--run-dir", mine / "ranks"]
    train_on(ranks_of(2), *two)
    assert jgs.open_run(mine / "ranks").config.widen == 2
