"""`TimeEncoding`: how long ago something was, as a row of cosines, in Flax NNX."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph.batch import AGELESS
from jgs.models.dense import check_widths
from jgs.options import Option
from jgs.settings import usual_promotion

ELAPSED = "elapsed"  # the edge column that layers encode
TimeWidth = Annotated[
    int, Option("the number of cosines that encode a time", least=1, most=1 << 12)
]
TimeUnit = Annotated[
    float, Option("what times are divided by, e.g. 86400 to have days of seconds", above=0)
]


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
