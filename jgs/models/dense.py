"""What the layers share: checks of widths, weight matrices, the call in three steps, and the
encoding of times."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import is_real, require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.batch import AGELESS
from jgs.models.messages import on_edges
from jgs.ops import aggregate, linear
from jgs.options import Option
from jgs.settings import usual_promotion

ELAPSED = "elapsed"  # the edge column that layers encode
TimeWidth = Annotated[
    int, Option("the number of cosines that encode a time", least=1, most=1 << 12)
]
TimeUnit = Annotated[
    float, Option("what times are divided by, e.g. 86400 to have days of seconds", above=0)
]
# A program for each shape, instead of one for each operation.
_glorot = jax.jit(
    nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform"), static_argnums=1
)


def check_widths(**widths: int) -> None:
    """Raises `InputError` unless each width, by its argument's name, is a positive int."""
    for name, width in widths.items():
        if not isinstance(width, int | np.integer) or width < 1:
            rule, remedy = f"{name} must be at least 1, and whole", "Give a positive int."
            raise InputError(rule, repr(width), remedy)


def check_heads(num_heads: int, **widths: int) -> None:
    """Raises `InputError` unless `num_heads` heads share each width equally."""
    check_widths(num_heads=num_heads)
    for name, width in widths.items():
        if width % num_heads != 0:
            raise InputError(
                f"{name} must be a multiple of num_heads, which share it",
                f"{width} features, {num_heads} heads",
                "Give the width of all heads together.",
            )


def check_rates(**rates: float) -> None:
    """Raises `InputError` unless each rate of dropout, by its argument's name, is in [0, 1)."""
    for name, rate in rates.items():
        if not is_real(rate) or not 0 <= rate < 1:
            raise InputError(f"{name} must be in [0, 1)", repr(rate), "0 switches it off.")


def glorot(rngs: nnx.Rngs, shape: tuple[int, int]) -> nnx.Param:
    """A weight matrix of `shape`, drawn Glorot uniform with a gain of sqrt(2)."""
    return nnx.Param(_glorot(rngs.params(), shape))


def check_width(x: jax.Array, in_features: int) -> None:
    form = "[S, F], with the layer's input features"
    remedy = "Build the model with in_features = features.shape[1]."
    require_array("x", x, form, remedy, F=in_features)


def zero_unless(real: jax.Array | None, x: jax.Array) -> jax.Array:
    """The first `len(real)` rows of `x`, with zeros where `real` is False. With `real` None it
    is `x` itself.

    Rows that are not real must enter no product: 0 * NaN would be NaN in a weight's gradient.
    """
    return x if real is None else jnp.where(real[:, None], x[: real.shape[0]], 0)


class Conv(nnx.Module):
    """A layer in three steps: messages, at its sources or at its edges, a reduction by
    `jgs.ops.aggregate`, and an update. A subclass has `update`, and says what else it has of
    the contract `jgs.models.Layer`. Where it `projects_first` it has a `message`, or the matrix
    of its neighbours under the name that `message_kernel` says."""

    reduce, uses_degrees, takes_inputs = "mean", False, False
    edge_columns: tuple[str, ...] = ()
    message_kernel = "neighbor_kernel"

    @property
    def projects_first(self) -> bool:
        return False

    def message(self, x, num_sources=None, degree=None):
        """The rows to aggregate: `x` itself or, if `projects_first`, its product."""
        if not self.projects_first:
            return x
        return linear([x], [getattr(self, self.message_kernel)[...]], None, num_sources)

    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        layer: Any = self
        check_width(x, layer.in_features)
        own = x if real is None else zero_unless(real[: block.target_capacity], x)
        if layer.projects_first:
            x = zero_unless(real, x)
        message = layer.message(x, block.num_sources, degree)
        aggregated = aggregate(*on_edges(layer, block, message), layer.reduce)
        return layer.update(own, aggregated, block.num_targets, degree, **after)


class TimeEncoding(nnx.Module):
    """Encodes times: `encode(elapsed)`, float32 `[n, width]` from `[n]`, is
    `cos(elapsed / unit * w + b)`.

    With `learned` it is the functional encoding of TGAT (Xu et al., "Inductive Representation
    Learning on Temporal Graphs", 2020, section 3.2), which Bochner's theorem suggests: `w` and
    `b` are learned, and at first `w[i] = 10**(-9 i / (width - 1))` and `b = 0`. The parameter
    is the logarithm of `w`. A step of Adam moves a parameter by about its rate, such as 1e-3,
    which would wipe out a `w` of 1e-6.

    An edge that was always there has no age: its `elapsed` is 2**63, and its encoding zeros.

    Without `learned` it is the encoding of GraphMixer (Cong et al., "Do We Really Need
    Complicated Model Architectures For Temporal Networks?", 2023, section 3.1):
    `w[i] = sqrt(width)**(-i / sqrt(width))` is not learned, and there is no `b`. Here `i`
    counts from 0.

    Args:
      width: the number of cosines.
      unit: what `elapsed` is divided by, such as 86,400 for days where times are in seconds. A
        float32 has 24 bits: the phase of `elapsed / unit * w[i]` is lost from about 10**7 on,
        and the cosine is then noise. Lower frequencies are right.
      learned: see above.

    Raises `InputError` for a width below 1 and for a unit that is not positive.
    """

    def __init__(self, width: int, *, unit: float = 1.0, learned: bool = True):
        check_widths(width=width)
        if not 0 < unit < np.inf:
            raise InputError("the unit of times must be above 0", unit, "Give e.g. 86400.0.")
        self.width, self.unit, self.learned = width, float(unit), learned
        if learned:
            frequency = (10.0 ** -np.linspace(0, 9, width)).astype(np.float32)
            self.log_frequency = nnx.Param(jnp.log(jnp.asarray(frequency)))
            self.phase = nnx.Param(jnp.zeros(width))

    @usual_promotion()
    def __call__(self, elapsed: jax.Array) -> jax.Array:
        aged = (elapsed < AGELESS)[:, None]
        # Masked before the cosine too, whose derivative would be as large as the time.
        scaled = jnp.where(aged, elapsed.astype(jnp.float32)[:, None], 0) / np.float32(
            self.unit
        )
        if not self.learned:
            root = np.sqrt(self.width)
            frequency = root ** (-np.arange(self.width) / root)
            return jnp.where(aged, jnp.cos(scaled * frequency.astype(np.float32)), 0)
        phase = scaled * jnp.exp(self.log_frequency[...]) + self.phase[...]
        return jnp.where(aged, jnp.cos(phase), 0)
