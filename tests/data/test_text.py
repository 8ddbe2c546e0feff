import gzip

import numpy as np
import pytest

from jgs import InputError
from jgs.data.text import read_rows, read_table


def table(tmp_path, text, dtype=np.int64, **options):
    (tmp_path / "t").write_bytes(text if isinstance(text, bytes) else text.encode())
    parts = list(read_rows(tmp_path / "t", dtype, **options))
    return np.concatenate(parts).tolist() if parts else []


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_chunks_do_not_matter(tmp_path, chunk):
    text = "1,2\n30,40\n\n500,600\r\n7,8"  # a blank line, CRLF, no newline at the end
    expected = [[1, 2], [30, 40], [500, 600], [7, 8]]
    assert table(tmp_path, text, chunk_bytes=chunk) == expected
    assert table(tmp_path, gzip.compress(text.encode()), chunk_bytes=chunk) == expected
    spaced = "# Nodes: 3\n# a\tb\n1\t2\n 3   4 \n# end\n"
    options = {"delimiter": None, "comments": "#", "chunk_bytes": chunk}
    assert table(tmp_path, spaced, **options) == [[1, 2], [3, 4]]


def test_empty_and_floats(tmp_path):
    assert table(tmp_path, "") == []
    assert table(tmp_path, "#\n#\n", comments="#", delimiter=None) == []
    assert table(tmp_path, "0.5,-1e3\n", np.float32) == [[0.5, -1000.0]]
    (tmp_path / "t").write_text("")
    assert read_table(tmp_path / "t", np.int64, columns=1).shape == (0, 1)


@pytest.mark.parametrize("chunk", [4, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3\n",
        "1,2\n3,4,5\n",
        "1,x\n",
        "1,2.5\n",
        "1,\n",
        "1 2\n",
        f"{2**70},1\n",
        "1,2\n\0\1",
    ],
)
def test_what_is_no_integer_table(tmp_path, text, chunk):
    with pytest.raises(InputError) as caught:
        table(tmp_path, text, columns=2, chunk_bytes=chunk)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "t") in str(caught.value)


def test_cut_and_damaged_gzip(tmp_path):
    whole = gzip.compress(np.random.default_rng(0).bytes(500).hex(",").encode())
    for cut in (2, 5, 12, len(whole) // 2, len(whole) - 1):
        with pytest.raises(InputError):
            table(tmp_path, whole[:cut])
    damaged = bytearray(gzip.compress(b"1,2\n" * 1000))
    damaged[20] ^= 0xFF
    with pytest.raises(InputError):
        table(tmp_path, bytes(damaged))
    with pytest.raises(InputError, match="no such file"):
        next(read_rows(tmp_path / "none", np.int64))
    with pytest.raises(InputError):
        next(read_rows(tmp_path, np.int64))
