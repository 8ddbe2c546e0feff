"""Message passing over a block, feature rows of its nodes, and dense layers on those rows.

Each operation is written twice. The plain form in `jax.numpy` defines what the operation means
and runs on any XLA device. The C++ kernel is called by XLA:CPU through the FFI of XLA. The
kernel runs on the CPU where `jgs.kernels.available()`, for float32 (and `SparseFeatures`). Its
result equals the plain form's to rounding, and does not depend on the number of threads.

The differentiable operations have a reverse-mode derivative. That derivative can be
differentiated in both modes, any number of times (`jax.hessian` works, `jax.jvp` alone does
not). From the second derivative on, the plain form computes it. On CPUs take `jax.hessian`
rather than `jax.jacrev` of a gradient: JAX 0.10.2 sums wrongly there if edges times heads times
rows of the result exceed 32,768 (`findings/xla_cpu_sums_of_products_are_wrong.sh`).
"""

from jgs.kernels.call import REDUCTIONS
from jgs.ops.aggregate import aggregate, gather, gather_aggregate
from jgs.ops.attention import edge_dot, edge_scores, edge_softmax
from jgs.ops.linear import dropout, dropout_mask, edge_mask, linear
from jgs.ops.relation_runs import Runs, Slots, relation_linear, runs_of

__all__ = [
    "REDUCTIONS",
    "Runs",
    "Slots",
    "aggregate",
    "dropout",
    "dropout_mask",
    "edge_dot",
    "edge_mask",
    "edge_scores",
    "edge_softmax",
    "gather",
    "gather_aggregate",
    "linear",
    "relation_linear",
    "runs_of",
]


def __dir__() -> list[str]:
    return __all__
