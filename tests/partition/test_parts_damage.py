"""Opening a folder of parts names what is damaged, and reads no more than it must."""

import shutil

import pytest
from made_parts import make_data, write

from jgs import InputError
from jgs.data.parts import open_parts, part_name
from jgs.files import verified


def other_part(folder):
    write(folder.parent / "other", make_data(50, 300, seed=1), 3)
    shutil.rmtree(folder / part_name(1))
    (folder.parent / "other" / part_name(1)).rename(folder / part_name(1))


def other_graph(folder):
    write(folder.parent / "other", make_data(50, 300, seed=1), 3)
    shutil.rmtree(folder / "graph")
    (folder.parent / "other" / "graph").rename(folder / "graph")


def flipped_byte(folder):
    path = folder / part_name(1) / "features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut_short(folder):
    path = folder / part_name(1) / "indices.npy"
    path.write_bytes(path.read_bytes()[:-4])


def edited_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"num_nodes": 50', '"num_nodes": 51'))


def half_a_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:100])


DAMAGE = {
    other_part: "part-00001 must belong to the parts",
    other_graph: "graph must belong to the parts",
    flipped_byte: "features.npy must have the manifest's checksum",
    cut_short: "part-00001 must hold every array",
    edited_manifest: "manifest.json must be whole",
    half_a_manifest: "manifest.json must be whole",
    lambda folder: shutil.rmtree(folder / "shared"): "must hold the folder shared",
    lambda folder: shutil.rmtree(folder / part_name(1)): "must hold the folder part-00001",
    lambda folder: (folder / "manifest.json").unlink(): "must be a folder of parts",
    lambda folder: shutil.rmtree(folder): "must be a folder of parts",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(tmp_path, damage):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    damage(folder)

    def open_all():
        parts = open_parts(folder)
        assert parts.graph.num_nodes == 50
        parts.part(1)

    with pytest.raises(InputError, match=DAMAGE[damage]) as error:
        open_all()
    if folder.exists():  # a folder not marked as jgs's is never replaced
        assert f"after moving {folder}" in str(error.value)
        folder.rename(tmp_path / "away")
    write(folder, make_data(50, 300), 3)
    open_all()


def test_without_verify_sizes_are_checked_still(tmp_path):
    folder = tmp_path / "parts"
    write(folder, make_data(50, 300), 3)
    flipped_byte(folder)
    open_parts(folder, verify=False).part(1)
    cut_short(folder)
    with pytest.raises(InputError, match="must hold every array"):
        open_parts(folder, verify=False).part(1)


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
    flipped_byte(folder)
    for _ in range(2):  # damaged files are not remembered
        with pytest.raises(InputError, match="checksum"):
            reads()
    write(folder, make_data(50, 300), 3)  # the same bytes, in other files
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # no result can be remembered
    assert reads() == reads() > 10
