import inspect

import numpy as np
import pytest

from jgs import InputError
from jgs.data import LOADERS, Dataset, load


def test_the_table_is_what_the_command_offers():
    assert list(LOADERS) == [
        "synthetic",
        "cora",
        "citeseer",
        "pubmed",
        "facebook",
        "acm",
        "ogbn-arxiv",
        "ogbn-products",
        "ogbn-papers100M",
        "ogbn-mag",
        "snap",
    ]


@pytest.mark.parametrize("name", LOADERS)
def test_every_loader_has_the_same_form(name, tmp_path):
    parameters = inspect.signature(LOADERS[name]).parameters.values()
    assert [p.name for p in parameters][:2] == ["name", "root"]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters)[2:])
    assert LOADERS[name].__doc__
    if name == "synthetic":
        assert isinstance(load(name, tmp_path, num_nodes=50, num_edges=100), Dataset)
        return
    with pytest.raises(InputError) as caught:  # no file there, and no network
        load(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_unknown_names_list_the_known():
    with pytest.raises(InputError, match=r"synthetic, cora.*snap, or a path; got 'corra'"):
        load("corra")


def test_unknown_options_list_the_known(arrays, tmp_path):
    np.savez(tmp_path / "ring.npz", **arrays)
    for name, message in [
        ("synthetic", "num_nodes, num_edges.*got nois"),
        (tmp_path / "ring.npz", "normalize_features, symmetric, split, label_kind; got nois"),
    ]:
        with pytest.raises(InputError, match=message):
            load(name, nois=1)
    with pytest.raises(InputError, match="options"):
        load("synthetic", path="x")


@pytest.mark.parametrize(
    ("name", "option", "value", "kind"),
    [
        ("ogbn-arxiv", "symmetric", "no", "bool"),
        ("ogbn-arxiv", "symmetric", 0, "bool"),
        ("ogbn-arxiv", "download", "no", "bool"),
        ("ogbn-arxiv", "cache", 1, "str or PathLike or None"),
        ("cora", "normalize_features", "maybe", "bool"),
        ("cora", "normalize_features", None, "bool"),
        ("ring.npz", "normalize_features", "maybe", "bool or None"),
        ("synthetic", "num_nodes", 50.0, "int"),
        ("synthetic", "num_nodes", True, "int"),
        ("synthetic", "noise", "two\nlines", "float"),
        ("synthetic", "noise", False, "float"),
    ],
)
def test_options_must_be_of_their_type(name, option, value, kind, arrays, tmp_path):
    np.savez(tmp_path / "ring.npz", **arrays)
    with pytest.raises(InputError) as caught:
        load(name, tmp_path, **{option: value})
    message = str(caught.value)
    assert f"option {option} of the data set {name} must be of type {kind}; got" in message
    assert "\n" not in message


def test_options_of_their_type_are_taken(arrays, tmp_path):
    sizes = {"num_nodes": np.int64(50), "num_edges": 100}
    for noise in (1, 0.5, np.float32(0.5)):
        assert load("synthetic", **sizes, noise=noise).graph.num_nodes == 50
    np.savez(tmp_path / "ring.npz", **arrays)
    for value in (True, np.True_, None):
        assert load("ring.npz", tmp_path, normalize_features=value).name == "ring"


def test_paths_that_are_no_data_set(arrays, tmp_path):
    (tmp_path / "x.bin").touch()
    (tmp_path / "empty").mkdir()
    for name, message in [("x.bin", "must end in"), ("empty", "got 0 of them")]:
        with pytest.raises(InputError, match=message):
            load(name, tmp_path)


def test_a_folder_with_two_layouts_is_not_guessed(arrays, tmp_path):
    (tmp_path / "features.npy").touch()
    (tmp_path / "ind.cora.graph").touch()
    with pytest.raises(InputError, match="got 2 of them"):
        load(tmp_path)


def test_too_large_for_memory_is_told_of_the_data_set(monkeypatch):
    monkeypatch.setattr("jgs.data.formats.synthetic._check_memory", lambda *sizes: None)
    with pytest.raises(InputError, match=r"synthetic must fit in memory .*Unable"):
        load("synthetic", num_nodes=100, num_edges=10, num_features=2**45)
