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
        "ogbn-arxiv",
        "ogbn-products",
        "ogbn-papers100M",
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
    with pytest.raises(InputError) as caught:  # nothing there, and no network
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
        (tmp_path / "ring.npz", "are normalize_features; got nois"),
    ]:
        with pytest.raises(InputError, match=message):
            load(name, nois=1)
    with pytest.raises(InputError, match="options"):
        load("synthetic", path="x")


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
