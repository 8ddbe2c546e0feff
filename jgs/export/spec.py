"""`Spec`: what an artifact says of itself, in `spec.json`; and checks of what requests ask:
nodes or pairs, their relation and their moments."""

from __future__ import annotations

import calendar
import dataclasses
import datetime
import json
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np

from jgs.answers import Answer, answer_of
from jgs.arrays import described
from jgs.data.column_values import moments
from jgs.data.values import check_pairs, nodes_of
from jgs.errors import InputError, refusing
from jgs.graph import Schema
from jgs.graph.checks import node_ids

FORMAT = 2
KIND, FILE, DIGEST = "jgs.exported", "spec.json", "spec_sha256"
NONE, ROWS, COLUMNS = "none", "rows sum to 1", "columns standardized"
_NEW = ("columns", "point")  # not in the files of artifacts without them
_MONTHS = 6  # a program that jax.export wrote is read by JAX built so much later
_AGAIN = "Export the run again: jgs export --run-dir RUN --out FOLDER."
_PLAIN = ("indptr", "indices", "edge_weight", "key", "seeds")  # what `NewNodes` can have


@dataclass(frozen=True)
class Spec:
    """What an artifact holds, and what it takes and returns: the fields of its `spec.json`.

    Fields:
      format: the version of the artifact's form.
      jgs, jax: the versions that wrote it.
      dataset, model, best_epoch, val_accuracy, seed: of the run that it was made of.
      fanouts: how many neighbours it draws in each layer, the seeds' hop first; by relation as
        text, "buys=10,sells=5". Empty for contexts.
      replace, weighted: how it draws, as in `jgs.Neighbors`.
      batch_sizes: the numbers of seeds that it has a program for, ascending.
      platforms: those that its plain programs are lowered for, as JAX names them.
      kernel: whether it also has programs that call the compiled kernels of jgs on a CPU.
      direct: whether the first layer reads the feature store directly.
      inputs, outputs: dtype and shape of each array, by name. `n` is the number of nodes and
        `e` that of edges; both may have room to spare.
      num_features, feature_dtype, sparse: width and form of the features.
      normalization: what the run's features went through: `"none"`, `"rows sum to 1"` or
        `"columns standardized"`.
      num_classes, multilabel: the number of outputs, and whether nodes may have several labels.
      class_names: list of text, or None.
      columns, point: of several numbers that are about one, see `jgs.answers.Numbers`; else
        None, and not in the file.
      numbers: None for classes. Where labels are numbers, their `[mean, deviation]`; of several
        numbers a node a list of each.
      least_edges: the graph is padded to at least so many edges.
      has_graph: whether the artifact holds a graph and features.
      task, sampler: the run's task, and the `repr` of what draws.
      kind: what outputs say: `"classes"`, `"labels"`, `"numbers"` or `"links"`.
      timed, time_unit: whether each node or pair has a moment, and what moments count.
      key: the two numbers of the key of a request without one; None: 0 and `seed`.
      typed: whether node types have features of their own.
      tables: for each node type, or of all nodes, the form, kind, width and dtype of the
        features (`jgs.export.program.TableForm`), or None.
      schema: `[node_types, relations]` as in `jgs.graph.Schema`, where programs read types; the
        numbers of nodes are fixed then.
      pairs: of a run on pairs: the fields of `jgs.train.tasks.task.PairForm`; `width`, of
        the rows that are scored.
      new_nodes: ids that are kept free for new nodes, for each node type, or of all nodes; None
        where the graph does not grow.
      learned: of nodes that have learned rows their number, which a graph must have; else 0.
      exported: the day of the export, UTC.
      readable_until: the last day on which a release of JAX may have been built that reads the
        programs, if the one that wrote them was new: `jax.export` promises six months from
        build to build. `jgs export --again` writes them anew.
    """

    format: int
    jgs: str
    jax: str
    dataset: str
    model: str
    best_epoch: int
    val_accuracy: float
    fanouts: list[int | str]
    replace: bool
    weighted: bool
    batch_sizes: list[int]
    platforms: list[str]
    kernel: bool
    direct: bool
    inputs: dict[str, str]
    outputs: dict[str, str]
    num_features: int
    feature_dtype: str
    sparse: bool
    normalization: str
    num_classes: int
    multilabel: bool
    class_names: list[str] | None
    numbers: list[Any] | None
    seed: int
    least_edges: int
    has_graph: bool
    columns: list[str] | None = None
    point: str | None = None
    task: str = "nodes"
    sampler: str = ""
    kind: str | None = None
    timed: bool = False
    time_unit: str | None = None
    key: list[int] | None = None
    tables: list[list[Any] | None] | None = None
    schema: list[Any] | None = None
    pairs: dict[str, Any] | None = None
    typed: bool = False
    learned: int = 0
    new_nodes: list[int] | None = None
    exported: str | None = None
    readable_until: str | None = None

    def answer(self) -> Answer:
        """What the outputs say."""
        mean, deviation = self.numbers or (0.0, 1.0)
        named = {"columns": self.columns, "point": self.point or ""}
        own = vars(self) | named | {"mean": mean, "deviation": deviation}
        return answer_of(own | {"numbers": self.numbers is not None})

    @property
    def widths(self) -> int | list[int | None]:
        """Those of the features, as `jgs.data.stored.widths` says them."""
        if not self.typed:
            return self.num_features
        return [None if table is None else table[2] for table in self.tables or ()]

    @property
    def first_key(self) -> tuple[int, int]:
        """The key of a request without one."""
        first, second = self.key or (0, self.seed)
        return first, second

    @property
    def room(self) -> bool:
        """Whether programs read graphs whose rows have room, as those of `jgs.graph.Live`."""
        return self.inputs["indptr"].startswith("int64[2, ")

    @property
    def takes_new(self) -> bool:
        """Whether a request may bring nodes."""
        fixed = self.timed or self.schema or self.pairs or self.learned or self.room
        return not fixed and all(name.startswith(("features", *_PLAIN)) for name in self.inputs)

    def fields(self) -> dict[str, Any]:
        """The fields as they are in the file."""
        found = dataclasses.asdict(self)
        return {n: v for n, v in found.items() if v is not None or n not in _NEW}

    def text(self) -> str:
        """The fields as JSON text."""
        return json.dumps(self.fields(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, place: Any, text: str) -> Self:
        """The fields in the text of the file `place`. Raises `InputError`, also for an artifact
        of a newer format."""
        with refusing((ValueError, TypeError), f"{place} must be whole", _AGAIN):
            fields = json.loads(text)
            if not isinstance(fields, dict) or type(fields.get("format")) is not int:
                raise ValueError("no format in it")
        if fields["format"] not in range(1, FORMAT + 1):
            raise InputError(
                f"an exported model must be of format 1 to {FORMAT}, which this jgs reads",
                f"format {fields['format']}, written by jgs {fields.get('jgs')}",
                "Install that version of jgs, or export the run again with this one.",
            )
        with refusing((ValueError, TypeError), f"{place} must be whole", _AGAIN):
            return cls(**fields)


def today() -> dict[str, Any]:
    """The `exported` and `readable_until` of programs that are written now."""
    day = datetime.datetime.now(datetime.UTC).date()
    month = day.month - 1 + _MONTHS
    year, month = day.year + month // 12, month % 12 + 1
    last = min(day.day, calendar.monthrange(year, month)[1])
    until = datetime.date(year, month, last)
    return {"exported": day.isoformat(), "readable_until": until.isoformat()}


def array_key(name: str) -> str:
    """How a program calls the array `name` of a `jgs.graph.row_tables.table.RowTable`."""
    return f"features.{name}".removesuffix(".")


def ids_below(name: str, value: Any, total: int) -> np.ndarray:
    """`value`, called `name`, as int32 `[n]`, ids of `total` nodes. Raises `InputError`."""
    value = np.empty(0, np.int32) if isinstance(value, list) and not value else value
    return node_ids(name, value, total, "Give ids of the graph's nodes, or of new ones.")


def nodes_asked(
    spec: Spec, schema: Schema | None, nodes: Any, total: int, node_type: str | None
) -> np.ndarray:
    """int32 `[n]`: ids of `total` nodes, or of one type, where they count from 0. Raises
    `InputError`."""
    if node_type is None:
        return ids_below("nodes", np.arange(total) if nodes is None else nodes, total)
    if schema is None:
        refuse_untaken("node_type", "a graph with node types", spec)
    every = nodes_of(schema, node_type)
    return every if nodes is None else every[ids_below("nodes", nodes, every.size)]


def pairs_asked(
    schema: Schema | None, pairs: Any, total: int, relation: int | None
) -> np.ndarray:
    """int32 `[n, 2]`: pairs of nodes, of the types of their relation. Raises `InputError`."""
    try:
        array = np.asarray(pairs)
    except ValueError:  # ragged
        array = np.empty(0)
    array = np.zeros((0, 2), np.int32) if array.shape == (0,) else array
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(
            "pairs must be integers [n, 2], a source and a target each",
            described(array),
            "Give both ends of each pair.",
        )
    ids = ids_below("pairs", array.reshape(-1), total).reshape(-1, 2)
    if relation is not None and schema is not None:
        check_pairs(schema, ids, relation)
    return ids


def relation_asked(spec: Spec, schema: Schema | None, relation: str | None) -> int | None:
    """The number of the relation of pairs, by default the learned one. Raises `InputError`."""
    if relation is not None:
        if spec.pairs is None or schema is None:
            refuse_untaken("relation", "pairs with relations", spec)
        return schema.relation(relation)
    if spec.pairs is not None and spec.pairs["named"]:
        names = [] if schema is None else [name for _, name, _ in schema.relations]
        raise InputError(
            "the relation of the pairs must be named",
            "none",
            f"Give one of {', '.join(names)}.",
        )
    return None if spec.pairs is None else spec.pairs["relation"]


def moments_asked(spec: Spec, time: Any, num: int) -> np.ndarray | None:
    """int64 `[num]`: the moment of each row, or None of a model without times. Raises
    `InputError`."""
    if not spec.timed:
        if time is not None:
            refuse_untaken("time", "rows at moments", spec)
        return None
    return moments("nodes and pairs of this model", time, num, spec.time_unit)


def refuse_untaken(name: str, taker: str, spec: Spec) -> NoReturn:
    raise InputError(
        f"{name} must be for a model of {taker}",
        f"--task {spec.task} --model {spec.model}" + " with times" * spec.timed,
        "Leave it out.",
    )
