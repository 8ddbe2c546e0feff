"""How flags make the samplers of the command, which are named as in `jgs.sampling.SAMPLERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from jgs.errors import InputError
from jgs.sampling import (
    ASGCN,
    GCNBS,
    PASS,
    VRGCN,
    ByEpoch,
    FastGCN,
    Frontier,
    HetGNN,
    Labor,
    Ladies,
    Neighbors,
    OnPlateau,
    PinSage,
    Saint,
    Sampler,
    SamplerSchedule,
    Shadow,
    Subgraph,
    Thanos,
)
from jgs.train.config import Config, as_typed, flag

Widths = Callable[[], tuple[int, ...]]


class Entry(NamedTuple):
    """One sampler of the command.

    Fields:
      make: makes the sampler. Its arguments are the configuration; whether the first layer is
        to read the feature store directly, if the sampler can serve that; and the widths of the
        layers' messages.
      flags: the configuration's fields that belong to this sampler. Other samplers refuse them.
      layers: the number of layers of a model for this sampler.
    """

    make: Callable[[Config, bool, Widths], Sampler]
    flags: tuple[str, ...]
    layers: Callable[[Config], int]


def _neighbors(config: Config, direct: bool, widths: Widths) -> Sampler:
    return Neighbors(config.fanouts, config.replace, config.weighted, relabel_inputs=not direct)


def _labor(config: Config, direct: bool, widths: Widths) -> Sampler:
    return Labor(
        config.fanouts,
        config.importance,
        config.layer_dependency,
        config.period,
        relabel_inputs=not direct,
    )


def _subgraph(config: Config, direct: bool, widths: Widths) -> Sampler:
    return Subgraph(config.extra_nodes)


def _frontier(config: Config, direct: bool, widths: Widths) -> Sampler:
    sizes = (config.frontier_size, config.budget)
    return Frontier(*sizes, degree_cap=config.degree_cap, norm_error=config.norm_error or None)


def _saint(config: Config, direct: bool, widths: Widths) -> Sampler:
    steps = config.walk_steps if config.draw == "walk" else None
    return Saint(config.draw, config.budget, steps, norm_error=config.norm_error or None)


def _shadow(config: Config, direct: bool, widths: Widths) -> Sampler:
    if config.scope_size:
        return Shadow.ppr(config.scope_size, disjoint=config.disjoint)
    return Shadow(Neighbors(config.fanouts), config.disjoint)


def _vrgcn(config: Config, direct: bool, widths: Widths) -> Sampler:
    return VRGCN(config.fanouts, widths=widths())


def _gcnbs(config: Config, direct: bool, widths: Widths) -> Sampler:
    return GCNBS(config.fanouts)


def _thanos(config: Config, direct: bool, widths: Widths) -> Sampler:
    return Thanos(config.fanouts)


def _pass(config: Config, direct: bool, widths: Widths) -> Sampler:
    return PASS(config.fanouts)


def _asgcn(config: Config, direct: bool, widths: Widths) -> Sampler:
    return ASGCN(config.sizes)


def _fastgcn(config: Config, direct: bool, widths: Widths) -> Sampler:
    return FastGCN(config.sizes)


def _ladies(config: Config, direct: bool, widths: Widths) -> Sampler:
    return Ladies(config.sizes)


def _pinsage(config: Config, direct: bool, widths: Widths) -> Sampler:
    return PinSage(config.fanouts, *_walks(config), config.relations or None)


def _hetgnn(config: Config, direct: bool, widths: Widths) -> Sampler:
    return HetGNN(config.fanouts, *_walks(config))


def _walks(config: Config) -> tuple[int, int, float]:
    if len(config.walks) != 2:
        raise InputError(
            "--walks must be two ints, how many and of how many steps",
            as_typed(config.walks),
            "Give e.g. --walks 200 10.",
        )
    return (*config.walks, config.restart)


def _a_size_each(config: Config) -> int:
    return len(config.sizes)


def _a_fanout_each(config: Config) -> int:
    return len(config.fanouts)


def _as_flagged(config: Config) -> int:
    return config.layers if config.layers is not None else 2


_SCHEDULE = ("fanout_schedule", "plateau_fraction", "plateau_epochs")
SAMPLERS = {
    "neighbors": Entry(
        _neighbors, ("fanouts", "replace", "weighted", *_SCHEDULE), _a_fanout_each
    ),
    "labor": Entry(
        _labor,
        ("fanouts", "importance", "layer_dependency", "period", *_SCHEDULE),
        _a_fanout_each,
    ),
    "fastgcn": Entry(_fastgcn, ("sizes", *_SCHEDULE), _a_size_each),
    "ladies": Entry(_ladies, ("sizes", *_SCHEDULE), _a_size_each),
    "vrgcn": Entry(_vrgcn, ("fanouts", "state_age", *_SCHEDULE), _a_fanout_each),
    "gcnbs": Entry(_gcnbs, ("fanouts", "state_age", *_SCHEDULE), _a_fanout_each),
    "thanos": Entry(_thanos, ("fanouts", "state_age", *_SCHEDULE), _a_fanout_each),
    "pass": Entry(_pass, ("fanouts", "state_age", *_SCHEDULE), _a_fanout_each),
    "asgcn": Entry(_asgcn, ("sizes", "state_age", *_SCHEDULE), _a_size_each),
    "pinsage": Entry(
        _pinsage, ("fanouts", "walks", "restart", "relations", *_SCHEDULE), _a_fanout_each
    ),
    "hetgnn": Entry(_hetgnn, ("fanouts", "walks", "restart", *_SCHEDULE), _a_fanout_each),
    "subgraph": Entry(_subgraph, ("extra_nodes", "layers"), _as_flagged),
    "frontier": Entry(
        _frontier,
        ("frontier_size", "budget", "degree_cap", "norm_error", "layers"),
        _as_flagged,
    ),
    "saint": Entry(
        _saint, ("draw", "budget", "walk_steps", "norm_error", "layers"), _as_flagged
    ),
    "shadow": Entry(_shadow, ("fanouts", "scope_size", "disjoint", "layers"), _as_flagged),
}


def make_sampler(
    config: Config, direct: bool = False, widths: Widths | None = None
) -> Sampler | SamplerSchedule:
    """The sampler of a configuration, or its schedule of samplers. `widths` are those of the
    messages of the model's layers; None, where they are not known yet, counts as 1. Raises
    `InputError` for flags of other samplers."""
    own = SAMPLERS[config.sampler]
    others = {name for entry in SAMPLERS.values() for name in entry.flags} - set(own.flags)
    for name in sorted(others):
        if (value := getattr(config, name)) != getattr(Config, name):
            takers = [n for n, entry in SAMPLERS.items() if name in entry.flags]
            raise InputError(
                f"{flag(name)} must be for --sampler {' or '.join(takers)}",
                f"{flag(name)} {as_typed(value)} for --sampler {config.sampler}",
                "Leave it out, or choose such a sampler.",
            )
    widths = widths or (lambda: (1,) * own.layers(config))
    first = own.make(config, direct, widths)
    if not config.fanout_schedule:
        return first
    field = "fanouts" if "fanouts" in own.flags else "sizes"
    when, samplers = [], [first]
    for text in config.fanout_schedule:
        begin, numbers = _stage(text, own.layers(config))
        change: dict[str, Any] = {field: numbers}
        later = replace(config, **change)
        when.append(begin)
        samplers.append(own.make(later, direct, widths))
    if None not in when:
        return ByEpoch(tuple(zip((0, *when), samplers, strict=True)))
    if set(when) != {None}:
        raise InputError(
            "--fanout-schedule must go by epochs or by the loss, not by both",
            as_typed(config.fanout_schedule),
            "Write an epoch in each entry, or plateau in each.",
        )
    return OnPlateau(samplers, config.plateau_fraction, config.plateau_epochs)


def _stage(text: str, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """The epoch and the fanouts of an entry of --fanout-schedule; the epoch is None for a
    plateau."""
    when, _, rest = text.partition(":")
    try:
        begin = None if when == "plateau" else int(when)
        numbers = tuple(map(int, rest.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) != layers:
        raise InputError(
            "an entry of --fanout-schedule must be an epoch or plateau, a colon, and a fanout "
            f"for each of {layers} layers",
            repr(text),
            "Write 10:15,15 or plateau:15,15.",
        )
    return begin, numbers


def num_layers(config: Config) -> int:
    """The number of layers of the configuration's model."""
    return SAMPLERS[config.sampler].layers(config)
