"""`Job`: one run's batches and evaluation, on one machine or many ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.data.label_values import are_numbers
from jgs.data.stored import columns_of
from jgs.dist.communicators.collect import all_degrees, all_edges, everywhere, rows_on_all
from jgs.dist.communicators.comm import OWN, SAME, Alone, Communicator
from jgs.errors import InputError, refuse
from jgs.graph import MiniBatch
from jgs.graph.row_tables.table import as_table
from jgs.models import Placed
from jgs.sampling import Adaptive, Loader
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation import baselines
from jgs.train.evaluation.baselines import Figures
from jgs.train.evaluation.by_samples import BySamples, judges_key, outputs_of
from jgs.train.evaluation.exact import exact_inference
from jgs.train.evaluation.rows import scratch_folder
from jgs.train.loop.data import Data
from jgs.train.loop.learned import LearnedRows, Place, learned_rows
from jgs.train.loop.model import (
    EdgeFeatures,
    edge_features,
    is_contextual,
    make_model,
    make_sampler,
    shape_of_edges,
    shape_of_types,
)
from jgs.train.loop.objective import Objective
from jgs.train.loop.progress import Meter, timed
from jgs.train.loop.step import learning_rate, own_labels


def _placed(table: jax.Array, cold: Any, joined: Callable[..., Any], whole: bool) -> Any:
    """The rows of a batch of which some lie in the device's `table`: the matrix if `whole`."""
    found = Placed(joined(table, cold), cold.place)
    return found.rows() if whole else found


KEPT = "normalization"  # a folder in the run folder


class Job:
    """The data and batches of a run, and its metric. All ranks make it and call it alike. What
    counts seeds counts those of all ranks together."""

    data: Any  # the `Data`
    comm: Communicator  # of the ranks for the training step, which nothing else uses
    objective: Objective  # the loss and the metric, where labels are classes or numbers
    metric_name: str
    sign = 1  # -1 where a smaller value of the metric is better
    edges: EdgeFeatures  # that the model reads
    about: tuple[str, ...] = ()  # lines about the data for the run's user; "" is none
    batch_size: int  # seeds in a step
    num_seeds: int  # seeds in an epoch
    loader: Loader  # after `start`
    sharded = False  # whether devices draw, and share the feature rows
    learned: int | None = 0  # the width of rows of all nodes that are the model's parameters
    sent = False  # after `start`: whether the loader sends batches to the devices of `place`
    _judged_by_own = False  # whether the objective is of this process's nodes, until `start`
    _judges: Mapping[str, BySamples] = MappingProxyType({})  # by split, if samples judge
    _hot: Any = None  # the feature rows that lie on the devices
    degrees: Any = None  # after `start`, for a model that reads degrees

    def __init__(self, config: Config, data: Data):
        self.config, self.data, self.comm = config, data, data.ranks
        self.batch_size, self.num_seeds = data.batch_size, data.num_seeds
        self.sharded = config.features == "sharded"
        # Here errors reach all ranks. In `start` the other ranks may wait for this one.
        learning_rate(config, data.num_steps)
        if config.options.get("weighted") and data.graphs[0].edge_weight is None:
            raise InputError(
                "--weighted must have a graph with edge weights", data.name, "Leave it out."
            )
        self.metric_name = self._make_metric()
        self.edges, line = edge_features(config, data.graphs[0], data.judged_from)
        self.about = (line,)
        self._samplers = samplers_of(make_sampler(config, columns=self.edges.columns))
        if isinstance(self._samplers[0], Adaptive):
            _ = self.model(threefry(0)).message_widths  # refuses layers with attention
        self._scratch = scratch_folder(config.scratch) if config.scratch else None
        kept = Path(config.run_dir) / KEPT if config.resume and config.run_dir else None
        self._states = {one: data.state_of(one, kept) for one in self._samplers}

    @property
    def _by_samples(self) -> bool:
        """Whether samples judge the model, by no exact rows."""
        return is_contextual(self.config)

    @cached_property
    def place(self) -> Place:
        """Where the steps run. All ranks ask for it alike."""
        return Place.of(self.config.device, self.comm)

    def _check_devices(self) -> None:
        destination = self.place.destination
        shared = self.sent or self.sharded
        if destination and not shared and len(destination.devices) > 1:
            raise InputError(
                "several devices must share batches that a loader sends",
                f"--device {self.config.device} with SEAL, a sampler that learns, or rows of "
                "nodes that are learned",
                "Name one device.",
            )

    def _make_metric(self) -> str:
        # One of the ranks may have refused its data, so none waits for the others here.
        self._judged_by_own = self.data.comm.size > 1
        return self._judge_by_nodes(np.concatenate(self.data.train_nodes()))

    def _judge_by_nodes(self, train: np.ndarray) -> str:
        labels = np.asarray(self.data.host_labels)
        missing = labels.ndim == 2 and bool(np.isnan(labels).any())
        of = {"numbers": are_numbers(labels), "missing": missing}
        return self._judge_by(labels[train], self.data.num_classes, **of)

    def _judge_by(self, train: np.ndarray, num_classes: int, **kind: Any) -> str:
        """Makes the objective of an `Objective`'s arguments; returns the name of its metric."""
        task = self.config.made("task")
        self.objective = task.objective(self.config, train, num_classes, **kind)
        self.sign = self.objective.metric.sign
        return self.objective.metric.name

    def loss(self, outputs: Any, batch: MiniBatch, labels: Any) -> jax.Array:
        own = self._labels(batch, labels)
        return self.objective.loss(outputs, own, batch.seed_mask, batch.seed_weight)

    def count(self, batch: MiniBatch, labels: Any) -> jax.Array:
        return self.objective.count(self._labels(batch, labels), batch.seed_mask)

    def _labels(self, batch: MiniBatch, labels: Any) -> jax.Array:
        return own_labels(batch, labels)

    def model(self, key: jax.Array) -> Any:
        """The model; `key` decides its first parameters. The learned rows of a typed graph are
        no parameters of jgs's models here: see `LearnedRows`."""
        data, head = self.data, self.config.made("task").head
        widths = (data.num_features, self.objective.num_outputs, data.sparse)
        return make_model(self.config, *widths, key, data.types, False, self.edges, head)

    def refuse_degrees(self, what: str) -> None:
        """Raises `InputError`, which names `what` asks, where the model reads nodes' degrees:
        they count edges of all times."""
        _ = self.data.types  # reads features, which may not be done while a model is traced
        if nnx.eval_shape(lambda: self.model(threefry(0))).uses_degrees:
            raise InputError(
                f"{what} must have a model that reads no degrees, which later edges decide",
                f"--model {self.config.model}",
                "Choose another, e.g. sage.",
            )

    def shape(self) -> dict[str, Any]:
        """What a checkpoint says about the model and its outputs beside the configuration."""
        names = ("num_features", "num_classes", "sparse", "class_names")
        found = {name: getattr(self.data, name) for name in names}
        found["num_classes"] = self.objective.num_outputs
        found |= shape_of_types(self.data.types) | shape_of_edges(self.edges)
        found |= self.objective.record() | columns_of(self.data)
        several = self.data.host_labels.ndim == 2
        found["time_unit"] = self.data.time_unit
        return found | {"multilabel": several and not self.objective.numbers}

    def start(self, model: Any, key: jax.Array, scratch: Path | None) -> None:
        """Makes the loader and what `metric` needs; `key` decides the draws. `scratch` is the
        run folder or None; what samplers have computed of the graph is kept there."""
        config, data = self.config, self.data
        if self._judged_by_own:  # means and weights are of all ranks' training nodes
            self._judge_by_nodes(rows_on_all(data.comm, data.train_nodes()))
        data.compare(vars(self).get("objective"))
        listed = config.device_memory or config.feature_memory  # rows are read by node
        direct = data.direct and model.input_reduce is not None
        direct = direct and not listed and not self.sharded
        of = direct, lambda: model.message_widths, self.edges.columns
        sampler = make_sampler(config, *of)
        # What is drawn is the same, and so is the state, but for the widths of messages.
        known = {repr(each): state for each, state in self._states.items()}
        alike = [each for each in samplers_of(sampler) if repr(each) in known]
        states = {each: known[repr(each)] for each in alike}
        destination = self.place.destination
        learns = isinstance(samplers_of(sampler)[0], Adaptive)
        bare = learned_rows(model) is not None
        alone = learns or bare
        self.sent = bool(destination and not alone and not self.sharded)
        self._check_devices()
        device = destination.sharding if self.sent and destination else None
        data.in_place = destination is None
        new = not config.resume  # earlier versions took what they did not read
        one_table = config.partition is None and data.types is None and not data.sparse
        refuse(
            (self.sharded and (config.partition or listed),
             "--features sharded must be without --partition, --device-memory and "
             "--feature-memory", "one of them", "Leave one out."),
            (self.sharded and (learns or not (data.num_features or bare or self.learned)),
             "--features sharded must be for a sampler that does not learn, and nodes with "
             "features or learned rows", f"--sampler {config.sampler} for {data.name}, "
             f"{as_table(data.features[0]).shown_widths()}", "Leave it out."),
            (config.device_memory and not (self.sent and one_table),
             "--device-memory must be for dense features of one matrix without --partition, "
             "which are sent to a --device",
             f"{config.device_memory} MiB for {data.name} on {self.place}", "Leave it out."),
            (config.feature_memory and (config.partition or config.device_memory),
             "--feature-memory must be without --partition and --device-memory",
             f"{config.feature_memory} MiB beside one of them",
             "Leave one out: the features of parts are memory-mapped."),
            (new and self._by_samples and config.eval_memory != Config.eval_memory,
             "--eval-memory must be for a model that is judged by exact rows",
             f"{config.eval_memory} for one that samples judge", "Leave it out."),
            (new and self.sharded and not self._by_samples
             and config.prefetch != Config.prefetch,
             "--prefetch must be for batches that a loader draws ahead",
             f"{config.prefetch} beside --features sharded", "Leave it out."),
        )  # fmt: skip
        data.mesh = self.place.comm if self.sharded else None
        data.scratch = self._scratch or scratch
        self.loader = data.loader(sampler, key, model.input_reduce, states, device=device)
        if (hot := data.hot) is not None:
            whole = model.input_reduce is None
            self._hot, joined = hot[0], partial(_placed, joined=hot[1], whole=whole)
            self._placed = self.place.comm.program(joined, (OWN, OWN), OWN)

        def keep() -> None:
            for each, state in self._states.items():
                if scratch is not None:
                    each.save(data.graphs[0], state, scratch / KEPT)

        everywhere(self.comm, keep)  # if rank 0's disk is full, all ranks end
        # Where batches lie.
        comm = self.place.comm if self.sent or self.sharded else self.comm
        if model.uses_degrees:
            every = all_degrees(data.comm, data.graphs, data.offsets)
            self.degrees = comm.same(every)
        self._with_degrees = comm.program(MiniBatch.with_degrees, (OWN, SAME), OWN)
        self._prepare_metric(model, scratch)

    def _prepare_metric(self, model: Any, scratch: Path | None) -> None:
        if not self._by_samples:
            data = self.data
            self._infer = self._inference(model, data.graphs, data.features, scratch)
            return
        for split in ("val", "test"):
            items = {name: a for name, a in self._labelled(split).items() if name != "label"}
            self._sample(model, split, items, outputs_of, states=self._states)

    def _sample(
        self, model: Any, split: str, items: Any, judge: Any, key: Any = None, **more: Any
    ) -> None:
        """Has samples judge a split; the arguments from `items` on are those of `BySamples`."""
        of = self.config, self.data, model, self.edges.columns, items
        key = judges_key(self.config) if key is None else key
        self._judges = {**self._judges, split: BySamples(*of, key, judge, **more)}

    def _labelled(self, split: str) -> dict[str, np.ndarray]:
        """The seeds that judge "val" or "test", of all ranks, and the `label` of each."""
        nodes = rows_on_all(self.data.comm, self.data.split(split))
        return {"nodes": nodes, "label": np.asarray(self.data.host_labels)[nodes]}

    def _inference(
        self, model: Any, graphs: Any, features: Any, scratch: Path | None
    ) -> Callable[..., Any]:
        weighted = self.config.options.get("weighted", False)
        of = features, self.config.eval_memory << 20, self._scratch or scratch, weighted
        ranks = {"comm": self.data.comm, "offsets": self.data.offsets}
        return exact_inference(model, graphs, *of, **ranks)

    def batches(self, meter: Meter) -> Iterator[tuple[Any, Any]]:
        """The batches left in the epoch, each with its features; `meter` times them."""
        if self.sharded:  # the steps, for `StepsTogether`
            yield from ((step, None) for step in timed(self.loader, meter))
            return
        for batch, x in timed(self.loader, meter):
            if self._hot is not None:
                x = self._placed(self._hot, x)
            if self.degrees is not None:
                batch = self._with_degrees(batch, self.degrees)
            yield batch, x

    def given_rows(self, learned: LearnedRows, own: Sequence[np.ndarray]) -> Any:
        """What `metric` takes as `given`, of a model that learns rows beside its parameters:
        the features with the rows `own` of its table, or what puts these into a batch that is
        judged by time."""
        if self._judges:
            return learned.filler(own)
        return learned.features(self.data.features, own)

    def metric(self, params: Any, split: str, given: Any = None) -> float:
        """The metric of the exact outputs on `split`, "val" or "test", or of those of contexts.
        `given` is what `given_rows` returned, or None for a model without such rows."""
        if self._judges:
            (rows,), labels = self._judges[split](params, given), self._labelled(split)["label"]
            return self.objective.measure(Alone(), [rows], [labels])
        nodes, labels = self.data.split(split), self.data.host_labels
        own = [np.asarray(labels[asked]) for asked in nodes]
        outputs = self._infer(params, nodes, features=given)
        return self.objective.measure(self.data.comm, outputs, own)

    def baselines(self) -> Figures:
        """What is reached without a model, by the run's metric, see `figures`: of classes the
        majority, and labels spread by neighbours; of numbers their mean. All ranks call it
        alike."""
        data, comm = self.data, self.data.comm
        train = rows_on_all(comm, data.train_nodes())
        nodes = {split: rows_on_all(comm, data.split(split)) for split in ("val", "test")}
        labels = np.asarray(data.host_labels)
        wanted = {split: labels[own] for split, own in nodes.items()}
        if self.objective.numbers:
            return self._of_labels(labels[train], wanted)
        ends = all_edges(comm, data.graphs, data.offsets, baselines.MOST_EDGES)

        @cache
        def shares() -> np.ndarray | None:
            if ends is None:
                return None
            edges = baselines.adjacency(ends[0], ends[1], data.num_nodes)
            known, asked = (train, labels[train]), np.concatenate(list(nodes.values()))
            return baselines.spread_labels(edges, *known, data.num_classes, asked)

        def spread(split: str) -> np.ndarray | None:
            if (found := shares()) is None:
                return None
            own = np.split(found, [nodes["val"].size])[split == "test"]
            return baselines.as_outputs(own, labels.ndim == 2)

        return self._of_labels(labels[train], wanted, spread)

    def _of_labels(
        self, train: np.ndarray, wanted: dict[str, np.ndarray], spread: Any = None
    ) -> Figures:
        """The figures of equal outputs for every row, and of those that `spread` gives."""
        numbers, width = self.objective.numbers, self.objective.num_outputs
        names = ["mean" if numbers else "majority_class"]
        names += ["label_propagation"] * (spread is not None)

        def measure(name: str, split: str) -> float | None:
            own = wanted[split]
            outputs = baselines.same_outputs(train, width, numbers, len(own))
            if name == "label_propagation" and (outputs := spread(split)) is None:
                return None
            return self.objective.measure(Alone(), [outputs], [own])

        return baselines.figures(self.data.comm, names, measure)

    def close(self) -> None:
        self.loader.close()
        for judge in self._judges.values():
            judge.close()
