"""`grain_iterator`: a `Loader` as an iterator of Grain, which Orbax saves beside the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

import jax

from jgs.errors import refusing
from jgs.sampling.checks import require_int
from jgs.sampling.loading.loader import Loader

if TYPE_CHECKING:
    import grain

_FILE = "loader.json"


def grain_iterator(loader: Loader, num_epochs: int | None = None) -> grain.DatasetIterator:
    """The batches of `loader`, epoch after epoch, as a `grain.DatasetIterator`.

    `next` returns what a loop over the loader yields. `get_state` and `set_state` are the
    loader's: ints, always the same entries, which JSON can write. `start_prefetch` draws the
    next batches in the background before they are asked for. `close` stops that; `next` then
    raises ValueError.

    Orbax saves the iterator next to the parameters
    (`save_checkpointables(path, {"model": ..., "dataset": iterator})`) and restores it into
    another one. The position is one file that every process reads, so that it may be restored
    on another number of ranks, if the sampler is by-node. Grain's own iterators write a file
    for each process, and cannot. Under MPI save on rank 0 alone, since JAX knows of no other
    process there. The states of an adaptive sampler are arrays: save `loader.sampler_states`
    with the parameters.

    Args:
      loader: the loader, of one machine or of a rank. It moves with the iterator; another loop
        over it ends the iterator's.
      num_epochs: the iterator ends where this epoch would begin, counted from the loader's
        epoch 0, also after `set_state`. None: it never ends.

    Raises `InputError` where grain is not installed (extra `grain`).
    """
    if num_epochs is not None:
        num_epochs = require_int("num_epochs", num_epochs, 0)
    remedy = "Run pip install 'jgs[grain]'."
    with refusing(ImportError, "grain must be installed for this", remedy):
        import grain  # here, because grain is optional and takes two seconds

    class LoaderIterator(grain.DatasetIterator):
        _batches: Iterator[Any] | None = None

        def __next__(self) -> Any:
            self._assert_not_closed()
            while True:
                if self._batches is None:
                    if ended():
                        raise StopIteration
                    self._batches = iter(loader)
                for batch in self._batches:
                    return batch
                self._batches = None

        def get_state(self) -> dict[str, int]:
            return loader.get_state()

        def set_state(self, state: dict[str, int]) -> None:
            loader.set_state(state)
            self._batches = None

        def start_prefetch(self) -> None:
            self._assert_not_closed()
            if self._batches is None and not ended():
                loader.start_prefetch()

        def close(self) -> None:
            if not getattr(self, "_closed", True):  # Grain's __del__ calls it too
                super().close()
                loader.close()

        async def save(self, directory: Any) -> Awaitable[None]:
            return _write(directory, json.dumps(self.get_state()))

        async def load(self, directory: Any) -> Awaitable[None]:
            return self._read(directory)

        async def _read(self, directory: Any) -> None:
            self.set_state(json.loads(await asyncio.to_thread((directory / _FILE).read_text)))

        def __repr__(self) -> str:
            return f"grain_iterator({loader!r}, num_epochs={num_epochs})"

    def ended() -> bool:
        epoch = loader.epoch + (loader.step == len(loader))
        return num_epochs is not None and epoch >= num_epochs

    return LoaderIterator()


async def _write(directory: Any, state: str) -> None:
    folder = await directory.await_creation()
    if jax.process_index() == 0:  # all processes are at the same position
        await asyncio.to_thread((folder / _FILE).write_text, state)
