"""Whether arrays lie in the pages of mapped files."""

from pathlib import Path

import numpy as np


def is_mapped(array, path):
    """Whether the array begins in a mapped file whose path has `path` in it."""
    of_host = isinstance(array, np.ndarray)
    begin = array.ctypes.data if of_host else array.unsafe_buffer_pointer()
    lines = [s for s in Path("/proc/self/maps").read_text().splitlines() if str(path) in s]
    spans = [line.split()[0].split("-") for line in lines]
    return any(int(first, 16) <= begin < int(last, 16) for first, last in spans)
