"""The training step: a pure function of (state, key, batch, features, labels)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from jgs.dist.comm import OWN, SAME, Communicator
from jgs.graph import MiniBatch
from jgs.sampling.base import Feedback
from jgs.train.tasks import TASKS, Task


class TrainState(NamedTuple):
    """What a step carries.

    Fields:
      params: the model's `nnx.State`.
      opt_state: of the optimiser.
      step: int32 scalar, steps since the start; it keys the dropout.
      loss_sum: float32 scalar, sum of the seeds' losses in this epoch.
      num_seeds: float32 scalar, number of seeds in this epoch; the loss so far is
        `loss_sum / num_seeds`.
      stop: float32 scalar, how many ranks asked to stop, in the last step.
    """

    params: Any
    opt_state: Any
    step: jax.Array
    loss_sum: jax.Array
    num_seeds: jax.Array
    stop: jax.Array


TrainStep = Callable[..., Any]  # of a TrainState, or of it and a Feedback


def make_optimizer(
    lr: float | optax.Schedule, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """Adam whose weight decay is an L2 penalty: added to the gradient, before the moments. Of a
    schedule the state counts the steps."""
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(lr))


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step. The parameters are copied: steps donate theirs."""
    params = jax.tree.map(jnp.copy, params)
    opt_state, zero = optimizer.init(params), jnp.zeros((), jnp.int32)
    return start_epoch(TrainState(params, opt_state, zero, zero, zero, zero))


def start_epoch(state: TrainState) -> TrainState:
    """The state with the loss of a new epoch, nothing so far."""
    # Three arrays, not one thrice: a step donates each.
    fresh = {name: jnp.zeros((), jnp.float32) for name in ("loss_sum", "num_seeds", "stop")}
    return state._replace(**fresh)


def make_train_step(
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    jit: bool = True,
    comm: Communicator | None = None,
    task: Task = TASKS["nodes"],
    feedback: bool = False,
) -> TrainStep:
    """`train_step(state, key, batch, x, labels, stop=0.0) -> state`, jitted, its state donated.

    The returned function takes what the model does of the features, `x` `[S, F]` or `Inputs`,
    and the labels of all nodes, int `[N]` or float `[N, C]`, as arguments: nothing is
    captured. `key` is the run's dropout key; step `t` uses `fold_in(key, t)`. Padding changes
    nothing.

    With `comm` all ranks take the step together, each on its own batch (`batch`, `x` and `stop`
    are `OWN`, the rest `SAME`, and `key` its data, uint32 `[2]`): every seed weighs the same,
    whichever rank has it, and the gradients, the loss and `stop` are added up in one
    all_reduce.

    With `feedback` it returns a pair: the state, and the `Feedback` (`OWN`) that an adaptive
    sampler's `update` takes. The model then needs `observed` and `message_widths`, as
    `jgs.models.GNN` has them, and `x` the rows of all input nodes.
    """
    ranks = comm if comm is not None and comm.size > 1 else None

    def train_step(state, key, batch, x, labels, stop=0.0):
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)
        dropout_key = jax.random.fold_in(key, state.step)
        mask = batch.seed_mask

        def loss_of(params):
            model = nnx.merge(graphdef, params)
            return task.loss(model(batch, x, key=dropout_key), batch, labels)

        def observed_loss_of(params, probes):
            model = nnx.merge(graphdef, params)
            outputs, messages = model.observed(batch, x, probes, key=dropout_key)
            return task.loss(outputs, batch, labels), messages

        if feedback:
            widths = nnx.merge(graphdef, state.params).message_widths
            probes = _probes(batch, widths)
            both = jax.value_and_grad(observed_loss_of, argnums=(0, 1), has_aux=True)
            (loss, messages), (gradients, of_rows) = both(state.params, probes)
            reported = Feedback(messages, of_rows)
        else:
            loss, gradients = jax.value_and_grad(loss_of)(state.params)
        count, stop = jnp.sum(mask, dtype=jnp.float32), jnp.asarray(stop, jnp.float32)
        if ranks is not None:
            loss, gradients, count, stop = _over_ranks(ranks, loss, gradients, count, stop)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        new = TrainState(
            optax.apply_updates(state.params, updates),
            opt_state,
            state.step + 1,
            state.loss_sum + loss * count,
            state.num_seeds + count,
            stop,
        )
        return (new, reported) if feedback else new

    if comm is None:
        return jax.jit(train_step, donate_argnums=0) if jit else train_step
    specs = (SAME, SAME, OWN, OWN, SAME, OWN)
    results = (SAME, OWN) if feedback else SAME
    return comm.program(train_step, specs, results, donate=(0,))


def _probes(batch: MiniBatch, widths: Sequence[int]) -> tuple[jax.Array, ...]:
    """Zeros `[T, M]` for every layer, to be added to what is aggregated."""
    sizes = (batch.block(i).target_capacity for i in range(len(widths)))
    return tuple(jnp.zeros(shape) for shape in zip(sizes, widths, strict=True))


def _over_ranks(
    comm: Communicator, loss: jax.Array, gradients: Any, count: jax.Array, stop: jax.Array
) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
    """The means over the seeds of all ranks, their number, and the sum of `stop`."""
    mine = jax.tree.map(lambda a: a * count, (loss, gradients))
    buffer, unravel = ravel_pytree((*mine, count, stop))
    loss, gradients, count, stop = unravel(comm.all_reduce(buffer))
    mean = jax.tree.map(lambda a: a / jnp.maximum(count, 1), (loss, gradients))
    return (*mean, count, stop)
