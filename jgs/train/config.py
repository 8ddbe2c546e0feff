"""`Config`: everything that decides a training run."""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jgs.command import absolute_option, option_values
from jgs.errors import InputError, refusing
from jgs.options import Known, as_typed, flag, make, options_of
from jgs.tables import DECODERS, MODELS, SAMPLERS_AND_WALKERS, TASKS
from jgs.train import settings

PAGES = {  # of the command's help; each has the flags of a class of settings
    "data": settings.Data,
    "task": settings.Learned,
    "model": settings.Layers,
    "run": settings.Run,
    "learning": settings.Learning,
    "machine": settings.Machine,
    "ranks": settings.Ranks,
}
SETTINGS = {n: known for page in PAGES.values() for n, known in options_of(page).items()}
OWNERS = {  # what has options of its own
    "task": TASKS,
    "sampler": SAMPLERS_AND_WALKERS,
    "model": MODELS,
    "decoder": DECODERS,
}
_TOGETHER = ("batch_size", "ranks")
_GROWING = ("epochs", "patience")  # they may have other values on --resume


def as_flags(values: Mapping[str, Any]) -> str:
    return " ".join(f"{flag(name)} {as_typed(value)}" for name, value in values.items())


def _as_beside(text: str) -> str:
    name, _, values = text.partition("=")
    return f"{flag(name)} {values.replace(',', ' or ')}".rstrip()


def tasks_of(known: Known) -> list[str]:
    """The tasks that take a setting, all of them or by some samplers."""
    return [task for task in known.option.tasks if task in TASKS]


def defaults_of(
    task: str, sampler: str | None = None, model: str | None = None
) -> dict[str, Any]:
    """The defaults of settings that differ from those of `SETTINGS`: of the task and then, in
    a task that has a model, of the model, by its `defaults`. None: not given. Raises
    `InputError`, also for defaults of a model that are no settings of a run."""
    kind = TASKS.find(task)
    found, names = kind.defaults_of(sampler), {}
    for name, given in (("sampler", sampler), ("model", model)):
        value = found.get(name, SETTINGS[name].default) if given is None else given
        names[name] = SETTINGS[name].checked(name, value)
    if kind.kind(names["sampler"]) not in SETTINGS["model"].option.tasks:
        return found
    own = getattr(MODELS.find(names["model"]), "defaults", {})
    if wrong := sorted(own.keys() - SETTINGS.keys()):
        raise InputError(
            "the defaults of a model must be of settings of a run",
            f"{', '.join(wrong)} of {names['model']}",
            "Give the argument a default.",
        )
    return found | own


@dataclass(frozen=True, init=False)
class Config(
    settings.Data,
    settings.Learned,
    settings.Layers,
    settings.Run,
    settings.Learning,
    settings.Machine,
    settings.Ranks,
):
    """The settings of a run, and the options of its sampler, model, decoder and task.

    The setting `batch_size` is the flag `--batch-size`, and so on. Options are given like
    settings, `Config(sampler="labor", importance=1)`, and read like them; `options` has all of
    them by name. The defaults are those of the model and of the task, and train the embedded
    data set in well under a minute on two cores. The constructor checks every value and raises
    `InputError`, also for an option of another sampler, model, decoder or task.
    """

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __init__(self, *, options: Mapping[str, Any] | None = None, **given: Any):
        task = given.get("task", SETTINGS["task"].default)
        kind = TASKS.find(SETTINGS["task"].checked("task", task))
        defaults = defaults_of(task, given.get("sampler"), given.get("model"))
        for name, known in SETTINGS.items():
            value = given.pop(name, defaults.get(name, known.default))
            object.__setattr__(self, name, known.checked(name, value))
        self._check_settings(defaults)
        kind.check_sampler(self.sampler)
        own, old = self.known(), options or {}
        found = {
            name: known.checked(name, given.pop(name, old.get(name, known.default)))
            for name, known in own.items()
        }
        for name, value in given.items():
            self._refuse(name, value)
        object.__setattr__(self, "options", found)
        self.made("task").check(self)

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"this Config has no setting and no option {name!r}")

    @property
    def owners(self) -> list[str]:
        """Which of task, sampler, model and decoder the run chooses."""
        return [name for name in OWNERS if self._takes(name)]

    def known(self, owner: str = "") -> dict[str, Known]:
        """The options of an owner ("task", "sampler", "model" or "decoder"), by default of
        all. Raises `InputError` for two of one name."""
        if owner:
            return OWNERS[owner].options(getattr(self, owner))
        found: dict[str, Known] = {}
        for each in self.owners:
            own = self.known(each)
            if twice := sorted(own.keys() & (found.keys() | SETTINGS.keys())):
                raise InputError(
                    f"the arguments of --{each} must not have the names of other flags",
                    f"{', '.join(twice)} of {getattr(self, each)}",
                    "Rename them, or give the class a method from_options.",
                )
            found |= own
        return found

    def made(
        self, owner: str, changed: Mapping[str, Any] | None = None, **arguments: Any
    ) -> Any:
        """The task, sampler, model or decoder of its options, some `changed`, and of other
        arguments."""
        table, name = OWNERS[owner], getattr(self, owner)
        values = {**self.options, **(changed or {})}
        try:
            return make(table.find(name), self.known(owner), values, **arguments)
        except InputError:
            raise
        except Exception as error:
            if name in table:
                raise
            raise InputError(
                f"the class of --{owner} must be made of its options",
                f"{name} ({type(error).__name__}: {error})",
                "Correct its __init__, or its method from_options.",
            ) from error

    @property
    def of_model(self) -> str:
        """The settings that are defaults of the model, as flags; "" if there are none."""
        maker = OWNERS["model"].find(self.model) if "model" in self.owners else None
        own = getattr(maker, "defaults", {}).items()
        return as_flags({name: value for name, value in own if getattr(self, name) == value})

    def _takes(self, name: str) -> bool:
        tasks = SETTINGS[name].option.tasks
        return not tasks or TASKS.find(self.task).kind(self.sampler) in tasks

    def _check_settings(self, defaults: Mapping[str, Any]) -> None:
        for name, known in SETTINGS.items():
            value = getattr(self, name)
            if not self._takes(name) and value != defaults.get(name, known.default):
                raise InputError(
                    f"{flag(name)} must be for --task {' or '.join(tasks_of(known))}",
                    f"{flag(name)} {as_typed(value)} for --task {self.task} "
                    f"--sampler {self.sampler}",
                    "Leave it out, or choose that task, or another sampler for it.",
                )
        if self.partition is not None and self.feature_dtype != "stored":
            raise InputError(
                "the rows of parts must be kept as they were written",
                f"--feature-dtype {self.feature_dtype} beside --partition",
                "Write the parts by jgs partition --feature-dtype.",
            )
        # Absolute, so that a run can be resumed from any folder.
        paths = {"root": self.root, "partition": self.partition, "scratch": self.scratch}
        for name, path in paths.items():
            if path is not None:
                object.__setattr__(self, name, os.path.abspath(path))
        if "://" in self.dataset:
            from jgs.data.database.postgres import without_password  # a slow import

            object.__setattr__(self, "dataset", without_password(self.dataset))
        elif os.path.exists(self.dataset):
            from jgs.data import LOADERS  # a slow import, for paths only

            if self.dataset not in LOADERS:
                object.__setattr__(self, "dataset", os.path.abspath(self.dataset))
        for name, what in (("run_dir", "folder"), ("dataset", "data set")):
            if getattr(self, name) == "":
                raise InputError(f"{flag(name)} must name a {what}", "''", "Leave it out.")
        options = []
        for option in self.data_options:
            if "=" not in option:
                raise InputError(
                    "--data-options must be of the form NAME=VALUE",
                    repr(option),
                    "Give e.g. noise=0.5.",
                )
            options.append(absolute_option(*option.split("=", 1)))
        object.__setattr__(self, "data_options", tuple(options))

    def _refuse(self, name: str, value: Any) -> None:
        for owner, table in OWNERS.items():
            takers = [taker for taker in table if name in table.options(taker)]
            if not takers:
                continue
            known = table.options(takers[0])[name]
            if known.checked(name, value) == known.default:
                return
            if owner not in self.owners:
                owner, takers = "task", tasks_of(SETTINGS[owner])
            raise InputError(
                f"{flag(name)} must be for --{owner} {' or '.join(takers)}",
                f"{flag(name)} {as_typed(value)} for --{owner} {getattr(self, owner)}",
                f"Leave it out, or choose such a {owner}.",
            )
        raise InputError(
            "a setting must be one that the run has", name, "See jgs train --help."
        )

    def idle(self) -> dict[str, str]:
        """The settings and options that are not the default and that this run does not read
        (`Option.only`), each with the flags beside which one is read."""
        known = SETTINGS | self.known()
        defaults = defaults_of(self.task, self.sampler, self.model)

        def there(beside: str) -> bool:
            name, _, values = beside.partition("=")
            value = getattr(self, name) if name in known else None
            heads = {
                str(v).partition(":")[0] for v in (value if type(value) is tuple else [value])
            }
            return bool(heads & set(values.split(","))) if values else bool(value)

        def lacks(name: str) -> str:
            only = known[name].option.only
            deeper = [lacks(beside.partition("=")[0]) for beside in filter(there, only)]
            return (deeper or [" or ".join(map(_as_beside, only))])[0] if all(deeper) else ""

        return {
            name: lacking
            for name, one in known.items()
            if getattr(self, name) != defaults.get(name, one.default)
            and (lacking := lacks(name))
        }

    @property
    def whole_topology(self) -> bool:
        """Whether every rank has the edges of all nodes."""
        return self.partition is None or self.mode == "hybrid"

    def data_arguments(self) -> dict[str, Any]:
        """`data_options` as keyword arguments, see `jgs.command.option_values`."""
        return option_values(self.data_options)

    def to_json(self) -> str:
        """The saved form: the settings that are saved, and the options, by name."""
        saved = {n: getattr(self, n) for n, known in SETTINGS.items() if known.option.saved}
        return json.dumps(saved | dict(self.options), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, **own: Any) -> Config:
        """The configuration that `to_json` wrote. Settings that the text lacks have their
        defaults, and `own` replaces any. Raises `InputError`."""
        rule = "a saved configuration must be JSON"
        with refusing((ValueError, RecursionError), rule, "Choose another --run-dir."):
            saved = json.loads(text)
        rule = "a saved configuration must be one that this version of jgs can read"
        remedy = "Resume with the version that wrote it, or choose another --run-dir."
        if not isinstance(saved, dict) or (saved and "sampler" not in saved):
            seen = (
                "one of an earlier version" if isinstance(saved, dict) else reprlib.repr(saved)
            )
            raise InputError(rule, seen, remedy)
        if saved:  # runs of before these settings
            saved = {"edge_features": ["none"], "keys": 0} | saved
        for owner, table in OWNERS.items():
            if ":" in str(saved.get(owner)):
                table.find(str(saved[owner]))  # the user's module may not be here
        try:
            cls(**saved)
        except InputError as error:
            raise InputError(rule, str(error).rstrip("."), remedy) from None
        return cls(**saved | own)

    def differs_from(self, other: Config) -> dict[str, tuple[Any, Any]]:
        """The settings and options in which two runs differ, without `epochs` and `patience`:
        each name with both values."""
        names = [n for n, known in SETTINGS.items() if known.option.identity]
        names = [n for n in names if n not in (*_GROWING, *_TOGETHER)]
        # Another number of ranks may share the same batches.
        if self.batch_size * self.ranks != other.batch_size * other.ranks:
            names += _TOGETHER
        names += [name for name in self.options if name in other.options]
        pairs = {n: (getattr(self, n, None), getattr(other, n, None)) for n in names}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}
