"""`Snapshot`: arrays that change in place, as JAX arrays until they change."""

from __future__ import annotations

import logging
import time
import weakref
from typing import Any

import jax
import numpy as np

from jgs.graph.device import as_device

_WAIT = 1.0  # seconds for programs that read the arrays to end
_LITTLE = np.zeros(1, np.int32)


class _Reader:
    """A NumPy array as JAX holds it: it lives as long as JAX or a program reads the array."""

    def __init__(self, array: np.ndarray):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Snapshot:
    """JAX arrays of NumPy ones, without a copy on a CPU.

    `release` ends it: the JAX arrays are deleted, as donated ones are, so that whoever uses
    them afterwards gets JAX's error instead of other numbers.
    """

    def __init__(self, arrays: Any):
        """`arrays` is a pytree, as the field `arrays` is then."""
        readers = jax.tree.map(_Reader, arrays)
        self.arrays = as_device(jax.tree.map(np.asarray, readers))
        self._alive = [weakref.ref(reader) for reader in jax.tree.leaves(readers)]

    def release(self) -> bool:
        """Deletes the arrays, and waits until the programs that read them have ended. False
        if something still reads them after a while, such as a NumPy array made of one."""
        for array in jax.tree.leaves(self.arrays):
            if not array.is_deleted():
                array.delete()
        self.arrays = ()
        end = time.monotonic() + _WAIT
        while any(reader() is not None for reader in self._alive):
            if time.monotonic() > end:
                log = logging.getLogger("jgs")
                log.warning("a live graph is copied, for its arrays are still read")
                return False
            # JAX gives up what it holds when it is called next.
            jax.device_put(_LITTLE)
        return True
