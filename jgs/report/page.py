"""`write_report`: the page about a run."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np

import jgs
from jgs.data.values import SPLITS
from jgs.errors import InputError, check_choice, refusing
from jgs.files.writing import whole_file
from jgs.options import as_typed, flag
from jgs.predict import open_run
from jgs.report.elements import (
    STYLE,
    Element,
    as_html,
    curve,
    folded,
    grid,
    section,
    shown,
    table,
    tag,
)
from jgs.report.figures import Judged, judge
from jgs.report.sections import sections, summary
from jgs.train.config import SETTINGS, Config, defaults_of
from jgs.train.loop import folder

_NAME = "report.html"
_ROWS = 200  # epochs in the table
# Nothing is loaded and no script runs, whatever the names in the data are.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NAMING_DATA = ("dataset", "data_options")


def write_report(
    run_dir: str | os.PathLike,
    out: str | os.PathLike | None = None,
    *,
    split: str = "test",
    examples: int = 6,
    **changed: Any,
) -> dict[str, Any]:
    """Writes one HTML page about a run. It needs no other file and no network, and is the same,
    byte for byte, whenever it is written of the same run on the same machine.

    The page has the run's last figures, the command that made it, and curves by epoch. For
    `--task nodes` it judges at most 100,000 predictions of a split: the confusion matrix, or
    of more than 30 classes the most confused pairs; precision, recall and F1 by class; the
    metric by degree; calibration; and the wrong predictions of the highest probability, each
    with the neighbourhood that the model has read. Where labels are numbers it has residuals
    in place of what is about classes; of several numbers a node it has curves alone.

    Args:
      run_dir: the run folder of `python -m jgs.train`.
      out: the file to write, which ends in .html; None: `report.html` in the run folder.
      split: "train", "val" or "test", the split that is judged.
      examples: int, at least 0; how many examples the page shows.
      changed: settings, as in `jgs.open_run`.

    Returns a dict: `out`, the file; `run_dir`; and of `--task nodes` the `split`, the number of
    `nodes` that were judged, and the value of their `metric`. Raises `InputError`.
    """
    check_choice("split", split, SPLITS)
    if examples < 0:
        raise InputError("examples must be at least 0", examples, "0 shows none.")
    path = Path(run_dir) / _NAME if out is None else Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("out must end in .html", path, "It is the page that is written.")
    run = open_run(run_dir, params="best", **changed)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(
            "out must name a file in a folder that can be written", path, "Choose another."
        )
    judged = judge(run, split) if "split" in run.flags and run.answer.point else None
    page = "<!DOCTYPE html>\n" + as_html(_page(run, judged, examples)) + "\n"
    rule = f"{path} must be writable, with room on its disk"
    with refusing(OSError, rule, "Choose another out."), whole_file(path) as file:
        file.write(page.encode("utf-8", "xmlcharrefreplace"))
    places = {"out": path, "run_dir": run_dir}
    result: dict[str, Any] = {name: os.path.abspath(each) for name, each in places.items()}
    if judged is not None:
        name, value = summary(judged)
        result |= {"split": split, "nodes": len(judged.nodes), "metric": name, "value": value}
    return result


def command_of(config: Config, run_dir: str) -> list[str]:
    """The words of a command that trains such a run: the flags that differ from the
    defaults."""
    defaults = defaults_of(config.task, config.sampler, config.model)
    words = ["jgs", "train"]
    for name, known in {**SETTINGS, **config.known()}.items():
        value = run_dir if name == "run_dir" else getattr(config, name)
        hidden = not known.option.flag or (config.partition and name in _NAMING_DATA)
        if hidden or value in (None, ()) or value == defaults.get(name, known.default):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
        else:
            many = value if isinstance(value, tuple) else (value,)
            words += [flag(name), *map(as_typed, many)]
    return words


def _page(run: Any, judged: Judged | None, examples: int) -> Element:
    config, name = run.config, Path(run.run_dir).absolute().name
    title = f"{name}: {run.task.model_name(config)} on {Path(config.dataset).name}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", STYLE),
    )
    parts = [_made_by(run.run_dir), _curves(run)]
    if judged is None:
        said = f"This page shows curves and the last figures of a run of --task {config.task}. "
        said += (
            "It judges predictions of --task nodes alone, of classes or of one number a node."
        )
        parts.append(section("Predictions", tag("p", said)))
    else:
        parts += sections(judged, examples)
    made = tag("footer", tag("p", f"Made by jgs {jgs.__version__}, jgs report.", class_="soft"))
    main = tag("main", tag("h1", title), _facts(run, judged), *_scope(judged), *parts)
    return tag("html", head, tag("body", main, made), lang="en")


def _facts(run: Any, judged: Judged | None) -> Element:
    try:
        result = json.loads((Path(run.run_dir) / folder.RESULT).read_text("utf-8"))
    except (OSError, ValueError):
        result = {}
    config, metric = run.config, str(result.get("metric", "metric"))
    found = {"task": config.task, "sampler": config.sampler}
    named = {"test_accuracy": f"test {metric}", "val_accuracy": f"validation {metric}"}
    for key, value in result.items():
        if type(value) in (int, float) and key != "epochs":
            found[named.get(key, key.replace("_", " "))] = shown(value)
    found["epochs"] = f"{run.epochs:,} of {config.epochs:,}"
    if not result:
        found["state"] = "not finished"
    if judged is not None:
        name, value = summary(judged)
        if found.get(f"{judged.split} {name}") != shown(round(value, 4)):
            found[f"{judged.split} {name} of this page"] = shown(value)
        found |= {key: shown(value) for key, value in judged.figures.items()}
        graph = judged.data.graphs[0]
        found |= {"nodes": shown(graph.num_nodes), "edges": shown(len(graph.indices))}
    each = (tag("div", tag("dt", key), tag("dd", text)) for key, text in found.items())
    return tag("dl", *each, class_="facts")


def _scope(judged: Judged | None) -> list[Element]:
    if judged is None:
        return []
    what = "nodes" if judged.time is None else "rows"
    rows = f"the {len(judged.nodes):,} {what} of the {judged.split} split"
    if len(judged.nodes) < judged.total:
        rows = (
            f"a random sample of {len(judged.nodes):,} of the {judged.total:,} {what} of the "
        )
        rows += f"{judged.split} split"
    said = f"Predictions are those of the best epoch, {judged.run.best_epoch}, for {rows}."
    if judged.time is not None:
        said += (
            " Their in-edges change with time, so the page has no figures by degree, and it "
        )
        said += "draws no neighbourhoods."
    return [tag("p", said)]


def _made_by(run_dir: str) -> Element:
    """The run's own settings. Those with which it was opened may differ."""
    saved = Config.from_json((Path(run_dir) / folder.CONFIG).read_text("utf-8"))
    # A flag and its values stay on one line where they have room.
    flags: list[list[str]] = [[]]
    for word in command_of(saved, run_dir):
        flags += [[]] if word.startswith("--") else []
        flags[-1].append(word)
    command = [(tag("span", shlex.join(words)), " ") for words in flags]
    own = json.loads(saved.to_json())
    rows = [(flag(name), json.dumps(value)) for name, value in own.items()]
    return section(
        "Command",
        tag("pre", tag("code", command)),
        tag("p", "The flags that differ from their defaults.", class_="soft"),
        folded("All settings", table("Settings of the run", ("setting", "value"), rows)),
    )


def _curves(run: Any) -> Element:
    columns, drawn = run.metrics, []
    if not len(columns.get("epoch", ())):
        return section("Curves", tag("p", "The run folder has no metrics."))
    epochs, best = columns["epoch"], run.best_epoch
    metric = str(columns["metric"][-1]) if "metric" in columns else "metric"
    names = {"train_loss": "training loss", "val_accuracy": f"validation {metric}"}
    kept = {}
    for key, values in columns.items():
        if not key.startswith(("train_", "val_")) or values.dtype.kind not in "if":
            continue
        some = np.isfinite(values)
        if some.any():
            name = names.get(key, key.replace("_", " "))
            kept[name] = values
            shape = epochs[some].tolist(), values[some].tolist()
            drawn.append(curve(name, *shape, best))
    step = -(-len(epochs) // _ROWS)
    rows = [
        (str(epochs[i]), *(float(values[i]) for values in kept.values()))
        for i in range(len(epochs) - 1, -1, -step)
    ][::-1]
    every = "each epoch" if step == 1 else f"every {step} epochs"
    said = "" if best is None else f"The ring is the best epoch, {best}."
    return section(
        "Curves",
        grid(*drawn),
        tag("p", said, class_="soft") if said else None,
        folded("The curves in numbers", table(f"Metrics of {every}", ("epoch", *kept), rows)),
    )
