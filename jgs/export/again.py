"""`export_again`: the programs of an artifact anew, made of what it holds."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

import jgs
from jgs import kernels
from jgs.dist.communicators.comm import Alone
from jgs.errors import InputError, refuse
from jgs.export.load import read_artifact
from jgs.export.program import Form, TableForm, form_of, shown
from jgs.export.spec import Spec, today
from jgs.export.write import programs_of, write_artifact
from jgs.graph import Graph, Schema
from jgs.predict.run import Run
from jgs.train.config import Config
from jgs.train.tasks.served import Served


def export_again(folder: str | os.PathLike) -> Spec:
    """Writes the programs of the artifact in `folder` anew, with the JAX and the jgs that are
    installed; everything else in it stays. What is drawn has the same bits. Returns the new
    `Spec`. Raises `InputError`, also where this jgs would draw or read something else."""
    spec, arrays = read_artifact(Path(folder))
    run, served = _run_of(spec, arrays)
    form = _form(spec, run, served)
    inputs = {name: shown(array) for name, array in form.arrays().items()}
    # What older programs did not read: rows that hold from moments on.
    made = {n: s for n, s in inputs.items() if n in spec.inputs or ".later." not in n}
    was = {n: s for n, s in spec.inputs.items() if n not in ("key", "seeds", "time")}
    for rule, new, old in (
        ("an artifact's programs must draw as they did", repr(form.sampler), spec.sampler),
        ("an artifact's programs must read what they did", made, was),
    ):
        if new != old:
            raise InputError(rule, new, f"Install jgs {spec.jgs}, which wrote it.")
    has = "cpu" in spec.platforms and kernels.available()
    versions: dict[str, Any] = {"jgs": jgs.__version__, "jax": jax.__version__, "kernel": has}
    spec = dataclasses.replace(spec, inputs=inputs | spec.inputs, **versions, **today())
    kept = {name: array for name, array in arrays.items() if name[:8] != "program."}
    write_artifact(folder, spec, kept | programs_of(form, spec))
    return spec


def state_of(spec: Spec, arrays: Mapping[str, Any], graph: Graph) -> list[np.ndarray]:
    """The arrays of the state of an artifact's sampler for another graph."""
    return jax.tree.leaves(_run_of(spec, arrays)[1].sampler.init(graph))


def _run_of(spec: Spec, arrays: Mapping[str, Any]) -> tuple[Run, Served]:
    if "run" not in arrays:
        raise InputError(
            "an artifact must hold what its programs are made of",
            f"one of jgs {spec.jgs}, which wrote none",
            "Export the run again: jgs export --run-dir RUN --out FOLDER.",
        )
    record = json.loads(np.asarray(arrays["run"]).tobytes())
    config = Config.from_json(record["config"])
    model = config.made("task").model(config, record["shape"])
    leaves, tree = jax.tree.flatten(nnx.state(model))
    params = [np.asarray(arrays.get(f"param.{i}", ())) for i in range(len(leaves))]
    refuse(
        ([a.shape for a in params] != [a.shape for a in leaves],
         "an artifact's parameters must fit the model of its run", f"--model {config.model}",
         f"Install jgs {spec.jgs}, which wrote it."),
    )  # fmt: skip
    nnx.update(model, jax.tree.unflatten(tree, params))
    told = {"shape": record["shape"], "best_epoch": spec.best_epoch, "data": {}}
    run = Run(config, model, told | {"val_accuracy": spec.val_accuracy}, Alone(), {})
    return run, run.task.served(run, record["fanouts"])


def _form(spec: Spec, run: Run, served: Served) -> Form:
    """The form, of a graph without edges that has the arrays of the artifact's."""
    arrays = {}
    for name, text in spec.inputs.items():
        dtype, _, sizes = text.removesuffix("]").partition("[")
        if Graph.is_edge_array(name):
            arrays[name] = np.zeros((0, *map(int, sizes.split(", ")[1:])), dtype)
    schema = None if spec.schema is None else Schema(*spec.schema)
    indptr = np.zeros(1 + (1 if schema is None else schema.num_nodes), np.int64)
    graph = Graph.from_edge_arrays(indptr, arrays, schema=schema)
    forms = (
        None if t is None else TableForm(t[0], t[1], t[2], np.dtype(t[3]))
        for t in spec.tables or ()
    )
    of = served.sampler, run.model, served.rows, graph, tuple(forms), spec.typed
    return form_of(*of, run.timed, spec.direct, spec.room, spec.new_nodes or ())
