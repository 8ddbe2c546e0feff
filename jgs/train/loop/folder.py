"""The run folder: who may write to it, its `config.json` and its `metrics.jsonl`.

config.json     the configuration; written first, and again when a resumed run has begun
metrics.jsonl   one JSON object for each epoch, appended before the epoch's checkpoint
result.json     what the command prints; there from the end of the run until it is resumed
checkpoints/    see `jgs.train.loop.checkpoint`
curve.png       drawn at the end
tensorboard/    with --log tensorboard; see `jgs.train.loop.progress`
embeddings.npy  with --task embed: float32 [N, dim]
.lock           held by the process that writes there
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jgs.errors import InputError, refuse, refusing
from jgs.files.writing import locked, refusal, write_whole, writing
from jgs.options import as_typed, flag
from jgs.train.config import OWNERS, Config

CONFIG, METRICS, CHECKPOINTS = "config.json", "metrics.jsonl", "checkpoints"
RESULT = "result.json"
log = logging.getLogger(__name__)


def configure(given: dict[str, Any]) -> Config:
    """The configuration of a run, from the given flags and the run's folder.

    A new run's folder must be empty or absent. With `resume`, flags that are not given are read
    from `config.json` there, and the others must agree with it; but `epochs` may grow. Nothing
    in the folder is changed. Raises `InputError`.
    """
    run_dir, resume = given.get("run_dir"), given.get("resume", False)
    _check_name(run_dir or "runs")
    if not run_dir:
        if resume:
            raise InputError(
                "--resume must know which run to continue",
                "no --run-dir",
                "Give its --run-dir.",
            )
        return _of_its_data(_read(Config(**given)))
    folder = Path(run_dir)
    if folder.exists() and not folder.is_dir():
        raise InputError("--run-dir must be a folder", folder, "Choose another --run-dir.")
    # Names with a dot are the temporary files of a run that was killed.
    try:
        held = sorted(p.name for p in folder.iterdir() if p.name[0] != ".")
    except FileNotFoundError:
        held = []
    if not held:
        return _of_its_data(_read(Config(**given)))
    refuse(
        (not resume, "the run folder of a new run must be empty",
         f"{folder} with {', '.join(held[:4])}",
         "Choose another --run-dir, or continue the run there with --resume."),
        (CONFIG not in held, f"the folder of a run must hold {CONFIG}", folder,
         "Choose another --run-dir."),
    )  # fmt: skip
    saved = Config.from_json(_text(folder))
    # Of another task or model, the run's own options would be refused first.
    owners = {n: (given[n], getattr(saved, n)) for n in OWNERS if n in given}
    different, config = {n: both for n, both in owners.items() if both[0] != both[1]}, saved
    if not different:
        config = _read(dataclasses.replace(saved, **_shared(saved, given)), saved)
        different = config.differs_from(saved)
    if different:
        raise InputError(
            f"{folder} must belong to the same configuration",
            ", ".join(
                f"{flag(n)} {as_typed(a) or 'none'} there {as_typed(b) or 'none'}"
                for n, (a, b) in different.items()
            ),
            "Choose another --run-dir, or leave these flags as they were.",
        )
    refuse(
        (saved.partition is None and config.partition is not None,
         "a run on a whole data set must be resumed on it", f"--partition {config.partition}",
         "Leave it out, or start a new run in another --run-dir."),
        (config.epochs < saved.epochs, "--epochs must not shrink on --resume",
         f"{config.epochs} after {saved.epochs}", "Leave it out to keep it."),
    )  # fmt: skip
    return config if config.partition else _of_its_data(config)


def saved_owners(run_dir: str) -> dict[str, Any]:
    """The task, sampler and model that `config.json` names, as far as it can be read."""
    try:
        saved = json.loads(_text(Path(run_dir)))
        return {name: saved[name] for name in OWNERS if isinstance(saved.get(name), str)}
    except (InputError, ValueError, RecursionError, AttributeError):
        return {}


def _text(folder: Path) -> str:
    rule = f"{folder / CONFIG} must be a readable text file"
    with refusing((OSError, UnicodeDecodeError), rule, "Choose another --run-dir."):
        return (folder / CONFIG).read_text("utf-8")


def _check_name(folder: str) -> None:
    path = os.path.realpath(folder)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(
            "the path of a run folder must be UTF-8",
            repr(os.fsencode(path)),
            "Choose another --run-dir.",
        ) from None


def _read(config: Config, saved: Config | None = None) -> Config:
    """`config`. Raises `InputError` where nothing reads a setting that is not the default; that
    which an earlier version took and `saved` is no error."""
    for name, beside in config.idle().items():
        value = getattr(config, name)
        if saved is None or value != getattr(saved, name, None):
            raise InputError(
                f"{flag(name)} must be beside {beside}, or nothing reads it",
                f"{flag(name) if value is True else f'{flag(name)} {as_typed(value)}'} without",
                "Leave it out, or give that too.",
            )
    return config


def _of_its_data(config: Config) -> Config:
    if config.partition is not None:
        from jgs.data.parts import read_manifest  # a slow import

        return dataclasses.replace(
            config, dataset=read_manifest(Path(config.partition))["dataset"]
        )
    return config


def _shared(saved: Config, given: dict[str, Any]) -> dict[str, Any]:
    """`given`, with a `batch_size` by which today's ranks share the saved batches."""
    given = {"ranks": 1, **given}
    seeds, ranks = saved.batch_size * saved.ranks, given["ranks"]
    if ranks == saved.ranks or "batch_size" in given:
        return given
    if seeds % ranks:
        raise InputError(
            "a run must be resumed by a number of ranks that divides its batches",
            f"{ranks} ranks for batches of {seeds} seeds",
            f"Start {saved.ranks} ranks, as before, or another divisor.",
        )
    return {**given, "batch_size": seeds // ranks}


@contextmanager
def claimed(config: Config) -> Iterator[Path]:
    """A block in which this process alone writes to the run folder; yields the folder's path.

    A new run's folder is made if it is missing, and gets its `config.json`, which it loses
    where the run is refused before anything else is there. A resumed run's is left to
    `keep_config`. Raises `InputError` where another process holds the folder, or has begun a
    run there.
    """
    with ExitStack() as stack:
        try:
            folder = Path(config.run_dir) if config.run_dir else _fresh(config.dataset)
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder))
            configure(dataclasses.asdict(config))
            new = not (folder / CONFIG).exists()
            if new:
                write_whole(folder / CONFIG, config.to_json())
        except OSError as error:
            place = config.run_dir or "runs"
            raise InputError(
                "the run folder must be writable",
                refusal(error, place),
                "Choose another --run-dir.",
            ) from None
        try:
            yield folder
        except InputError:
            if new and all(p.name == CONFIG or p.name[0] == "." for p in folder.iterdir()):
                (folder / CONFIG).unlink()
            raise


def keep_config(folder: Path | None, config: Config) -> None:
    """Writes a resumed run's configuration, and removes its earlier result; None: nobody's."""
    if folder is None:
        return
    with writing(folder):
        write_whole(folder / CONFIG, config.to_json())
        (folder / RESULT).unlink(missing_ok=True)


def keep_result(folder: Path | None, result: dict[str, Any]) -> None:
    """Writes `result.json`, what the command prints; None: nobody's."""
    if folder is None:
        return
    with writing(folder):
        write_whole(folder / RESULT, json.dumps(result, allow_nan=False) + "\n")


def append_metrics(folder: Path, row: dict[str, Any]) -> None:
    """Adds one epoch's line to `metrics.jsonl`, and waits until it is on the disk."""
    with writing(folder), open(folder / METRICS, "a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_metrics(folder: Path, epochs: int) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` for the first `epochs` epochs, without damaged lines."""
    rows = map(_row, _lines(folder))
    return [row for row in rows if row is not None and row["epoch"] <= epochs]


def truncate_metrics(folder: Path, epochs: int) -> None:
    """Drops the lines of `metrics.jsonl` after the first `epochs` epochs. Where a line is
    damaged, a warning names it, and a copy of the file is kept beside it."""
    lines, rows = _lines(folder), read_metrics(folder, epochs)
    with writing(folder):
        if bad := _damaged(lines, epochs, len(rows)):
            names = _numbered(f"{METRICS}.damaged")
            aside = next(folder / name for name in names if not (folder / name).exists())
            shutil.copyfile(folder / METRICS, aside)
            log.warning(
                "%s is damaged in line %s: the other lines are kept, and the file as it was in "
                "%s",
                *(folder / METRICS, ", ".join(map(str, bad)), aside.name),
            )
        write_whole(folder / METRICS, "".join(json.dumps(row) + "\n" for row in rows))


def _lines(folder: Path) -> list[bytes]:
    with refusing(OSError, f"{folder / METRICS} must be readable", "Mend it, or remove it."):
        try:
            return (folder / METRICS).read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []


def _damaged(lines: list[bytes], epochs: int, num_rows: int) -> list[int]:
    """The numbers, from 1, of damaged lines. A last line without a line end, of an epoch that
    will be written again, does not count: a run was writing it when it was killed."""
    bad = [n for n, line in enumerate(lines, 1) if line.strip() and _row(line) is None]
    if bad[-1:] == [len(lines)] and lines[-1][-1:] != b"\n" and num_rows >= epochs:
        bad.pop()
    return bad


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or type(row.get("epoch")) is not int:
        return None
    # A run that learns from no labels has no accuracy.
    numbers = [row.get("train_loss"), row.get("val_accuracy", 0.0)]
    return row if all(type(number) in (int, float) for number in numbers) else None


def _fresh(dataset: str) -> Path:
    """A new folder for a run without `--run-dir`, made at once so that no other run gets it."""
    Path("runs").mkdir(exist_ok=True)
    names = _numbered(
        f"{Path(dataset.partition('?')[0]).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    while True:
        folder = Path("runs") / next(names)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))
