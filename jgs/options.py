"""Options: the arguments of a class that a command makes flags of.

A class, or a function, says in its annotations which of its arguments are options:

    @dataclass(frozen=True)
    class Labor:
        importance: Annotated[int, Option("rounds of importance sampling", least=-1)] = 0

Flags, their help, completion, refusals and saved configurations are made of that. In a class of
the user's, named `package.module:Class`, each argument of a plain type is an option.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, Unpack, get_args, get_origin, get_type_hints

from jgs.errors import InputError, nearest

INT32 = 2**31 - 1
LONGEST = 2**63 - 1  # of a time, in the unit of a graph's times
_PLAIN = (bool, int, float, str)
_NONE, _KEYWORD = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY


class Option(NamedTuple):
    """What a command must know about an argument."""

    help: str = ""  # what `--help` says
    default: Any = _NONE  # the command's, where the argument has none or another
    name: str = ""  # where it is not the argument's: `--batch-size` is `batch_size`
    least: float | None = None  # the bounds of a number, or of every number of a tuple
    most: float | None = None
    above: float | None = None  # bounds that it may not reach
    below: float | None = None
    choices: tuple[str, ...] = ()
    metavar: str = ""  # what stands for the value in `--help`
    tasks: tuple[str, ...] = ()  # of `jgs train` that take the option; (): all
    identity: bool = True  # whether a resumed run must have the same
    saved: bool = True  # whether it is in a run's `config.json`
    flag: bool = True  # whether it has a flag
    never: float | None = None  # a number that it may not be
    first: bool = True  # whether the first page of `--help` shows it
    own: bool = False  # whether `package.module:function`, one of the user's, is a value too
    parse: Callable[[str], Any] | None = None  # of a text, where the type does not
    instead: bool = False  # whether only one of the options that say so may be given
    # Beside what `jgs train` reads it, one of these, itself read; (): always. `name`: that is
    # not 0, None or empty. `name=a,b`: it is one of these, or begins with one and a colon.
    only: tuple[str, ...] = ()


class Known(NamedTuple):
    """An option of a class."""

    argument: str  # that it sets
    kind: Any  # its type
    default: Any  # `inspect.Parameter.empty` where it must be given
    option: Option

    @property
    def item(self) -> type:
        """The type of a value, or of each value of a tuple; int where text stands for numbers
        too."""
        return next(kind for kind in self._kinds if kind in _PLAIN)

    @property
    def _kinds(self) -> tuple[Any, ...]:
        kinds = get_args(self.kind) or (self.kind,)
        return get_args(kinds[0]) or kinds if self.many else kinds

    @property
    def parser(self) -> Callable[[str], Any]:
        """Makes the value, or each value of a tuple, of a text on the command line. Where text
        stands for numbers too, it has a `=`."""
        if self.option.parse or self.item is str or str not in self._kinds:
            return self.option.parse or self.item

        def parsed(text: str) -> Any:
            return text if "=" in text else self.item(text)

        parsed.__name__ = self.item.__name__  # argparse names it where a value is invalid
        return parsed

    @property
    def many(self) -> bool:
        return get_origin(self.kind) is tuple

    def checked(self, name: str, value: Any) -> Any:
        """`value` as the option's type: lists become tuples, ints floats. Raises `InputError`
        for a value that the option `name` may not have."""
        if value is _NONE:
            raise InputError(f"{flag(name)} must be given", "nothing", "Give it, see --help.")
        value = _typed(name, value, self.kind)
        if value is None:
            return None
        for one in value if self.many else (value,):
            named = self.option.own and ":" in str(one)
            if self.option.choices and one not in self.option.choices and not named:
                own = ", or package.module:function" if self.option.own else ""
                raise InputError(
                    f"{flag(name)} must be one of {', '.join(self.option.choices)}{own}",
                    repr(one),
                    nearest(one, self.option.choices),
                )
            number = self.item in (int, float) and not isinstance(one, str)
            if number and (rule := self._broken(one)):
                usual = "" if self.default in (None, _NONE, ()) else as_typed(self.default)
                remedy = f"The default is {usual}." if usual else "See --help."
                raise InputError(f"{flag(name)} must be {rule}", one, remedy)
        return value

    def _broken(self, number: float) -> str | None:
        least, most, above, below = self.option[3:7]
        rules = [
            (least is None or number >= least, f"at least {least}"),
            (most is None or number <= most, f"at most {most}"),
            (above is None or number > above, f"above {above}"),
            (below is None or number < below, f"below {below}"),
            (number != self.option.never, f"other than {self.option.never}"),
            (number == number and abs(number) != float("inf"), "a finite number"),
        ]
        return next((rule for holds, rule in rules if not holds), None)


@dataclass(frozen=True, eq=False)
class Table(Mapping[str, Any]):
    """Classes by name, each of which is imported when it is first used. A name that is not in
    the table may be `package.module:Class`, for a class of the user's."""

    what: str  # the name of the option that chooses a class, such as "sampler"
    places: dict[str, str]  # `package.module:Class` by name
    has: Sequence[str]  # what each class has, by which a user's is known
    given: Sequence[str] = ()  # arguments of a user's class that are no options

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.places[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def find(self, name: str) -> Any:
        """The class of this name or place. Raises `InputError`."""
        if name in self:
            return self[name]
        found = _imported(self.what, name, "class", self)
        if lacks := [attribute for attribute in self.has if not hasattr(found, attribute)]:
            raise InputError(
                f"the class of {flag(self.what)} must be a {self.what}, see the docs",
                f"{name}, which has no {lacks[0]}",
                f"Name a class of jgs's contract of a {self.what}.",
            )
        return found

    def takes(self, place: str) -> bool:
        """Whether the user's class at `package.module:Class` is one for this table."""
        found = _imported(self.what, place, "class", self)
        return all(hasattr(found, attribute) for attribute in self.has)

    def options(self, name: str) -> dict[str, Known]:
        """The options of the class of this name or place. Raises `InputError`."""
        if name in self:
            return options_of(self[name])
        found = self.find(name)
        try:
            known = options_of(found, every=True)
        except (NameError, TypeError, ValueError, StopIteration) as error:
            raise InputError(
                f"the class of {flag(self.what)} must have arguments and annotations that can "
                "be read",
                f"{name} ({type(error).__name__}: {error})",
                "Import what the annotations name.",
            ) from None
        return {n: one for n, one in known.items() if one.argument not in self.given}


def options_of(maker: Any, every: bool = False) -> dict[str, Known]:
    """The options of a class or a function, by name. Those of a class with a method
    `from_options` are that method's arguments.

    With `every`, each argument of a plain type is an option: int, float, bool, str, a tuple of
    them, or None in their place.
    """
    made = getattr(maker, "from_options", maker)
    inner, fixed = (made.func, made.keywords) if isinstance(made, partial) else (made, {})
    hints, parameters = _arguments(inner)
    found = {}
    for argument, parameter in parameters.items():
        hint = hints.get(argument)
        kind, option = hint, None
        if get_origin(hint) is Annotated:
            kind, *extras = get_args(hint)
            option = next((extra for extra in extras if isinstance(extra, Option)), None)
        if option is None:
            if not (every and _is_plain(kind)) or argument in fixed:
                continue
            option = Option(f"see {maker.__name__}")
        default = parameter.default if option.default is _NONE else option.default
        if every and default is not _NONE and not _fits(default, kind):
            continue  # such as a dataclass's default_factory
        found[option.name or argument] = Known(argument, kind, default, option)
    return found


def make(
    maker: Any, options: Mapping[str, Known], values: Mapping[str, Any], **others: Any
) -> Any:
    """What a class or a function makes of the values of its options, and of other arguments."""
    arguments = {known.argument: values[name] for name, known in options.items()}
    return getattr(maker, "from_options", maker)(**arguments, **others)


def own_function(name: str, place: str) -> Callable[..., Any]:
    """The user's function at `package.module:function`, the value of the option `name`. Raises
    `InputError`."""
    return _imported(name, place, "function", ())


def arguments_of(maker: Any) -> list[str]:
    """The names of the arguments that a class or a function is called with."""
    return list(_arguments(maker)[1])


def flag(name: str) -> str:
    """The command-line flag of an option, e.g. `--batch-size`."""
    return "--" + name.replace("_", "-")


def add_options(found: argparse.ArgumentParser, maker: Any) -> None:
    """Adds the options of a class to the parser of a command: those without a default must be
    given."""
    options = options_of(maker)
    instead: Any = found
    if any(known.option.instead for known in options.values()):  # argparse takes no empty group
        instead = found.add_mutually_exclusive_group()
    for name, known in options.items():
        add_flag(instead if known.option.instead else found, name, known, own=True)


def add_flag(found: Any, name: str, known: Known, own: bool = False) -> None:
    """Adds the flag of an option to a parser or to one of its groups. Flags of a command's
    `own` must be given where they have no default, and their values are named like them."""
    option, kind = known.option, known.item
    options: dict[str, Any] = {"help": option.help.replace("%", "%%"), "dest": name}
    if kind is bool:
        options["action"] = argparse.BooleanOptionalAction if known.default else "store_true"
    else:
        shown = option.metavar or (None if own else kind.__name__.upper())
        options |= {"type": known.parser, "metavar": shown}
        if known.many:
            options["nargs"] = "+"
        if option.choices and not option.own:
            options |= {"choices": option.choices, "metavar": None}
        if known.default not in (None, (), _NONE):
            options["help"] += f" (default: {as_typed(known.default)})"
        if own and known.default is _NONE:
            options["required"] = True
    found.add_argument(flag(name), default=argparse.SUPPRESS, **options)


def as_typed(value: Any) -> str:
    """An option's value as it is written on the command line."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def joint_signature(*functions: Callable[..., Any], **defaults: Any) -> inspect.Signature:
    """The signature of functions of which each passes its further keywords on to the next, with
    other `defaults`. It lacks `self`, and what functions but the first take by position. The
    fields of a `TypedDict` in `**keywords: Unpack[...]` are arguments; those that need not be
    given have the default `...`. Annotations are types, not texts."""
    found: dict[str, inspect.Parameter] = {}
    for function in functions:
        hints = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name, _NONE)
            if get_origin(hint) is Unpack:
                (fields,) = get_args(hint)
                for field, kind in get_type_hints(fields, include_extras=True).items():
                    default = ... if field in fields.__optional_keys__ else _NONE
                    found[field] = inspect.Parameter(
                        field, _KEYWORD, default=default, annotation=kind
                    )
            elif name != "self" and (function is functions[0] or parameter.kind == _KEYWORD):
                default = defaults.get(name, parameter.default)
                found[name] = parameter.replace(annotation=hint, default=default)
    given = [each for each in found.values() if each.kind != inspect.Parameter.VAR_KEYWORD]
    return inspect.Signature(sorted(given, key=lambda each: each.kind))


def _arguments(maker: Any) -> tuple[dict[str, Any], Mapping[str, inspect.Parameter]]:
    maker = maker.func if isinstance(maker, partial) else maker
    if not isinstance(maker, type):
        return get_type_hints(maker, include_extras=True), inspect.signature(maker).parameters
    owner = next(c for c in maker.__mro__ if {"__init__", "__signature__"} & vars(c).keys())
    if joint := vars(owner).get("__signature__"):
        hints = {name: each.annotation for name, each in joint.parameters.items()}
        return hints, joint.parameters
    init = vars(owner)["__init__"]
    # A dataclass's own __init__ does not know the names of its bases' annotations.
    typed = owner if "__dataclass_fields__" in vars(owner) else init
    parameters = inspect.signature(partial(init, None)).parameters
    return get_type_hints(typed, include_extras=True), parameters


def _is_plain(kind: Any) -> bool:
    if get_origin(kind) is tuple:
        item, *more = get_args(kind)
        return item in _PLAIN and more == [...]
    kinds = get_args(kind) or (kind,)
    return set(kinds) <= {*_PLAIN, type(None)} and kinds != (type(None),)


def _fits(value: Any, kind: Any) -> bool:
    try:
        _typed("", value, kind)
    except InputError:
        return False
    return True


def _typed(name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if isinstance(value, list | tuple):
            return tuple(_typed(name, v, item) for v in value)
    elif type(value) is int and kind in (float, float | None):
        return float(value)
    elif isinstance(value, os.PathLike):
        return _typed(name, os.fspath(value), kind)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    kind_name = getattr(kind, "__name__", str(kind))
    raise InputError(f"{flag(name)} must be {kind_name}", repr(value), "See --help.")


def _imported(option: str, name: str, kind: str, known: Iterable[str]) -> Callable[..., Any]:
    """What a user's module has by this name; its `kind` is for messages."""
    module, colon, attribute = name.partition(":")
    if not (colon and module and attribute):
        place = f"package.module:{'Class' if kind == 'class' else kind}"
        choices = ", ".join([*known, f"or {place}"]) if known else place
        raise InputError(
            f"{flag(option)} must be {choices}", repr(name), nearest(name, [*known, place])
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # the module is the user's: anything may happen in it
        raise InputError(
            f"{flag(option)} must name a module that can be imported",
            f"{name} ({type(error).__name__}: {error})",
            "Start in the folder with the module, or set PYTHONPATH.",
        ) from None
    if not callable(found):
        raise InputError(
            f"{flag(option)} must name a {kind} of its module",
            f"{name}, which is {f'no {kind}' if found is not None else 'not there'}",
            f"Correct the name behind {module}:",
        )
    return found
