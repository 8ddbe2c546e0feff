"""`Objective`: what outputs of nodes or edges are compared with, by a loss and by a metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import losses
from jgs.arrays import described
from jgs.data.label_values import are_numbers
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.options import Option, flag, own_function
from jgs.train.config import Config
from jgs.train.evaluation.metrics import Arrays, Metric, make_metric

_OF_CLASSES, _OF_NUMBERS = ("cross_entropy", "focal"), ("mse", "huber")
_TAKERS = {  # of options, the losses that take them
    "label_smoothing": _OF_CLASSES,
    "focal_gamma": ("focal",),
    "huber_delta": ("huber",),
}


# fmt: off
@dataclass(frozen=True)
class Compared:
    """The options of a task whose labels are classes or numbers."""

    loss: Annotated[str | None, Option(
        "of classes: cross_entropy (default), or focal, for which rows that are predicted well "
        "count less. Of numbers: mse (default), or huber, for which outliers count less. Or "
        "your own, package.module:function, of (outputs [B, C], labels), which returns the "
        "loss of each row (jgs.losses)",
        choices=(*_OF_CLASSES, *_OF_NUMBERS), own=True, metavar="NAME"
    )] = None
    label_smoothing: Annotated[float, Option(
        "for classes: the share of a label that all classes get alike", least=0, below=1
    )] = 0.0
    focal_gamma: Annotated[float, Option(
        "for focal: the power of 1 - p", least=0, most=100
    )] = 2.0
    huber_delta: Annotated[float, Option(
        "for huber: from which error on the loss is linear, in deviations of the training "
        "labels", above=0
    )] = 1.0
    class_weights: Annotated[tuple[float, ...], Option(
        "a weight for each class, which multiplies the losses of its rows; the loss is their "
        "weighted mean", above=0, metavar="W"
    )] = ()
    balanced: Annotated[bool, Option(
        "class weights n / (K * rows of the class): all K classes have the same share"
    )] = False
# fmt: on


class Scale:
    """Numbers in units of their deviation from their mean over training rows; with neither they
    stay as they are.

    Fields:
      mean, deviation: float; or float64 `[T]` where `train` is `[n, T]`, each of its column.
    """

    def __init__(self, train: np.ndarray | None = None):
        self.mean: Any = 0.0
        self.deviation: Any = 1.0
        if train is not None and train.ndim == 1:
            self.mean, self.deviation = _moments(train)
        elif train is not None:
            self.mean, self.deviation = np.array([_moments(own) for own in train.T]).T

    def standard(self, numbers: np.ndarray) -> np.ndarray:
        """float32: what the outputs of a model are compared with. The mean is taken off in
        float64: numbers of a large mean and a small deviation keep their digits."""
        centred = (np.asarray(numbers, np.float64) - self.mean) / self.deviation
        return centred.astype(np.float32)

    def units(self, outputs: np.ndarray) -> np.ndarray:
        """float64 `[n, T]`: the outputs of a model in the units of the labels."""
        return outputs.astype(np.float64) * self.deviation + self.mean


def _moments(numbers: np.ndarray) -> tuple[float, float]:
    known = np.sort(numbers[np.isfinite(numbers)].astype(np.float64))  # in any order
    if not known.size:
        return 0.0, 1.0
    return float(known.mean()), max(float(known.std()), 1e-12)


class Objective:
    """The loss and the metric of a run, for its configuration and labels.

    Args:
      config: the configuration, whose task is `Compared`.
      train: NumPy, the labels of all training rows, in any order: int `[n]`, float `[n]` or
        `[n, C]`.
      num_classes: `C`, the number of outputs.
      numbers: whether labels are numbers; None: if they look so. Labels `[n, C]` are numbers
        too where the configuration's loss is one of numbers.
      missing: whether some of all labels `[n, C]` are not known.
      loss: a function of outputs `[B, C]` and labels `[B]`, which returns the loss of each row;
        None: that of the options of `Compared`.
      metric: the `jgs.train.evaluation.metrics.Metric`; None: that of `--metric`.
      columns: the names of the outputs where these are `C` numbers about one number: the
        columns of predictions. `point` is that which stands for the number itself.

    Fields:
      num_outputs: `C`.
      metric, numbers: as above, where they are None there.
      scale: the `Scale` of the labels.

    Raises `InputError` for options that do not fit the labels.
    """

    def __init__(
        self,
        config: Config,
        train: np.ndarray,
        num_classes: int,
        numbers: bool | None = None,
        missing: bool = False,
        *,
        loss: Callable[..., jax.Array] | None = None,
        metric: Metric | None = None,
        columns: Sequence[str] = (),
        point: str = "",
    ):
        name = config.options["loss"] or "" if loss is None else ""
        self.num_outputs, self._columns, self._point = num_classes, list(columns), point
        self.numbers = are_numbers(train) if numbers is None else numbers
        self._several, self._missing = train.ndim == 2, missing
        self.numbers |= self._several and name in _OF_NUMBERS
        if metric is not None and config.metric is not None:
            raise InputError(
                f"--metric must be for a task that has none of its own, {metric.name}",
                f"--metric {config.metric} for --task {config.task}",
                "Leave it out.",
            )
        kinds = self._several, self.numbers
        self.metric = metric or make_metric(config.metric, *kinds, train)
        self.scale = Scale(train if self.numbers else None)
        self._own = name if ":" in name else ""
        self._loss = loss or self._chosen(config)
        self._weights = None if loss else self._class_weights(config, train, num_classes)
        if self._own:  # it must be one that can be traced
            kind = np.float32 if self.numbers or self._several else np.int32
            shape = (3, num_classes) if self._several else (3,)
            rows = jax.ShapeDtypeStruct((3, num_classes), np.float32)
            jax.eval_shape(self._loss, rows, jax.ShapeDtypeStruct(shape, kind))

    def loss(
        self,
        outputs: jax.Array,  # float `[B, C]`; where the mask is False perhaps NaN
        labels: jax.Array,  # as `compared` returns them
        mask: jax.Array,  # bool `[B]`, which rows are real
        weight: jax.Array | None = None,  # float32 `[B]`, which multiplies each row's loss
    ) -> jax.Array:
        """The mean loss over the rows, and over the labels that are known, float32; 0 without
        any. With class weights it is the weighted mean."""
        known, labels = self._known(labels, mask)
        # Masked before the loss, not only after: the derivative of a NaN times 0 is NaN.
        outputs = jnp.where(known if known.ndim == 2 else mask[:, None], outputs, 0)
        each = self._loss(outputs, labels)
        if each.ndim == 2 and not self._by_entry:
            each = each.mean(axis=-1)
        if weight is not None:
            each = each * (weight[:, None] if each.ndim == 2 else weight)
        return losses.masked_mean(each, known, self._weight_of(labels))

    def count(self, labels: jax.Array, mask: jax.Array) -> jax.Array:
        """What the loss is a mean over, float32: the sum of the weights of what is known."""
        known, labels = self._known(labels, mask)
        weight = self._weight_of(labels)
        return jnp.sum(
            known if weight is None else jnp.where(known, weight, 0), dtype=jnp.float32
        )

    def compared(self, labels: Any) -> Any:
        """The labels as `loss` and `count` take them: numbers are standardised, see `Scale`."""
        return self.scale.standard(np.asarray(labels)) if self.numbers else labels

    def measure(self, comm: Communicator, outputs: Arrays, labels: Arrays) -> float:
        """The metric of all ranks' rows together; see `Metric`."""
        if self.numbers:
            outputs = [self.scale.units(own) for own in outputs]
        return self.metric.measure(comm, outputs, labels)

    def record(self) -> dict[str, Any]:
        """What a checkpoint says of the outputs."""
        of = {name: np.asarray(each).tolist() for name, each in vars(self.scale).items()}
        of |= {"columns": self._columns, "point": self._point} if self._columns else {}
        return {"numbers": self.numbers, **of}

    @property
    def _by_entry(self) -> bool:
        return self._several and (self._missing or self._weights is not None)

    def _known(self, labels: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        """bool, what is known; and the labels as the loss takes them, 0 where not known."""
        if not self._several:
            return mask, jnp.where(mask, labels, 0)
        real = jnp.broadcast_to(mask[:, None], labels.shape)
        known = real & ~jnp.isnan(labels) if self._missing else real
        return (known if self._by_entry else mask), jnp.where(known, labels, 0)

    def _weight_of(self, labels: jax.Array) -> jax.Array | None:
        if self._weights is None:
            return None
        weights = jnp.asarray(self._weights)
        return (
            jnp.where(labels > 0.5, weights[1], weights[0])
            if self._several
            else weights[labels]
        )

    def _chosen(self, config: Config) -> Callable[..., jax.Array]:
        given = config.options
        fitting = _OF_NUMBERS if self.numbers else _OF_CLASSES
        name = given["loss"] or fitting[0]
        if not self._own and name not in fitting:
            of_numbers = "numbers", "classes", "class"
            own, other, kind = of_numbers if self.numbers else ("classes", "numbers", "number")
            raise InputError(
                f"--loss for labels that are {own} must be {', '.join(fitting)}, or "
                "package.module:function",
                name,
                f"Choose one; --data-options label_kind={kind} makes {own} {other}.",
            )
        for option, takers in _TAKERS.items():
            if name not in takers and given[option] != getattr(Compared, option):
                raise InputError(
                    f"{flag(option)} must be for --loss {' or '.join(takers)}",
                    f"{flag(option)} {given[option]} for --loss {name}",
                    "Leave it out, or choose such a loss.",
                )
        arguments = {
            "focal": {"gamma": given["focal_gamma"], "smoothing": given["label_smoothing"]},
            "cross_entropy": {"smoothing": given["label_smoothing"]},
            "huber": {"delta": given["huber_delta"]},
        }
        if self._own:
            return own_loss(self._own, self._by_entry)
        return partial(getattr(losses, name), **arguments.get(name, {}))

    def _class_weights(
        self, config: Config, train: np.ndarray, num_classes: int
    ) -> np.ndarray | None:
        """float32 `[C]`, or for several labels `[2, C]`, or None."""
        weights, balanced = config.options["class_weights"], config.options["balanced"]
        if not weights and not balanced:
            return None
        if self.numbers or (weights and balanced):
            raise InputError(
                "--class-weights or --balanced must be for classes, and one of the two",
                "numbers" if self.numbers else "both",
                "Leave it out.",
            )
        if balanced:
            return losses.balanced_weights(train, num_classes)
        if len(weights) != num_classes:
            raise InputError(
                f"--class-weights must be one for each of {num_classes} classes",
                f"{len(weights)} of them",
                "Give a number for each class, in the order of the classes.",
            )
        made = np.array(weights, np.float32)
        return np.stack([made, made]) if self._several else made


def own_loss(place: str, by_entry: bool = False) -> Callable[..., jax.Array]:
    """The user's loss at `package.module:function`, which raises `InputError` for what it may
    not do. With `by_entry` it must return the loss of each label."""
    rule = "the function of --loss must take (outputs [B, C], labels), and return the loss of "
    rule += "each label [B, C]" if by_entry else "each row [B]"

    def shapes(outputs: jax.Array, labels: jax.Array) -> list[tuple[int, ...]]:
        every = [outputs.shape] if labels.ndim == 2 else []
        return every if by_entry else [outputs.shape[:1], *every]

    return _checked(place, rule, shapes)


def own_link_loss(place: str) -> Callable[..., jax.Array]:
    rule = "the function of --loss must take jgs.models.LinkScores, and return their mean loss"
    return _checked(place, rule, lambda scores: [()])


def _checked(place: str, rule: str, shapes: Callable[..., Any]) -> Callable[..., jax.Array]:
    function = own_function("loss", place)

    def loss(*given: Any) -> jax.Array:
        try:
            found = jnp.asarray(function(*given))
        except Exception as error:  # it is the user's: anything may happen in it
            shown = " ".join(str(error).split())[:200]
            seen = f"{place} ({type(error).__name__}: {shown})"
            raise InputError(rule, seen, "Correct it, and try it on arrays.") from error
        if found.shape not in shapes(*given) or not jnp.issubdtype(found.dtype, jnp.floating):
            seen = f"{described(found)} of {place}"
            raise InputError(rule, seen, "Return that; jgs takes the mean over rows.")
        return found.astype(jnp.float32)

    return loss
