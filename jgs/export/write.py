"""`export_run` writes a trained run as an artifact."""

from __future__ import annotations

import hashlib
import operator
import os
import reprlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jgs
from jgs import kernels
from jgs.data import stored
from jgs.errors import InputError
from jgs.export.program import Form, exported, shown
from jgs.export.spec import COLUMNS, DIGEST, FILE, FORMAT, KIND, NONE, ROWS, Spec
from jgs.files.replacing import replacing
from jgs.files.storage import array_files, write_arrays
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table
from jgs.predict.open import open_run
from jgs.predict.run import Run
from jgs.predict.sampled import neighbor_sampler
from jgs.sampling.fanouts import check_fanouts
from jgs.tables import ROW_TABLES
from jgs.train.loop.data import Data

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_run(
    run: Run | str | os.PathLike,
    out: str | os.PathLike,
    *,
    fanouts: Sequence[int] | None = None,
    batch_sizes: Sequence[int] = (1, 8, 64),
    platforms: Sequence[str] = ("cpu",),
    with_graph: bool = False,
    direct: bool = False,
    graph: Graph | None = None,
    features: Any = None,
) -> Spec:
    """Writes the sampler, the reading of features and the model of a run to the folder `out`,
    which `jgs.load_exported` opens without training code. Returns its `Spec`.

    The programs are those of `jax.export`. They take graphs of any size. For a CPU there are
    programs that call the compiled kernels, if these are here, and plain ones; for other
    platforms there are plain ones. The outputs are the bits of `run.logits(..., fanouts=)`
    where both use the kernels, and equal to rounding elsewhere.

    Args:
      run: what `jgs.open_run` returned, or the run's folder. Its model is exported with the
        parameters that it has. It must be a run of `--task nodes` on a graph without types and
        times, whole or in parts.
      out: the folder. An earlier artifact there is replaced.
      fanouts: positive ints, how many neighbours are drawn in each layer, the seeds' hop first.
        None: the run's own.
      batch_sizes: the numbers of seeds that there is a program for.
      platforms: of `"cpu"`, `"cuda"`, `"rocm"` and `"tpu"`.
      with_graph: whether the artifact holds the graph and the features too, which are otherwise
        given to `jgs.load_exported`. A run on parts needs `graph` and `features` for it.
      direct: whether the first layer is to sum the rows of neighbours while it reads them, also
        where that changes the outputs' last bits: faster for features that are wider than the
        layer. Where no bit changes it is done anyway.
      graph, features: in place of the run's data, as `Run` takes them.

    Raises `InputError` for a run that cannot be exported, and for a folder that holds anything
    else.
    """
    path = isinstance(run, str | os.PathLike)
    run = _checked(open_run(run, progress=False) if path else run)  # type: ignore[arg-type]
    if with_graph and graph is None and run.config.partition is not None:
        raise InputError(
            "with_graph must be for a whole graph",
            f"a run on the parts in {run.config.partition}",
            "Leave it out, or give graph and features, in the order of the data set.",
        )
    source = run.source(graph, features)
    form = _form(run, source, fanouts, direct)
    sizes, where = _check_sizes(batch_sizes), _check_platforms(platforms)
    programs: dict[str, Any] = {}
    kernel = "cpu" in where and kernels.available()
    for size in sizes:
        if kernel:
            programs[f"kernel.{size}"] = exported(form, size, ("cpu",), True)
        programs[f"plain.{size}"] = exported(form, size, where, False)
    spec = _spec(run, source, form, sizes, where, kernel, with_graph)
    arrays = {
        f"program.{name}": np.frombuffer(made.serialize(), np.uint8)
        for name, made in programs.items()
    }
    arrays |= {f"param.{i}": leaf for i, leaf in enumerate(form.params())}
    if with_graph:
        own = source.graphs[0]
        own = own if form.sampler.weighted or form.model.edge_columns else own.unweighted()
        arrays |= {f"graph.{name}": array for name, array in own.stored().items()}
        arrays |= stored.features(source.every_row) | stored.node_ids(source.node_ids)
    text = spec.text().encode()
    arrays[DIGEST] = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    with replacing(out, KIND, lambda folder: {FILE, *array_files(folder, KIND)}) as fresh:
        write_arrays(fresh, KIND, arrays)
        (fresh / FILE).write_bytes(text)
    return spec


def _checked(run: Any) -> Run:
    if not (run.exports and run.answer.exports):
        seen = "one at moments" if run.timed else f"--model {run.config.model}"
        raise InputError(
            "an exported run must be of --task nodes, with labels that have no times, by a "
            "model that reads no contexts",
            f"--task {run.config.task}, {seen}",
            "Predict with jgs.open_run there.",
        )
    columns = set(run.model.edge_columns) - {"weight"}
    for bad, value in (
        (getattr(run.model, "typed", False), f"--model {run.config.model}, which reads types"),
        (columns, f"a model that reads the edges' {', '.join(sorted(columns))}"),
    ):
        if bad:
            raise InputError(
                "an exported run must be on a graph of which it reads neither types nor "
                "columns of edges but their weight",
                value,
                "Predict with jgs.open_run there.",
            )
    return run


def _form(run: Run, source: Data, fanouts: Any, direct: bool) -> Form:
    fanouts = run.config.options.get("fanouts") if fanouts is None else fanouts
    if fanouts is None:
        raise InputError(
            "an exported model must draw a number of neighbours in each layer",
            f"no fanouts, for a run of --sampler {run.config.sampler}",
            "Give fanouts (--fanouts), such as 10 10.",
        )
    sampler, fanouts = neighbor_sampler(run.config, run.model, fanouts), check_fanouts(fanouts)
    if min(fanouts) < 1:
        raise InputError(
            "the fanouts of an exported model must be positive, for its memory is bounded",
            fanouts,
            "Give the number of neighbours that each layer draws, such as 10 10.",
        )
    table, first = source.every_row, run.model.layers[0]
    if direct and not first.takes_inputs:
        raise InputError(
            "direct must be for a first layer that takes sums of its neighbours' rows",
            type(first).__name__,
            "Leave it out.",
        )
    rows = as_table(table)
    same_bits = first.takes_inputs and not first.projects_first and rows.same_sums
    dtype = np.float32 if rows.by_entries else rows.rows[0].dtype
    return Form(sampler, run.model, fanouts, rows.form, dtype, direct or same_bits)


def _spec(
    run: Run,
    source: Data,
    form: Form,
    sizes: tuple[int, ...],
    platforms: tuple[str, ...],
    kernel: bool,
    with_graph: bool,
) -> Spec:
    names, table = run.class_names, as_table(source.every_row)
    own = {name: getattr(run.config, name) for name in ("dataset", "model", "seed")}
    own |= {name: getattr(run, name) for name in ("best_epoch", "num_features", "num_classes")}
    own |= {name: getattr(form.sampler, name) for name in ("replace", "weighted")}
    return Spec(
        **own,
        format=FORMAT,
        jgs=jgs.__version__,
        jax=jax.__version__,
        val_accuracy=float(run.val_accuracy),
        fanouts=list(form.fanouts),
        batch_sizes=list(sizes),
        platforms=list(platforms),
        kernel=kernel,
        direct=form.direct,
        inputs={name: shown(array) for name, array in form.arrays().items()}
        | {"key": "uint32[2]", "seeds": f"int32[{' | '.join(map(str, sizes))}]"},
        outputs={"logits": f"float32[seeds, {run.num_classes}]"},
        feature_dtype="float32" if table.by_entries else table.kind,
        sparse=ROW_TABLES[form.rows].by_entries,
        normalization=_normalization(source.every_row, run.config.data_arguments()),
        multilabel=bool(run.multilabel),
        class_names=None if names is None else names.tolist(),
        numbers=list(run.scale) if run.numbers else None,
        columns=list(run.answer.outputs) or None,
        point=run.answer.point if run.answer.outputs else None,
        least_edges=form.least_edges,
        has_graph=with_graph,
    )


def _normalization(features: Any, options: dict[str, Any]) -> str:
    """What was done to the features before training: one of the values of
    `Spec.normalization`. That rows were divided by their sums is known by their sums."""
    if options.get("standardize"):
        return COLUMNS
    parts = features if isinstance(features, tuple) else (features,)
    for rows in [as_table(part).host() for part in parts]:
        step = max(1, (1 << 22) // max(1, rows.shape[1]))  # bounds the temporaries
        for begin in range(0, rows.shape[0], step):
            some = rows[begin : begin + step]
            sums = np.asarray(some.sum(axis=1, dtype=np.float64))
            share = (sums == 0) | (abs(sums - 1) < 1e-4)
            if some.size and (some.min() < 0 or not share.all()):
                return NONE
    return ROWS


def _check_sizes(batch_sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(sorted({operator.index(size) for size in batch_sizes}))
    except TypeError:
        sizes = ()
    if not sizes or sizes[0] < 1:
        raise InputError(
            "batch_sizes must be positive ints", reprlib.repr(batch_sizes), "E.g. 1 8 64."
        )
    return sizes


def _check_platforms(platforms: Sequence[str]) -> tuple[str, ...]:
    where = (platforms,) if isinstance(platforms, str) else tuple(dict.fromkeys(platforms))
    if not where or set(where) - set(PLATFORMS):
        known = ", ".join(PLATFORMS)
        raise InputError(f"platforms must be some of {known}", where, "Choose from these.")
    return where
