"""The matrix API of gSampler: sampling algorithms as short programs on a sparse matrix."""

from jgs.sampling.choices import choose_layout, choose_stored
from jgs.sampling.matrix.entries import Room
from jgs.sampling.matrix.matrix import Matrix, stack
from jgs.sampling.matrix.sampler import MatrixSampler

__all__ = ["Matrix", "MatrixSampler", "Room", "choose_layout", "choose_stored", "stack"]


def __dir__() -> list[str]:
    return __all__
