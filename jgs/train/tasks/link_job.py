"""`LinkJob`: the job of `--task links` with a sampler of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.dist.communicators.collect import all_edges
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError, refuse
from jgs.graph import Graph, MiniBatch
from jgs.models import (
    LinkScores,
    PairModel,
    binary_cross_entropy,
    bpr,
    margin_ranking,
    sampled_softmax,
    top_k,
)
from jgs.sampling import Links as LinkSeeds
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.pairs import has_edge, only_facts
from jgs.train.config import Config
from jgs.train.evaluation import baselines, ranking
from jgs.train.evaluation.baselines import (
    EVENT_BASELINES,
    LINK_BASELINES,
    EventCounts,
    Figures,
    LinkCounts,
    figures,
    scores_of,
)
from jgs.train.evaluation.by_samples import ListsAt, at_moments
from jgs.train.evaluation.link_metrics import (
    EVENT_METRICS,
    LINK_METRICS,
    JudgedLinks,
    joined_parts,
    judged,
)
from jgs.train.loop.keys import key_of
from jgs.train.loop.objective import own_link_loss
from jgs.train.tasks.pair_job import MOST, PairJob, negatives_at
from jgs.train.tasks.targets import Columns

LOSSES = {
    "bce": binary_cross_entropy,
    "margin": margin_ranking,
    "bpr": bpr,
    "softmax": sampled_softmax,
}


class LinkJob(PairJob):
    """The job of `--task links` with a sampler of nodes. All ranks make it and call it alike.

    With `--temporal` the graph has all events, and a link's cutoff is its own time: its sample,
    and those of its negatives, have what was before it alone. A link of validation and test is
    judged against `--eval-negatives` nodes in place of its target (`event_negatives`). MRR and
    Hits@k rank it among them. AP and AUC tell the links from all their negatives; DyGLib's have
    one each. Samples of the evaluation have a key of their own, the same in every epoch.

    Fields:
      judged: what "val" and "test" are judged by, which the run's key decides.
    """

    task: Any  # a `jgs.train.tasks.links.Links`

    def __init__(self, config: Config, task: Any, comm: Communicator | None = None):
        super().__init__(config, task, comm)
        if task.temporal:
            self.refuse_degrees("--temporal")

    @property
    def _k(self) -> int:
        links = self.data.links
        return self.task.metric_k or (0 if links is None else int(links.k[0])) or MOST

    def shape(self) -> dict[str, Any]:
        """As of all pairs, and of a table of links at moments the types of their ends."""
        if self.data.links is None:
            return super().shape()
        own = {"moments": True, "ends": self.targets.types, "time_unit": self.data.time_unit}
        schema = self.data.schema
        own["relations"] = None if schema is None else schema.relations
        return super().shape() | own

    def stage(self, copies: int) -> LinkSeeds:
        task = self.task
        if task.shared and "relation" in self.targets.train and self.targets.types is None:
            raise InputError(
                "--shared must be for relations between the same two types",
                "relations of several",
                "Name one, --relation, or leave it out.",
            )
        own = {name: getattr(task, name) for name in ("sides", "shared", "filtered")}
        own |= {"copies": copies, "types": self.targets.types}
        return LinkSeeds(task.num_negatives, task.negatives_by, **own)

    def loss(self, outputs: LinkScores, batch: MiniBatch, labels: Any) -> jax.Array:
        name = self.task.loss
        return (LOSSES.get(name) or own_link_loss(name))(outputs)

    def _make_metric(self) -> str:
        task, tabled = self.task, self.data.links is not None
        kinds, usual = (EVENT_METRICS, "mrr") if task.temporal else (LINK_METRICS, "auc")
        new = not self.config.resume  # earlier versions took what they did not read
        self._kind = kind = kinds[self.config.metric or ("map" if tabled else usual)]
        refuse(
            (kind.against == "all" and task.temporal and not tabled,
             f"--metric {self.config.metric} of --temporal must be of a table of links at "
             "moments", "edges, each at a time of its own", "Give e.g. --metric mrr."),
            (task.metric_k is not None and "{k}" not in kind.name and new,
             "--metric-k must be for a metric of the best k", f"--metric {kind.name}",
             "Leave it out, or choose e.g. --metric hits."),
            (task.pool_share != type(task).pool_share and new,
             "--pool-share must be for --sampler seal",
             f"--pool-share {task.pool_share} for --sampler {self.config.sampler}",
             "Leave it out."),
        )  # fmt: skip
        judge = self._judge_at if task.temporal else self._judge
        self.judged: dict[str, JudgedLinks] = {split: judge(split) for split in ("val", "test")}
        k, drawn = self._k, min(j.other_dst.size for j in self.judged.values())
        if kind.name.startswith("Hits") and drawn < k:
            raise InputError(
                f"--metric hits must have at least --metric-k negatives, {k}",
                f"{drawn} for the smaller split",
                "Lower --metric-k.",
            )
        if kind.against == "all" and not tabled:
            self._check_lists()
        return kind.name.format(k=k)

    def _judge(self, split: str) -> JudgedLinks:
        links, given = getattr(self.targets, split), None
        if self.data.negatives is not None and self.task.split in ("auto", "column"):
            given = self.data.negatives.get(split)  # of the data's own splits
        key = np.asarray(as_key_data(key_of(self.config, f"negatives of {split}")))
        found = []
        for relation in _each(links.get("relation")):
            keys = key if relation is None else np.append(key, np.uint32(relation))
            of = self.targets.ends(relation), self.joined(relation), keys, self._kind.against
            found.append(judged(_of(links, relation), *of, self.task.eval_negatives, given))
        return joined_parts(found)

    def _judge_at(self, split: str) -> JudgedLinks:
        links, key = getattr(self.targets, split), key_of(self.config, f"negatives of {split}")
        relations, num = links.get("relation"), len(links["src"])
        listed = self._kind.against == "all"  # then by all targets, and none are drawn
        others = np.zeros((num, 0 if listed else self.task.eval_negatives), np.int32)
        for relation in () if listed else _each(relations):
            some = slice(None) if relation is None else relations == relation
            own = key if relation is None else jax.random.fold_in(key, relation)
            of = self.task, self.targets, _of(links, relation), relation
            others[some] = negatives_at(own, *of, self.targets.ends(relation).dst)
        src = np.broadcast_to(links["src"][:, None], others.shape)
        kinds = None if relations is None else np.broadcast_to(relations[:, None], src.shape)
        ends = links["src"], links["dst"]
        return JudgedLinks(*ends, relations, src, others, kinds, others >= 0)

    def _check_lists(self) -> None:
        judged = (getattr(self.targets, split).get("relation") for split in ("val", "test"))
        count, metric = max(len(_each(own)) for own in judged), self.config.metric
        refuse(
            (count > 1, f"--metric {metric} must be of one relation", f"{count} relations",
             "Name one of them: --relation."),
            (self.config.mode == "vanilla" and self.comm.size > 1,
             f"--metric {metric} must have every rank's topology whole", "--mode vanilla",
             "Choose --mode hybrid, or --metric mrr."),
        )  # fmt: skip

    # -- evaluation

    def judged_nodes(self, split: str) -> np.ndarray:
        lists = self._kind.measure is None
        return np.arange(self.num_nodes, dtype=np.int32) if lists else self.judged[split].nodes

    @property
    def _by_samples(self) -> bool:
        return self.task.temporal or super()._by_samples

    def _prepare_metric(self, model: PairModel, scratch: Path | None) -> None:
        if not self.task.temporal:
            return super()._prepare_metric(model, scratch)
        of = self.config, self.data, model, self.edges.columns
        if self._kind.against == "all":
            dst = self.targets.ends(None).dst

            def lists(split: str) -> ListsAt:
                sources, key = self._asked[split][0], key_of(self.config, f"samples of {split}")
                return ListsAt(*of, sources, dst, key, self._states)

            self._judges = self._lists = {split: lists(split) for split in ("val", "test")}
            return
        stage = LinkSeeds(self.task.eval_negatives, types=self.targets.types)
        for split, made in self.judged.items():
            items = getattr(self.targets, split) | {"negatives": made.other_dst}
            key = key_of(self.config, f"samples of {split}")
            self._sample(model, split, items, _scores, key, stage=stage, states=self._states)

    @cached_property
    def _asked(self) -> dict[str, tuple[tuple[np.ndarray, np.ndarray], list[np.ndarray]]]:
        """By split: the distinct sources with their moments, and the targets of each."""
        found = {}
        for split in ("val", "test"):
            columns = [getattr(self.targets, split)[name] for name in ("time", "src", "dst")]
            rows = np.unique(np.stack(columns, axis=1), axis=0)
            asked, begins = np.unique(rows[:, :2], axis=0, return_index=True)
            sources = asked[:, 1].astype(np.int32), asked[:, 0]
            found[split] = sources, np.split(rows[:, 2], begins[1:])
        return found

    def metric(self, params: Any, split: str, given: Any = None) -> float:
        """The metric of a split: of links at times from the samples of each, of others from
        exact rows."""
        if (measure := self._kind.measure) is None:
            if self.task.temporal:
                best = self._lists[split].best(params, self._k, given)[0]
                return ranking.LISTS[self.config.metric or "map"](best, self._asked[split][1])
            return self._of_lists(params, split, given)
        scores = self.scores(params, split, given)
        return measure(*scores, self.judged[split].mask, self._k)

    def scores(
        self, params: Any, split: str, given: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Float32 `[n]`: of the links in `judged[split]`, and of its negatives, as `metric`
        takes."""
        if self.task.temporal:
            positive, negative = self._judges[split](params, given)
            return positive, negative
        made = self.judged[split]
        nodes, rows = made.nodes, self.rows_of(params, split, given)
        src, dst, other_src, other_dst = (
            np.searchsorted(nodes, a).astype(np.int32).reshape(-1)
            for a in (made.src, made.dst, made.other_src, made.other_dst)
        )
        of = None if made.other_relation is None else made.other_relation.reshape(-1)
        positive = self.decode(params, rows, src, dst, made.relation)
        negative = self.decode(params, rows, other_src, other_dst, of)
        return positive, negative.reshape(made.other_src.shape)

    def _of_lists(self, params: Any, split: str, features: Any) -> float:
        """Recall@k or NDCG@k of all nodes that a target may be and was not before."""
        rows = self.rows_of(params, split, features)
        decoder, relation = self.decode.decoder(params), self._listed(split)

        def best(*asked: Any) -> np.ndarray:
            return top_k(decoder, rows, *asked[:3], relation=relation, known=asked[3])[0]

        return self._of_best(split, best)

    def _listed(self, split: str) -> int | None:
        return _each(self.judged[split].relation)[0]

    def _of_best(self, split: str, best: Callable[..., Any]) -> Any:
        """The metric of the lists int32 `[n, k]` of `best`; None where there are none."""
        made, known = self.judged[split], self._known(split)
        every = np.arange(self.num_nodes, dtype=np.int32)
        src, dst = made.src, made.dst
        if self.targets.undirected:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        new = self.counted(has_edge, [known], src, dst) == 0  # others are not in the lists
        pairs = np.unique(np.stack([src[new], dst[new]], axis=1), axis=0)
        queries, begins = np.unique(pairs[:, 0], return_index=True)
        relevant = np.split(pairs[:, 1], begins[1:])
        relation = self._listed(split)
        candidates = every if relation is None else self.targets.ends(relation).dst
        lists = best(queries, candidates, self._k, known)
        score = ranking.LISTS[str(self.config.metric)]
        return None if lists is None else score(lists, relevant)

    def _known(self, split: str) -> Graph:
        """The links of earlier splits: the data's own edges, of the judged relation."""
        val, number = self.targets.val, self._listed(split)
        graphs = self.targets.messages if split == "val" else self.targets.at_test
        messages = only_facts(graphs[0], number)
        if split == "val" or self.task.val_messages:
            return messages
        src, dst = messages.edge_index()
        both = [(val["src"], val["dst"])]
        both += [(val["dst"], val["src"])] * self.targets.undirected
        src = np.concatenate([src, *(a for a, _ in both)])
        dst = np.concatenate([dst, *(b for _, b in both)])
        return Graph.from_edges(src, dst, messages.num_nodes)

    # -- baselines

    def baselines(self) -> Figures:
        """What counting reaches, see `figures`: by the edges of a pair's own relation, of links
        at times by those before, of others by the messages. All ranks call it alike."""
        task = self.task
        counts = {
            split: {number: self._counts(split, number) for number in _each(made.relation)}
            for split, made in self.judged.items()
        }

        def measure(name: str, split: str) -> float | None:
            made, time = self.judged[split], []
            if (measured := self._kind.measure) is None and task.temporal:
                return self._counted_lists(counts[split][None], name, split)
            if measured is None:
                count = counts[split][self._listed(split)]
                best = None if count is None else partial(count().best, name)
                return None if best is None else self._of_best(split, best)
            if self.task.temporal:
                time = [getattr(self.targets, split)["time"]]
            own = scores_of(counts[split], name, made.relation, made.src, made.dst, *time)
            time = [np.broadcast_to(each[:, None], made.other_dst.shape) for each in time]
            others = made.other_src, np.maximum(made.other_dst, 0), *time
            of = counts[split], name, made.other_relation
            other = None if own is None else scores_of(*of, *others)
            if own is None or other is None:
                return None
            return measured(own, other, made.mask, self._k)

        names: tuple[str, ...] = EVENT_BASELINES if self.task.temporal else LINK_BASELINES
        schema = self.targets.messages[0].schema
        ends = [schema.relations[n] for n in counts["test"] if n is not None] if schema else []
        if not self.task.temporal and any(source != target for source, _, target in ends):
            names = (*names, "paths_of_three")
        return figures(self.data.comm, names, measure)

    def _counted_lists(self, count: Any, name: str, split: str) -> float | None:
        (sources, time), relevant = self._asked[split]
        best = np.full((sources.size, self._k), -1, np.int32)
        if count is None:
            return None
        born, dst = self.targets.messages[0].node_time, self.targets.ends(None).dst
        for asked, known in at_moments(time, dst, born):
            if asked.size * known.size > baselines.MOST_STEPS:
                return None
            ends = np.repeat(sources[asked], known.size), np.tile(known, asked.size)
            scores = count().scores(name, *ends, np.repeat(time[asked], known.size))
            if scores is None:
                return None
            scores = scores.reshape(asked.size, known.size)
            order = np.argsort(-scores, axis=1, kind="stable")[:, : self._k]
            best[asked, : order.shape[1]] = known[order]
        return ranking.LISTS[self.config.metric or "map"](best, relevant)

    def _counts(self, split: str, relation: int | None) -> Callable[[], Any] | None:
        """Makes the counts when first called; None for too many edges. All ranks call it."""
        graphs = self.targets.messages if split == "val" else self.targets.at_test

        def events() -> EventCounts:
            if self.data.links is not None:
                links = self.data.links
                return EventCounts(links.src, links.dst, links.time, self.num_nodes)
            facts = only_facts(graphs[0], relation)
            src, dst = facts.edge_index()
            some = src != dst
            time = np.asarray(facts.edge_time)[some]
            return EventCounts(src[some], dst[some], time, self.num_nodes)

        if self.task.temporal:
            return cache(events) if graphs[0].num_edges <= baselines.MOST_EDGES else None
        facts = [only_facts(graph, relation) for graph in graphs]
        ends = all_edges(self.data.comm, facts, self.data.offsets, baselines.MOST_EDGES)
        if ends is None:
            return None
        return cache(partial(LinkCounts, ends[0], ends[1], self.num_nodes))


def _each(relation: np.ndarray | None) -> list[int | None]:
    return [None] if relation is None else np.unique(relation).tolist()


def _of(links: Columns, relation: int | None) -> Columns:
    some = slice(None) if relation is None else links["relation"] == relation
    return {name: array[some] for name, array in links.items()}


def _scores(model: PairModel, batch: MiniBatch, x: Any) -> tuple[jax.Array, ...]:
    scores = model(batch, x)
    return scores.positive, scores.negative
