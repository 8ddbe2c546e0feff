"""Opening a folder of parts names what is damaged, and reads no more than it must."""

import shutil
from pathlib import Path

import pytest
from made_parts import make_data, write
from refusals import refused

from jgs import InputError
from jgs.data.parts import open_parts, part_name
from jgs.files import verified


def of_others(path):
    """The folder `path` of other parts takes its place."""
    other = path.parents[1] / "other"
    write(other, make_data(50, 300, seed=1), 3)
    shutil.rmtree(path)
    (other / path.name).rename(path)


def change(path, changed):
    path.write_bytes(changed(path.read_bytes()))


def flip(path):
    change(path, lambda content: content[:-1] + bytes([content[-1] ^ 1]))


def cut(path):
    change(path, lambda content: content[:-4])


def edit(path):
    change(path, lambda content: content.replace(b'"num_nodes": 50', b'"num_nodes": 51'))


FEATURES, INDICES = f"{part_name(1)}/features.npy", f"{part_name(1)}/indices.npy"
DAMAGE = [
    (of_others, part_name(1), "part-00001 must belong to the parts"),
    (of_others, "graph", "graph must belong to the parts"),
    (flip, FEATURES, "features.npy must have the manifest's checksum"),
    (cut, INDICES, "part-00001 must hold every array"),
    (edit, "manifest.json", "manifest.json must be whole"),
    (cut, "manifest.json", "manifest.json must be whole"),
    (shutil.rmtree, "shared", "must hold the folder shared"),
    (shutil.rmtree, part_name(1), "must hold the folder part-00001"),
    (Path.unlink, "manifest.json", "must be a folder of parts"),
    (shutil.rmtree, "", "must be a folder of parts"),
]


def open_all(folder):
    parts = open_parts(folder)
    assert parts.graph.num_nodes == 50
    parts.part(1)


@pytest.mark.parametrize(("damage", "name", "said"), DAMAGE)
def test_damage_is_named(tmp_path, damage, name, said):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    damage(folder / name)
    with pytest.raises(InputError, match=said) as error:
        open_all(folder)
    if folder.exists():  # a folder not marked as jgs's is never replaced
        assert f"after moving {folder}" in str(error.value)
        folder.rename(tmp_path / "away")
    write(folder, make_data(50, 300), 3)
    open_all(folder)


def test_without_verify_sizes_are_checked_still(tmp_path):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    flip(folder / FEATURES)
    open_parts(folder, verify=False).part(1)
    cut(folder / INDICES)
    refused("must hold every array", open_parts(folder, verify=False).part, 1)


def test_verified_once_files_are_read_again_only_where_they_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, read, hash_of = tmp_path / "parts", [], verified.sha256
    write(folder, make_data(50, 300), 3)
    monkeypatch.setattr(verified, "sha256", lambda path: read.append(path) or hash_of(path))

    def reads(index=1):
        read.clear()
        parts = open_parts(folder, "once")
        assert parts.graph.num_nodes == 50
        parts.part(index)
        return len(read)

    assert reads() > 10
    assert reads() == 0
    assert reads(2) > 0  # only the files of another part
    flip(folder / FEATURES)
    for _ in range(2):  # damaged files are not remembered
        refused("checksum", reads)
    write(folder, make_data(50, 300), 3)  # the same bytes, in other files
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # no result can be remembered
    assert reads() == reads() > 10
