"""Message passing over a block, and feature rows for its nodes.

Each operation is written twice: in plain `jax.numpy`, which is its meaning and runs on any
XLA device, and as a C++ kernel, which XLA:CPU calls through its FFI. The kernel is taken on
the CPU where `jgs.kernels.available()`, for float32 (and `SparseFeatures`).
"""

from jgs.ops.aggregate import aggregate
from jgs.ops.checks import REDUCTIONS
from jgs.ops.gather import gather
from jgs.ops.gather_aggregate import gather_aggregate

__all__ = ["REDUCTIONS", "aggregate", "gather", "gather_aggregate"]
