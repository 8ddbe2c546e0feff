import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest
from cases import cases
from refusals import refused

from jgs import InputError
from jgs.train.loop import checkpoint


def arrays(value=0.0):
    return {
        "params": {"layers": {0: jnp.full((300, 40), value), 1: jnp.zeros((1, 3))}},
        "key": np.array([1, 2], np.uint32),
        "step": jnp.int32(value),
    }


def saved(folder, count, keep=3):
    for i in range(1, count + 1):
        checkpoint.save(folder, i // 2, i, arrays(i), {"at": i}, keep)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


FIRST, SECOND = "000000-000000001", "000001-000000002"


def test_the_newest_is_restored_bit_for_bit(tmp_path):
    assert checkpoint.restore(tmp_path / "none", arrays()) is None
    assert checkpoint.restore(tmp_path, arrays()) is None
    saved(tmp_path, 2)
    found, record = checkpoint.restore(tmp_path, arrays())
    assert record == {"at": 2}
    expected = arrays(2)
    np.testing.assert_array_equal(found["params"]["layers"][0], expected["params"]["layers"][0])
    np.testing.assert_array_equal(found["key"], expected["key"])
    assert found["step"].dtype == np.int32


def test_the_last_k_are_kept(tmp_path):
    saved(tmp_path, 5, keep=2)
    assert names(tmp_path) == ["000002-000000004", "000002-000000005"]
    for step in (10**9 - 1, 10**9):  # a number of more digits
        path = checkpoint.save(tmp_path, 2, step, arrays(), {}, 1)
        assert checkpoint.checkpoints(tmp_path) == [path]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def newest_files(folder):
    newest = checkpoint.checkpoints(folder)[-1]
    return sorted(p for p in newest.rglob("*") if p.is_file() and p.stat().st_size)


def test_any_file_missing_or_cut_short_falls_back_and_says_so(tmp_path, caplog):
    saved(tmp_path / "whole", 2)
    count = len(newest_files(tmp_path / "whole"))
    assert count >= 4
    for harm in (cut, Path.unlink, flip):
        for at in range(count):
            folder = tmp_path / f"{harm.__name__}{at}"
            shutil.copytree(tmp_path / "whole", folder)
            file = newest_files(folder)[at]
            if harm is flip and file.name == checkpoint.MANIFEST:
                continue
            harm(file)
            caplog.clear()
            _, record = checkpoint.restore(folder, arrays())
            assert record == {"at": 1}, f"{file} harmed unnoticed"
            assert "damaged" in caplog.text
            # It no longer counts among the newest, so the checkpoint written next is kept.
            checkpoint.save(folder, 0, 1, arrays(1), {"at": "again"}, keep=1)
            assert checkpoint.restore(folder, arrays())[1] == {"at": "again"}
    shutil.rmtree(tmp_path / "whole" / SECOND)
    cut(newest_files(tmp_path / "whole")[0])
    assert checkpoint.restore(tmp_path / "whole", arrays()) is None


def test_a_save_that_was_killed_leaves_no_trace(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / ".new-000009-000000009" / "arrays").mkdir(parents=True)
    assert checkpoint.restore(tmp_path, arrays())[1] == {"at": 1}
    saved(tmp_path, 2)
    assert names(tmp_path) == [FIRST, SECOND]


MOMENTS = {
    "listed": (checkpoint, "checkpoints"),
    "checked": (checkpoint, "_damage"),
    "restored": (orbax.checkpoint.Checkpointer, "restore"),
}


@pytest.mark.parametrize("remove", [shutil.rmtree, lambda old: (old / "record.json").unlink()])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_is_read_while_it_writes(tmp_path, monkeypatch, caplog, moment, remove):
    """Twice a newer checkpoint appears, and the older ones are gone or on the way."""
    saved(tmp_path, 2)
    steps = [3, 4]
    place, name = MOMENTS[moment]
    call = getattr(place, name)

    def followed(*args, **kwargs):
        found = call(*args, **kwargs)
        with monkeypatch.context() as undone:
            undone.setattr(place, name, call)
            if steps:
                older = checkpoint.checkpoints(tmp_path)
                checkpoint.save(
                    tmp_path, 9, step := steps.pop(0), arrays(step), {"at": step}, 9
                )
                for old in older:
                    if (old / "record.json").exists():
                        remove(old)
        return found

    monkeypatch.setattr(place, name, followed)
    found, record = checkpoint.read(tmp_path)
    assert (record["at"], steps) == (4, [])
    assert found["step"] == 4
    assert not caplog.text


def test_checkpoints_that_somebody_removes_are_none(tmp_path, monkeypatch):
    saved(tmp_path, 2)
    monkeypatch.setattr(checkpoint, "_damage", lambda _: shutil.rmtree(tmp_path, True))
    assert checkpoint.read(tmp_path) is None


@cases(
    "template",
    {**arrays(), "step": jnp.zeros(2, jnp.int32)},
    {**arrays(), "more": jnp.zeros(2)},
    {"key": arrays()["key"]},
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, template):
    saved(tmp_path, 1)
    refused("must fit", checkpoint.restore, tmp_path, template)


@pytest.mark.parametrize("text", ["[]", "{}", "[" * 10**5])
def test_a_manifest_that_lists_nothing_falls_back(tmp_path, caplog, text):
    saved(tmp_path, 2)
    (checkpoint.checkpoints(tmp_path)[-1] / checkpoint.MANIFEST).write_text(text)
    assert checkpoint.restore(tmp_path, arrays())[1] == {"at": 1}
    assert "damaged" in caplog.text


@cases("error", OSError(28, "No space left on device"), ValueError("OUT_OF_RANGE: writing"))
def test_a_disk_that_refuses_leaves_the_earlier_ones(tmp_path, monkeypatch, error):
    saved(tmp_path, 2)

    def refuse(self, path, *_, **__):
        (path.parent / "half").touch()
        raise error

    monkeypatch.setattr(orbax.checkpoint.Checkpointer, "save", refuse)
    with pytest.raises(InputError, match="room on its disk") as raised:
        checkpoint.save(tmp_path, 9, 9, arrays(9), {"at": 9}, keep=1)
    assert str(tmp_path) in str(raised.value)
    assert str(error) in str(raised.value)
    assert names(tmp_path) == [FIRST, SECOND]
