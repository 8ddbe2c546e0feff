"""`export_run` writes a trained run as an artifact. `export_again` writes the programs of one
anew, made of what it holds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import os
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

import jgs
from jgs import kernels
from jgs.data import stored
from jgs.dist.communicators.comm import Alone
from jgs.errors import InputError, refuse
from jgs.export import program
from jgs.export.load import opened_model, read_artifact
from jgs.export.spec import COLUMNS, DIGEST, FILE, FORMAT, KIND, NONE, ROWS, Spec, today
from jgs.files.replacing import replacing
from jgs.files.storage import array_files, write_arrays
from jgs.graph import Graph, Schema
from jgs.graph.grouping import RelationIndex
from jgs.graph.live.room import node_counts
from jgs.graph.row_tables.table import as_table
from jgs.graph.rows import row_offsets
from jgs.predict.open import open_run
from jgs.predict.run import Run
from jgs.sampling.checks import require_int
from jgs.sampling.pairs import only_facts
from jgs.train.config import Config
from jgs.train.loop.data import Data
from jgs.train.tasks.task import PairForm, Served

_LEAST_NEW = 1024
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_run(
    run: Run | str | os.PathLike,
    out: str | os.PathLike,
    *,
    fanouts: Sequence[Any] | None = None,
    batch_sizes: Sequence[int] = (1, 8, 64),
    platforms: Sequence[str] = ("cpu",),
    with_graph: bool = False,
    direct: bool = False,
    live: bool = False,
    new_nodes: int | None = None,
    at: Any = None,
    graph: Graph | None = None,
    features: Any = None,
) -> Spec:
    """Writes the sampler, the reading of features and the model of a run to the folder `out`,
    which `jgs.load_exported` opens without training code. Returns its `Spec`.

    The programs are those of `jax.export`. They take graphs of any number of edges, and graphs
    whose types they do not read, of any number of nodes. For a CPU there are programs that call
    the compiled kernels, if these are here, and plain ones; for other platforms there are plain
    ones. What is drawn has the bits of what the run draws, and the outputs are equal to those
    of `run.logits(..., fanouts=)`, or of a run that sees times or contexts `run.logits(...)`:
    bit for bit without times where both use the kernels, and to rounding elsewhere. A run on
    pairs without times predicts from all neighbours, and its artifact from the sampled ones.

    Args:
      run: what `jgs.open_run` returned, or the run's folder. Its model is exported with the
        parameters that it has. It must be a run of a task of nodes, links or edges whose
        sampler is by-node and bounded, whole or in parts.
      out: the folder. An earlier artifact there is replaced.
      fanouts: positive ints, or dicts of them by relation, how many neighbours are drawn in
        each layer, the seeds' hop first. None: the run's own.
      batch_sizes: the numbers of seeds that there is a program for.
      platforms: of `"cpu"`, `"cuda"`, `"rocm"` and `"tpu"`.
      with_graph: whether the artifact holds the graph and the features too, which are otherwise
        given to `jgs.load_exported`, and of a run on links the candidates' rows. A run on parts
        needs `graph` and `features` for it.
      direct: whether the first layer is to sum the rows of neighbours while it reads them, also
        where that changes the outputs' last bits: faster for features that are wider than the
        layer. Where no bit changes it is done anyway.
      live: whether the programs are to read graphs that grow (`jgs.graph.Live`), for `jgs serve
        --log`. They read others too, but no `NewNodes`.
      new_nodes: beside `live`, ids of each node type to keep free for nodes that come later.
        Nodes without a row in a matrix of features, and those with learned rows, get none.
        None: a fifth of the nodes of the type, at least 1,024.
      at: of a run on links with times, the moment at which the candidates' rows are computed.
      graph, features: in place of the run's data, as `Run` takes them.

    Raises `InputError` for a run that cannot be exported, and for a folder that holds anything
    else.
    """
    path = isinstance(run, str | os.PathLike)
    opened: Run = open_run(run, progress=False) if path else run  # type: ignore
    _check(opened, with_graph, graph, at, live)
    served = opened.task.served(opened, fanouts)
    source = opened.source(graph, features)
    free = _free_ids(opened, source, live, new_nodes)
    form = _form(opened, served, source, direct, live, free)
    pairs = opened.task.pair_form(opened)
    sizes, where = _check_sizes(batch_sizes), _check_platforms(platforms)
    spec = _spec(opened, served, source, form, sizes, where, with_graph, pairs, free)
    arrays = programs_of(form, spec) | _run_arrays(opened, fanouts)
    arrays |= {f"param.{i}": leaf for i, leaf in enumerate(form.params())}
    if with_graph:
        arrays |= _graph_arrays(form, source)
    if with_graph and pairs is not None and pairs.lists:
        known = opened._data[0].graphs[0] if graph is None else graph
        arrays |= _prepared(spec, arrays, at, known if pairs.new_only else None)
    write_artifact(out, spec, arrays)
    return spec


def write_artifact(out: str | os.PathLike, spec: Spec, arrays: dict[str, Any]) -> None:
    text = spec.text().encode()
    arrays[DIGEST] = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    with replacing(out, KIND, lambda folder: {FILE, *array_files(folder, KIND)}) as fresh:
        write_arrays(fresh, KIND, arrays)
        (fresh / FILE).write_bytes(text)


def programs_of(form: program.Form, spec: Spec) -> dict[str, np.ndarray]:
    """The programs of an artifact of this `Spec`, by the names of their files."""
    made: dict[str, Any] = {}
    for size in spec.batch_sizes:
        makers = {"": program.exported(form, size)}
        if spec.pairs is not None:
            related = spec.pairs["relation"] is not None or spec.pairs["named"]
            makers |= program.exported_scores(form, spec.pairs["width"], size, related)
        for name, make in makers.items():
            begin = f"program.{name}.".replace("..", ".")
            if spec.kernel:
                made[f"{begin}kernel.{size}"] = make(("cpu",), True)
            made[f"{begin}plain.{size}"] = make(tuple(spec.platforms), False)
    return {name: np.frombuffer(each.serialize(), np.uint8) for name, each in made.items()}


def _prepared(
    spec: Spec, arrays: dict[str, Any], at: Any, known: Graph | None
) -> dict[str, np.ndarray]:
    """The rows of a run's candidates, and the links of the graph `known`, by source."""
    made = opened_model(spec, arrays, "the exported model").prepare(time=at).arrays()
    if known is None:
        return made
    facts = only_facts(known, None)
    src, dst = facts.edge_index()
    order = np.lexsort((dst, src))
    made["known.indptr"] = row_offsets(np.bincount(src, minlength=known.num_nodes))
    made["known.indices"] = dst[order]
    if facts.edge_type is not None:
        made["known.type"] = np.asarray(facts.edge_type)[order]
    return made


def _run_arrays(run: Run, fanouts: Any) -> dict[str, np.ndarray]:
    """What the programs are made of again: the run's configuration and its record."""
    given = None if fanouts is None else [_shown_fanout(k) for k in fanouts]
    of = {"config": run.config.to_json(), "shape": run._shape, "fanouts": given}
    text = json.dumps(of, default=list)
    return {"run": np.frombuffer(text.encode(), np.uint8)}


def _check(run: Any, with_graph: bool, graph: Any, at: Any, live: bool) -> None:
    parts, inclusive = run.config.partition, run.config.data_arguments().get("inclusive")
    learned = bool(run._shape.get("learned")) or getattr(
        getattr(run.model, "inputs", None), "has_embedding", False
    )
    refuse(
        (with_graph and graph is None and parts is not None,
         "with_graph must be for a whole graph", f"a run on the parts in {parts}",
         "Leave it out, or give graph and features, in the order of the data set."),
        (learned and parts is not None,
         "an exported run with learned rows of nodes must be on a whole graph",
         f"a run on the parts in {parts}", "Train on the whole graph."),
        (not run.answer.exports,
         "an exported run must be of labels, numbers or links",
         f"--task {run.config.task}", "Predict with jgs.open_run there."),
        (live and inclusive is not None,
         "a model that reads graphs that grow must see all rows after their moment alone",
         f"one on data with inclusive={inclusive}, which later rows would not have",
         "Leave out live (--live), or train without inclusive."),
        (at is not None and not (run.timed and "top_k" in run.flags and with_graph),
         "at must be for the candidates of a run on links with times, and its graph", repr(at),
         "Leave it out."),
        (at is None and run.timed and "top_k" in run.flags and with_graph,
         "at must say the moment at which the candidates of links are prepared", "none",
         "Give at= (--at), such as the time of the last edge."),
    )  # fmt: skip


def _form(
    run: Run, served: Served, source: Data, direct: bool, room: bool, free: list[int]
) -> program.Form:
    rows, model = as_table(source.every_row), run.model
    layers: Any = () if served.pairs else getattr(model, "layers", ())
    takes = bool(layers) and rows.schema is None and layers[0].takes_inputs
    if direct and not takes:
        raise InputError(
            "direct must be for a first layer that takes sums of its neighbours' rows",
            type(layers[0] if layers else model).__name__,
            "Leave it out.",
        )
    same_bits = takes and not layers[0].projects_first and rows.same_sums
    tables = tuple(map(program.TableForm.of, rows.by_type.values()))
    of = served.sampler, model, served.rows, source.graphs[0], tables, rows.schema is not None
    form = program.form_of(*of, run.timed, direct or same_bits, room, free)
    refuse((
        room and isinstance(getattr(form.state, "walk", None), RelationIndex),
        "a model that reads graphs that grow must not read an index of relations",
        "contexts by visits of a typed graph with times", "Leave out live (--live).",
    ))  # fmt: skip
    return form


def _free_ids(run: Run, source: Data, live: bool, asked: int | None) -> list[int]:
    """How many ids to keep free for new nodes of each type, or of all nodes."""
    if not live:
        rule = "new_nodes must be for programs that read graphs that grow"
        refuse((asked is not None, rule, repr(asked), "Give live (--live), or leave it out."))
        return []
    counts, rows = node_counts(source.graphs[0]), as_table(source.every_row)
    found = []
    for name, count in counts.items():
        table = rows.by_type[name] if rows.schema is not None else rows
        more = max(_LEAST_NEW, count // 5) if asked is None else asked
        fits = table is not None and table.form == "dense" and not run._shape.get("learned")
        found.append(require_int("new_nodes", more, 0) if fits else 0)
    return found


def _graph_arrays(form: program.Form, source: Data) -> dict[str, Any]:
    own = source.graphs[0]
    columns = {n: a for n, a in own.edge_columns.items() if f"edge_columns.{n}" in form.graph}
    own = own._with(edge_order=None, edge_columns=columns)
    own = own if "edge_weight" in form.graph else own.unweighted()
    arrays = {f"graph.{name}": array for name, array in own.stored().items()}
    leaves = jax.tree.leaves(form.state)
    arrays |= {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return arrays | stored.features(source.every_row) | stored.node_ids(source.node_ids)


def _spec(
    run: Run,
    served: Served,
    source: Data,
    form: program.Form,
    sizes: tuple[int, ...],
    platforms: tuple[str, ...],
    with_graph: bool,
    pairs: PairForm | None,
    free: list[int],
) -> Spec:
    own: dict[str, Any]
    names, table, schema = run.class_names, as_table(source.every_row), form.schema
    counts = () if schema is None else source.graphs[0].schema.node_types  # type: ignore
    own = {name: getattr(run.config, name) for name in ("dataset", "model", "seed", "task")}
    own |= {name: getattr(run, name) for name in ("best_epoch", "num_features", "num_classes")}
    own |= today()
    own |= {n: bool(getattr(form.sampler, n, False)) for n in ("replace", "weighted")}
    every = " | ".join(map(str, sizes))
    moments = {"time": f"int64[{every}]"} if run.timed else {}
    outputs = {"logits": f"float32[seeds, {run.num_classes}]"}
    if pairs is not None:
        outputs = {"scores": f"float32[pairs{', C' * (run.answer.kind != 'links')}]"}
    return Spec(
        **own,
        format=FORMAT,
        jgs=jgs.__version__,
        jax=jax.__version__,
        val_accuracy=float(run.val_accuracy),
        fanouts=[_shown_fanout(k) for k in form.fanouts],
        batch_sizes=list(sizes),
        platforms=list(platforms),
        kernel="cpu" in platforms and kernels.available(),
        direct=form.direct,
        inputs={name: program.shown(array) for name, array in form.arrays().items()}
        | {"key": "uint32[2]", "seeds": f"int32[{every}]"}
        | moments,
        outputs=outputs,
        feature_dtype="float32" if table.by_entries else table.kind,
        sparse=table.by_entries,
        normalization=_normalization(source.every_row, run.config.data_arguments()),
        multilabel=bool(run.multilabel),
        class_names=None if names is None else names.tolist(),
        numbers=list(run.scale) if run.numbers else None,
        columns=list(run.answer.outputs) or None,
        point=run.answer.point if run.answer.outputs else None,
        least_edges=form.least_edges,
        has_graph=with_graph,
        sampler=repr(form.sampler),
        kind=run.answer.kind,
        timed=run.timed,
        time_unit=run.time_unit if run.timed else None,
        key=served.key.tolist(),
        tables=[None if one is None else [*one[:-1], one.dtype.name] for one in form.tables],
        schema=None if schema is None else [list(counts), schema.relations],
        new_nodes=free or None,
        pairs=None if pairs is None else pairs._asdict() | {"width": run.config.hidden},
        typed=form.typed,
        learned=run._shape["num_nodes"] if run._shape.get("learned") else 0,
    )


def _shown_fanout(fanout: Any) -> Any:
    if not isinstance(fanout, Mapping):
        return fanout
    names = (":".join(n) if isinstance(n, tuple) else n for n in fanout)
    return ",".join(f"{name}={k}" for name, k in zip(names, fanout.values(), strict=True))


def _normalization(features: Any, options: dict[str, Any]) -> str:
    """What was done to the features before training: one of the values of
    `Spec.normalization`. That rows were divided by their sums is known by their sums."""
    if options.get("standardize"):
        return COLUMNS
    if as_table(features).schema is not None:
        return NONE
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


def export_again(folder: str | os.PathLike) -> Spec:
    """Writes the programs of the artifact in `folder` anew, with the JAX and the jgs that are
    installed; everything else in it stays. What is drawn has the same bits. Returns the new
    `Spec`. Raises `InputError`, also where this jgs would draw or read something else."""
    spec, arrays = read_artifact(Path(folder))
    run, served = _run_of(spec, arrays)
    form = _form_again(spec, run, served)
    inputs = {name: program.shown(array) for name, array in form.arrays().items()}
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
    run, served = _run_of(spec, arrays)
    return jax.tree.leaves(program.needed_state(served.sampler.init(graph), graph, run.timed))


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


def _form_again(spec: Spec, run: Run, served: Served) -> program.Form:
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
        None if t is None else program.TableForm(t[0], t[1], t[2], np.dtype(t[3]))
        for t in spec.tables or ()
    )
    of = served.sampler, run.model, served.rows, graph, tuple(forms), spec.typed
    return program.form_of(*of, run.timed, spec.direct, spec.room, spec.new_nodes or ())
