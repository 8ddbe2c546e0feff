"""What `--task links` and `--task edges` share: their options, their data and their job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import numpy as np
from flax import nnx

from jgs.data.stored import columns_of
from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError, refuse
from jgs.graph import Graph
from jgs.models import PairModel
from jgs.options import Option
from jgs.sampling import Links as LinkSeeds
from jgs.sampling import event_negatives
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.stages import samplers_of
from jgs.sampling.pairs import count_edges, has_fact
from jgs.train.config import Config
from jgs.train.evaluation.by_samples import rows_of
from jgs.train.evaluation.link_metrics import (
    AT_ONCE,
    EVENT_METRICS,
    Decoded,
    Joined,
    with_learned,
)
from jgs.train.loop.job import Job
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import (
    make_pair_model,
    make_sampler,
    shape_of_edges,
    shape_of_types,
)
from jgs.train.loop.open_data import PartedData, WholeData, digest_of, open_data
from jgs.train.loop.step import count_pairs
from jgs.train.tasks.nodes import check_layers
from jgs.train.tasks.targets import HOW, Columns, Targets, split_targets
from jgs.train.tasks.task import PairForm, Served, Task, served_nodes

MOST = 50  # the k of a metric, where none is said
_FEWEST = 1024  # pairs that are looked for at a time
_WIDTH = 64  # of a learned row where nodes have no features


# fmt: off
@dataclass(frozen=True)
class PairTask(Task):
    """The options of a task of pairs."""

    label: ClassVar[Any] = None  # the edge column that is learned; None: whether there is one
    temporal: ClassVar[Any] = False  # whether every pair is seen at its own time
    by_time: ClassVar[Any] = None  # in training, as in `Loader`, of pairs with times

    split: Annotated[str, Option(
        "how edges are dealt to training, validation and test: by the edges' column split, by "
        "time (the latest are the test), at random by the run's key, or auto: the first of "
        "these that the data have", choices=HOW
    )] = "auto"
    test_share: Annotated[float, Option(
        "the share of edges held out for the test", above=0, below=1
    )] = 0.1
    val_share: Annotated[float, Option(
        "the share of edges for validation", above=0, below=1
    )] = 0.05
    val_messages: Annotated[bool, Option(
        "let messages of the test pass along the edges of validation, as OGB's collab does"
    )] = False
    relation: Annotated[str | None, Option(
        "the relation whose edges are predicted (default: all that are no other's reverse)"
    )] = None
    learned: Annotated[int | None, Option(
        "width of a row that is learned for each node, beside its features (default: 0, or 64 "
        "where nodes have no features)", least=0, most=1 << 14
    )] = None
    # fmt: on

    def check(self, config: Config) -> None:
        sampler = samplers_of(make_sampler(config))[0]
        if sampler.draws_seeds:
            raise InputError(
                f"--task {config.task} must have a sampler that is given its seeds",
                f"--sampler {config.sampler}, which draws its own",
                "Choose another, e.g. neighbors.",
            )
        check_layers(config, sampler)

    def flags(self, config: Config, shape: dict[str, Any]) -> frozenset[str]:
        return frozenset({"pairs", "nodes", "node_type", "embed", "relation"})

    def opened(self, config: Config, comm: Communicator) -> tuple[Any, Targets | None]:
        return open_pairs(config, self, comm)

    def served(self, run: Any, fanouts: Any = None) -> Served:
        if "nodes" not in run.flags:  # a sampler of pairs has no rows of nodes
            return super().served(run, fanouts)
        use = "samples of test" if run.timed else "samples of moments"
        return served_nodes(run, fanouts, rows_of, use)._replace(pairs=True)

    def pair_form(self, run: Any) -> PairForm:
        targets: Targets = run._data[1]
        numbers = np.unique(targets.train.get("relation", np.zeros(0, np.int32))).tolist()
        asked = "top_k" in run.flags, "new_only" in run.flags
        one = numbers[0] if len(numbers) == 1 else None
        return PairForm(one, len(numbers) > 1, targets.types, *asked)

    def model(self, config: Config, shape: dict[str, Any]) -> Any:
        return make_pair_model(config, shape, threefry(0))


def open_pairs(
    config: Config, task: PairTask, comm: Communicator | None = None, trains: bool = False
) -> tuple[WholeData | PartedData, Targets]:
    """The data of a configuration and its targets; with a `comm` of None, for one process.
    `trains` as for `open_data`."""
    data = open_data(config, comm, True, trains)
    bounds = list(pairwise(data.bounds.tolist()))
    if config.whole_topology:
        bounds = [(0, data.num_nodes)] * data.comm.num_local
    key = key_of(config, "split")
    dealt = data.links is not None or task.split == "column"
    dealt |= task.split == "auto" and "split" in data.graphs[0].edge_columns
    shares, new = (task.test_share, task.val_share), trains and not config.resume
    refuse(
        (new and dealt and shares != (PairTask.test_share, PairTask.val_share),
         "--test-share and --val-share must be of a split that is not in the data",
         f"{shares[0]} and {shares[1]} for {data.name}, whose column split deals the edges",
         "Leave them out, or give --split random or time."),
    )  # fmt: skip
    targets = split_targets(data.comm, data.graphs, bounds, key, task, data.links)
    if task.temporal:
        data.links_from = int(targets.val["time"].min())
    arrays = [array for split in targets[:3] for array in split.values()]
    data.digests = data.digests | {"split of edges": digest_of(*arrays)}
    return data, targets


class PairJob(Job):
    """A job of batches of pairs: each rank trains on its share of a batch of edges, none of
    which is a message (see `jgs.sampling.Links`).

    A subclass has `loss` and `metric`, and may have its own `stage` and `decoder_shape`.
    """

    def __init__(self, config: Config, task: PairTask, comm: Communicator | None = None):
        self.task = task
        data, self.targets = open_pairs(config, task, comm, trains=True)
        self.num_nodes = data.num_nodes
        self._full = data.graphs  # until the negatives of validation and test are drawn
        self.config, self.data = config, data
        of_batches = (self.targets.train, self.stage(self._copies()), self.targets.messages)
        data.ask(*of_batches, task.by_time if task.temporal else None)
        self.learned = task.learned
        if self.learned is None:
            self.learned = 0 if data.num_features or data.types else _WIDTH
        refuse(
            (data.types is not None and self.learned,
             "--learned must be 0 for a model of typed graphs, which learns rows itself",
             f"{self.learned} for --model {config.model}", "Leave it out."),
            (data.types is None and not data.num_features + self.learned,
             "nodes must have features or learned rows", "neither, --learned 0",
             f"Leave it out, for rows of width {_WIDTH}."),
        )  # fmt: skip
        super().__init__(config, data)
        self._full = []

    def stage(self, copies: int) -> LinkSeeds:
        """The stage that makes the seeds of a batch, with room for so many `copies`."""
        return LinkSeeds(0, copies=copies)

    def _copies(self) -> int:
        """The room that no batch exceeds with the edges that it leaves out."""
        train, messages = self.targets.train, self.targets.messages
        if self.task.temporal:  # no edge is left out: the cutoff does it
            return 2
        own = [np.array([_may_have_copies(graph)], np.int32) for graph in messages]
        if not all_gather_rows(self.data.comm, own).any():
            return 1  # an edge and its reverse, for each target
        ends = train["src"], train["dst"]
        there, back = (self.counted(count_edges, messages, *e) for e in (ends, ends[::-1]))
        found = there + back
        size = min(self.data.batch_size, found.size)
        most = np.partition(found, found.size - size)[found.size - size :].sum()
        return max(1, -(-int(most) // (2 * size)))

    def decoder_shape(self) -> dict[str, Any]:
        schema = self.targets.messages[0].schema
        return {"num_relations": len(schema.relations) if schema is not None else 0}

    def model(self, key: jax.Array) -> PairModel:
        return make_pair_model(self.config, self.shape(), key, embedding=False)

    def shape(self) -> dict[str, Any]:
        return {
            "num_features": self.data.num_features,
            "sparse": self.data.sparse,
            "num_nodes": self.num_nodes,
            "learned": self.learned,
            **shape_of_types(self.data.types),
            **shape_of_edges(self.edges),
            **columns_of(self.data),
            **self.decoder_shape(),
        }

    def count(self, batch: Any, labels: Any) -> jax.Array:
        return count_pairs(batch)

    # -- evaluation ----------------------------------------------------------------------------

    def _prepare_metric(self, model: PairModel, scratch: Path | None) -> None:
        graphs = {"val": self.targets.messages, "test": self.targets.at_test}
        self.decode = Decoded(model)
        if self._by_samples:
            for split, own in graphs.items():
                items = {"nodes": self.judged_nodes(split)}
                self._sample(model, split, items, rows_of, graphs=own)
            return
        first = self._encoded(nnx.state(model))
        self._infers = {
            split: self._inference(model.encoder, each, first, scratch)
            for split, each in graphs.items()
        }

    @abstractmethod
    def judged_nodes(self, split: str) -> np.ndarray:
        """int32, ascending: the nodes whose rows judge `split`, "val" or "test"."""

    def rows_of(self, params: Any, split: str, features: Any = None) -> np.ndarray:
        """float32 `[n, F]`, on every rank: the rows of the `judged_nodes`, exact or of their
        contexts, with the messages of `split`, "val" or "test". `features` as for `metric`."""
        if self._judges:
            return self._judges[split](params, features)[0]
        nodes = self.judged_nodes(split)
        own = [nodes[a:b] for a, b in pairwise(np.searchsorted(nodes, self.data.bounds))]
        features = self._encoded(params) if self.learned else features
        found = self._infers[split](params["encoder"], own, features=features)
        every = rows_on_all(self.data.comm, [rows.reshape(-1) for rows in found])
        return every.reshape(-1, self.config.hidden)

    def _encoded(self, params: Any) -> list[Any]:
        return with_learned(self.data, self.learned or 0, params)

    def joined(self, relation: int | None) -> Joined:
        """Whether the data, before the split, say that a node is linked to another, by the
        relation or, in a graph without, at all: see `has_fact`. All ranks call it alike."""
        graphs = self._full

        def here(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
            of = None if relation is None else np.full(src.size, relation, np.int32)
            return self.counted(has_fact, graphs, src, dst, of) > 0

        return here

    def counted(
        self,
        test: Any,
        graphs: Sequence[Graph],
        src: np.ndarray,
        dst: np.ndarray,
        relation: np.ndarray | None = None,
    ) -> np.ndarray:
        """int64 `[n]`: what `test(graph, src, dst)`, or with `relation` `test(graph, src, dst,
        relation)`, finds of pairs, in the graphs of all ranks; all ranks call it alike."""
        columns = [src, dst, *([] if relation is None else [relation])]
        whole = self.config.whole_topology
        program, found = jax.jit(test), np.zeros(src.size, np.int64)
        # Few sizes compile few programs.
        size = min(AT_ONCE, max(_FEWEST, 1 << (src.size - 1).bit_length()))
        for a in range(0, src.size, AT_ONCE):
            some = slice(a, a + AT_ONCE)
            pad = (0, size - src[some].size)
            given = [np.pad(column[some], pad, constant_values=-1) for column in columns]
            with jax.enable_x64(True):
                for graph in graphs[: 1 if whole else None]:
                    found[some] += np.asarray(program(graph, *given))[: src[some].size]
        if whole:
            return found
        own = [found] + [np.zeros_like(found)] * (self.data.comm.num_local - 1)
        return np.asarray(all_gather_rows(self.data.comm, own).sum(axis=0))


def _may_have_copies(graph: Graph) -> bool:
    """Whether two edges of a graph may have the same ends; False only where they do not."""
    if not graph.sorted_by_source:
        return True
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    alike = indices[1:] == indices[:-1]
    begins = indptr[1:-1]
    alike[begins[(begins > 0) & (begins < indices.size)] - 1] = False
    return bool(alike.any())


def check_events(config: Config, task: Any) -> None:
    refuse(
        (not samplers_of(make_sampler(config))[0].takes_time,
         "--temporal must have a sampler that takes cutoffs", f"--sampler {config.sampler}",
         "Choose another, e.g. neighbors."),
        (task.split == "random", "--temporal must split the links by time",
         f"--split {task.split}", "Leave it out."),
        (task.shared, "--temporal must have negatives of each link's own time", "--shared",
         "Leave it out."),
        (task.val_messages, "--temporal has every earlier link among the messages anyway",
         "--val-messages", "Leave it out."),
        (config.metric not in (None, *EVENT_METRICS),
         f"--metric of --temporal must be one of {', '.join(EVENT_METRICS)}", config.metric,
         f"Give one of them, e.g. {next(iter(EVENT_METRICS))}."),
        (config.metric == "hits" and (task.metric_k or MOST) > task.eval_negatives,
         f"--metric hits must have at least --metric-k negatives, {task.metric_k or MOST}",
         f"--eval-negatives {task.eval_negatives}", "Lower --metric-k."),
        (task.negatives_by != "uniform",
         "--temporal must have negatives that no later link decides",
         f"--negatives-by {task.negatives_by}, by all links together", "Leave it out."),
        (not config.whole_topology,
         "--temporal must have every rank's topology whole", "--mode vanilla",
         "Leave it out."),
    )  # fmt: skip


def negatives_at(
    key: jax.Array,
    task: Any,
    targets: Targets,
    links: Columns,
    relation: int | None,
    candidates: np.ndarray,
) -> np.ndarray:
    """int32 `[n, K]`: nodes in place of the target of each of the `links`, which are of one
    relation, whose history alone decides them; -1 where there are fewer."""
    parts, graph = [], targets.messages[0]
    for part in (targets.train, targets.val, targets.test):
        own = slice(None) if relation is None else part["relation"] == relation
        parts.append({name: part[name][own] for name in ("src", "dst", "time")})
        if targets.undirected:  # each end is the other's partner
            parts.append(parts[-1] | {"src": parts[-1]["dst"], "dst": parts[-1]["src"]})
    history = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    born = None if graph.node_time is None else np.asarray(graph.node_time)[candidates]
    num, kind = task.eval_negatives, task.eval_negatives_by
    begin = int(targets.val["time"].min())
    return event_negatives(key, history, links, candidates, num, kind, begin, born)
