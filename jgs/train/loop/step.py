"""The training step, a pure function of (state, key, batch, features, labels); its losses. The
schedules of a run's learning rate, and averages of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from jgs import losses
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.sampling.base import Feedback
from jgs.settings import usual_promotion

if TYPE_CHECKING:
    from jgs.train.config import Config

# `loss(outputs, batch, labels)`: the mean loss of the batch, float32; 0 for a batch without
# seeds. `outputs` `[B, C]` are the model's, and `labels` are those of all nodes. Padding may
# hold anything, even NaN.
Loss: TypeAlias = Callable[[Any, MiniBatch, jax.Array], jax.Array]
# `count(batch, labels)`: what the loss is a mean over, float32: the sum of the weights.
Count: TypeAlias = Callable[[MiniBatch, Any], jax.Array]


def count_seeds(batch: MiniBatch, labels: Any = None) -> jax.Array:
    """The `Count` of the batch's real seeds."""
    return jnp.sum(batch.seed_mask, dtype=jnp.float32)


def count_pairs(batch: MiniBatch, labels: Any = None) -> jax.Array:
    """The `Count` of the real items of a batch from the stage `jgs.sampling.Links`."""
    return jnp.sum(real_pairs(batch), dtype=jnp.float32)


def real_pairs(batch: MiniBatch) -> jax.Array:
    """bool `[B]`: which items of a batch from the stage `jgs.sampling.Links` are no padding."""
    return batch.items["rows"][:, 0] < batch.seeds.shape[0]


def own_labels(batch: MiniBatch, labels: jax.Array) -> jax.Array:
    """The labels `[B]` or `[B, C]` of a batch's seeds, of those of all nodes."""
    return jnp.take(labels, batch.seeds, axis=0, mode="fill", fill_value=0)


def node_loss(outputs: jax.Array, batch: MiniBatch, labels: jax.Array) -> jax.Array:
    """The `Loss` of classes of nodes. Labels are int `[N]`, one class each, or `[N, C]` of 0
    and 1, any number of classes each."""
    own = own_labels(batch, labels)
    return masked_loss(outputs, own, batch.seed_mask, batch.seed_weight)


def masked_loss(
    logits: jax.Array, labels: jax.Array, mask: jax.Array, weight: jax.Array | None = None
) -> jax.Array:
    """The mean loss over the rows where `mask` `[B]` holds, float32; 0 where it holds nowhere.

    Args:
      logits: float `[B, C]`; rows where the mask is False may hold anything, even NaN.
      labels: int `[B]`, class ids; or float `[B, C]` of 0 and 1: the mean over the classes.
      weight: float32 `[B]`, what each row's loss is multiplied by, or None: 1.
    """
    # Masked before the loss, not only after: the derivative of a NaN times 0 is NaN.
    kept = mask[:, None] if labels.ndim == 2 else mask
    each = losses.cross_entropy(jnp.where(mask[:, None], logits, 0), jnp.where(kept, labels, 0))
    each = each.mean(axis=-1) if labels.ndim == 2 else each
    return losses.masked_mean(each if weight is None else each * weight, mask)


class TrainState(NamedTuple):
    """What a step takes and returns. The mean loss of the epoch is `loss_sum / num_seeds`."""

    params: Any  # the model's `nnx.State`
    opt_state: Any  # the optimiser's state
    step: jax.Array  # int32, since the start of the run; the dropout key depends on it
    loss_sum: jax.Array  # float32, of this epoch
    num_seeds: jax.Array  # float32, of this epoch: seeds, or pairs
    stop: jax.Array  # float32, how many ranks asked to stop in the last step


def make_optimizer(
    lr: float | optax.Schedule,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    accumulate: int = 1,
) -> optax.GradientTransformation:
    """Adam, with weight decay as an L2 penalty: it is added to the gradient before the moments.
    With a schedule the optimiser's state counts the steps.

    A gradient whose norm over all parameters exceeds `clip_norm` is scaled to it, before the
    penalty. With `accumulate` the parameters change in every so-manieth step, by the mean of
    the gradients since the last change; each batch weighs the same (`optax.MultiSteps`).
    """
    parts = [optax.add_decayed_weights(weight_decay), optax.adam(lr)]
    if clip_norm is not None:
        parts.insert(0, optax.clip_by_global_norm(clip_norm))
    optimizer = optax.chain(*parts)
    if accumulate == 1:
        return optimizer
    return optax.MultiSteps(optimizer, accumulate).gradient_transformation()


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The first state. It has copies of `params`, because steps donate their state."""

    @jax.jit  # one program instead of one for each shape
    def begin(params):
        params, zero = jax.tree.map(jnp.copy, params), jnp.zeros((), jnp.int32)
        return TrainState(params, optimizer.init(params), zero, zero, zero, zero)

    return start_epoch(begin(params))


def start_epoch(state: TrainState) -> TrainState:
    # Three distinct arrays, because a step donates each.
    fresh = {name: np.float32(0) for name in ("loss_sum", "num_seeds", "stop")}
    return state._replace(**jax.device_put(fresh))


def make_train_step(
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    comm: Communicator | None = None,
    loss: Loss = node_loss,
    feedback: bool = False,
    count: Count = count_seeds,
    learned: bool = False,
    precision: str = "float32",
    compiled: bool = True,
) -> Callable[..., Any]:
    """Returns `train_step(state, key, batch, x, labels, stop=0.0) -> state`, jitted, with its
    state donated.

    The arguments of `train_step`:
      state: a `TrainState`.
      key: the run's dropout key; step `t` uses `fold_in(key, t)`.
      batch: a `MiniBatch`. Its padding changes nothing.
      x: the features as the model takes them, `[S, F]` or `Inputs`.
      labels: the labels of all nodes, int `[N]` or float `[N, C]`.
      stop: 1.0 if this rank was asked to stop.

    With `comm` all ranks take the step together, each on its own batch: `batch`, `x` and `stop`
    are `OWN`, the rest is `SAME`, and `key` is key data uint32 `[2]`. Everything that `count`
    counts, by default every seed, weighs the same, whichever rank has it. One all_reduce adds
    the gradients, the loss and `stop`.

    With `feedback` the function returns the state and the `Feedback` (`OWN`) that an adaptive
    sampler's `update` takes; `x` must be the rows of all input nodes. With `learned` it returns
    the state and the gradient of the loss, over all ranks' seeds, with respect to `x.learned`,
    float32 `[S, W]` (`OWN`), which a `ShardedEmbedding` takes. Only one of them may be given.

    With the `precision` "bfloat16" the model computes with rounded copies of the parameters and
    the features. Parameters, outputs, losses, gradients and the optimiser remain float32.

    Unless `compiled` the function is to be called within a program: on one rank.
    """
    rounded, whole = _identity, _identity
    if precision != "float32":
        rounded, whole = partial(_as, jnp.dtype(precision)), partial(_as, jnp.float32)
    ranks = comm if comm is not None and comm.size > 1 else None

    def train_step(state, key, batch, x, labels, stop=0.0):
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key, impl="threefry2x32")
        dropout_key = jax.random.fold_in(key, state.step)

        def loss_of(params, rows):
            model = nnx.merge(graphdef, rounded(params))
            inputs = rounded(x._replace(learned=rows) if learned else x)
            outputs = whole(model(batch, inputs, key=dropout_key))
            return loss(outputs, batch, labels)

        def observed_loss_of(params, probes):
            model = nnx.merge(graphdef, rounded(params))
            found = model.observed(batch, *rounded((x, probes)), key=dropout_key)
            outputs, messages = whole(found)
            return loss(outputs, batch, labels), messages

        reported: Any = None
        if feedback:
            widths = nnx.merge(graphdef, state.params).message_widths
            # Zeros `[T, M]` for every layer, to be added to the aggregated rows.
            shapes = [(batch.block(i).target_capacity, w) for i, w in enumerate(widths)]
            probes = tuple(map(jnp.zeros, shapes))
            both = jax.value_and_grad(observed_loss_of, argnums=(0, 1), has_aux=True)
            (value, messages), (gradients, of_rows) = both(state.params, probes)
            reported = Feedback(messages, of_rows)
        else:
            both = jax.value_and_grad(loss_of, argnums=(0, 1))
            value, (gradients, of_inputs) = both(state.params, x.learned if learned else None)
        mine = total = count(batch, labels)
        stop = jnp.asarray(stop, jnp.float32)
        if ranks is not None:
            value, gradients, total, stop = _over_ranks(ranks, value, gradients, total, stop)
        if learned:
            reported = of_inputs * (mine / _at_least_one(total))
        with usual_promotion():  # Optax needs it
            updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        new = TrainState(
            optax.apply_updates(state.params, updates),
            opt_state,
            state.step + 1,
            state.loss_sum + value * total,
            state.num_seeds + total,
            stop,
        )
        return (new, reported) if feedback or learned else new

    if not compiled:
        return train_step
    if comm is None:
        return jax.jit(train_step, donate_argnums=0)
    specs = (SAME, SAME, OWN, OWN, SAME, OWN)
    results = (SAME, OWN) if feedback or learned else SAME
    return comm.program(train_step, specs, results, donate=(0,))


def _over_ranks(
    comm: Communicator, loss: jax.Array, gradients: Any, count: jax.Array, stop: jax.Array
) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
    mine = jax.tree.map(lambda a: a * count, (loss, gradients))
    buffer, unravel = ravel_pytree((*mine, count, stop))
    loss, gradients, count, stop = unravel(comm.all_reduce(buffer))
    mean = jax.tree.map(lambda a: a / _at_least_one(count), (loss, gradients))
    return (*mean, count, stop)


def _at_least_one(count: jax.Array) -> jax.Array:
    """`count`, or 1 where it is 0. Weights may add up to less than 1."""
    return jnp.where(count > 0, count, 1)


def _identity(tree: Any) -> Any:
    return tree


def _as(dtype: Any, tree: Any) -> Any:
    def cast(leaf: Any) -> Any:
        floats = jnp.issubdtype(getattr(leaf, "dtype", np.int32), jnp.floating)
        return leaf.astype(dtype) if floats else leaf

    return jax.tree.map(cast, tree)


Rate: TypeAlias = float | Callable[[Any], Any]  # the second: an `optax.Schedule`


# Each makes the schedule from (first rate, last rate, steps, steps of the rise).
SCHEDULES: dict[str, Callable[[float, float, int, int], Rate]] = {
    "constant": lambda rate, last, steps, rise: rate,
    "cosine": lambda rate, last, steps, _: optax.cosine_decay_schedule(
        rate, steps, last / rate
    ),
    "exponential": lambda rate, last, steps, _: optax.exponential_decay(
        rate, steps, last / rate
    ),
    "warmup_cosine": lambda rate, last, steps, rise: optax.warmup_cosine_decay_schedule(
        0.0, rate, rise, steps, last
    ),
}


def learning_rate(config: Config, steps_per_epoch: int) -> Rate:
    """The learning rate that Adam takes: a number, or a function of the number of its earlier
    steps, each of `--accumulate` batches. Raises `InputError` where the run has too few."""
    steps = config.epochs * steps_per_epoch // config.accumulate
    if not steps:
        raise InputError(
            "--accumulate must be at most the number of batches in the run",
            f"{config.accumulate} for {config.epochs * steps_per_epoch}",
            "Lower it, or train for more --epochs.",
        )
    rise = config.warmup_steps
    if rise is not None and rise >= steps:
        raise InputError(
            f"--warmup-steps must be fewer than the run's steps, {steps}",
            rise,
            "Lower it, or train for more --epochs.",
        )
    rise = steps // 10 if rise is None else rise
    return SCHEDULES[config.lr_schedule](config.lr, config.lr * config.lr_end, steps, rise)


class Averaged(NamedTuple):
    """The state of an optimiser that keeps an average."""

    average: Any  # as the parameters; these themselves before it begins
    taken: jax.Array  # int32, how many parameters were averaged
    step: jax.Array  # int32, the number of steps
    inner: Any  # the state of the optimiser within


def averaged(
    optimizer: optax.GradientTransformation, decay: float | None, every: int = 1, begin: int = 0
) -> optax.GradientTransformation:
    """`optimizer`, which also keeps an average of the parameters after its steps.

    Args:
      decay: what an exponential average keeps of itself, once it is of `1 / (1 - decay)`
        parameters. Until then it is their mean, so that the first do not outweigh the others,
        as they do in `torch.optim.swa_utils`. None: the mean of all (stochastic weight
        averaging, Izmailov et al. 2018, algorithm 1).
      every: the parameters after every so-manieth step are averaged.
      begin: those of the first steps, so many, are not.

    The optimiser's state is an `Averaged`, whose `average` is what to judge and predict with.
    """

    def init(params: Any) -> Averaged:
        zero = jnp.zeros((), jnp.int32)
        return Averaged(jax.tree.map(jnp.copy, params), zero, zero + 0, optimizer.init(params))

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Averaged]:
        updates, inner = optimizer.update(gradients, state.inner, params)
        step = optax.safe_increment(state.step)
        due = (step > begin) & (step % every == 0)
        taken = state.taken + due
        share = jnp.maximum(1 / jnp.maximum(taken, 1), 0.0 if decay is None else 1 - decay)
        rate = jnp.where(due, share, jnp.where(taken, 0.0, 1.0))
        new = optax.apply_updates(params, updates)
        mean = optax.incremental_update(new, state.average, rate)
        return updates, Averaged(mean, taken, step, inner)

    return optax.GradientTransformation(init, update)


def rate_at(rate: Rate, step: Any) -> Any:
    """The learning rate of the step of that number."""
    return rate(step) if callable(rate) else rate


def judged(params: Any, opt_state: Any) -> Any:
    """The average where the optimiser keeps one, and else the parameters."""
    return opt_state.average if isinstance(opt_state, Averaged) else params
