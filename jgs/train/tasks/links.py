"""`--task links`: whether a link joins two nodes, by any sampler of nodes and any model, or by
SEAL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from jgs.answers import Answer, Probabilities
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError, check_choice
from jgs.options import INT32, Option, flag
from jgs.sampling.edges.random import threefry
from jgs.sampling.event_negatives import KINDS
from jgs.train.config import Config
from jgs.train.evaluation.link_metrics import LINK_METRICS
from jgs.train.tasks.link_job import LOSSES, LinkJob
from jgs.train.tasks.nodes import refuse_timed
from jgs.train.tasks.pair_job import PairTask, check_events
from jgs.train.tasks.seal import SealData, SealJob, make_dgcnn
from jgs.train.tasks.targets import Targets

SEAL_DEFAULTS: dict[str, Any] = {
    "sampler": "seal",
    "batch_size": 50,
    "epochs": 20,
    "lr": 1e-3,
    "hidden": 32,
}


# fmt: off
@dataclass(frozen=True)
class Links(PairTask):
    """Whether a link joins two nodes. A batch has links and nodes drawn in place of one of
    their ends; links to predict are never messages. With --sampler seal: SEAL (Zhang and Chen
    2018), a subgraph for each pair, which takes --test-share, --val-share and --pool-share."""

    loss: Annotated[str, Option(
        "bce: cross-entropy of links and negatives; margin; bpr; or softmax of a link among "
        "its negatives, corrected for how they were drawn; or your own, "
        "package.module:function, of jgs.models.LinkScores, which returns their mean loss",
        choices=tuple(LOSSES), own=True, metavar="NAME"
    )] = "bce"
    num_negatives: Annotated[int, Option(
        "negatives of a link, or with --shared of a batch", least=1, most=1 << 20
    )] = 2
    negatives_by: Annotated[str, Option(
        "how negatives are drawn: all nodes alike, or in proportion to the degree to the power "
        "0.75", choices=("uniform", "degree")
    )] = "uniform"
    sides: Annotated[str, Option(
        "the end of a link that a negative replaces", choices=("both", "src", "dst")
    )] = "both"
    shared: Annotated[bool, Option("one set of negatives for all links of a batch")] = False
    filtered: Annotated[bool, Option("draw no negative that is an edge of the graph")] = False
    temporal: Annotated[bool, Option(  # type: ignore[misc]
        "see each link at its own time, with what was before it alone; the edges have times"
    )] = False
    by_time: Annotated[int | None, Option(  # type: ignore[misc]
        "with --temporal: go through the links in the order of time, so many that follow each "
        "other shuffled; 1: in order", least=1, most=INT32, only=("temporal",)
    )] = None
    eval_negatives_by: Annotated[str, Option(
        "with --temporal: all nodes alike; those that the source had links to before; or those "
        "of them that it had none to in training", choices=KINDS, only=("temporal",)
    )] = "random"
    eval_negatives: Annotated[int, Option(
        "for --metric mrr or --temporal: nodes that are ranked with a link's target",
        least=1, most=1 << 20, only=("temporal", "metric=mrr")
    )] = 100
    metric_k: Annotated[int | None, Option(
        "the k of Hits@k, Recall@k, NDCG@k and MAP@k (default: 50, or what the task of a "
        "database says)", least=1, most=1 << 20
    )] = None
    pool_share: Annotated[float, Option(
        "for --sampler seal: rows to pool are the number of nodes that this share of the "
        "subgraphs does not exceed", above=0, below=1
    )] = 0.6

    like = "links"
    defaults: ClassVar[dict[str, Any]] = {
        "sampler": "neighbors", "decoder": "mlp", "batch_size": 512, "epochs": 30,
        "dropout": 0.0, "lr": 5e-3,
    }
    # fmt: on

    @classmethod
    def defaults_of(cls, sampler: str | None) -> dict[str, Any]:
        seal = sampler is not None and cls.kind(sampler) == "seal"
        return SEAL_DEFAULTS if seal else cls.defaults

    def check(self, config: Config) -> None:
        if self.kind(config.sampler) == "seal":
            taken = ("test_share", "val_share", "pool_share")
            for name in config.known("task").keys() - set(taken):
                if getattr(self, name) != getattr(type(self), name):
                    raise InputError(
                        f"--sampler {config.sampler} must have no other options of --task "
                        f"links than {', '.join(map(flag, taken))}",
                        f"{flag(name)} {getattr(self, name)}",
                        "Leave it out, or choose a sampler of nodes.",
                    )
            config.made("sampler")
            return
        super().check(config)
        if self.temporal:
            return check_events(config, self)
        refuse_timed(config)
        if config.metric is not None:
            check_choice("--metric of --task links", config.metric, LINK_METRICS)

    def open(self, config: Config, comm: Communicator | None = None) -> Any:
        if self.kind(config.sampler) == "seal":
            return SealJob(config, SealData(config, comm))
        return LinkJob(config, self, comm)

    def answer(self, shape: dict[str, Any]) -> Answer:
        return Probabilities()

    def flags(self, config: Config, shape: dict[str, Any]) -> frozenset[str]:
        if self.kind(config.sampler) == "seal":
            return frozenset({"pairs"})
        if self.temporal:
            own = {"split"} if shape.get("moments") else {"relation"}
            return frozenset({"pairs", "at", "top_k", "nodes", "node_type", *own})
        return super().flags(config, shape) | {"top_k", "new_only"}

    def opened(self, config: Config, comm: Communicator) -> tuple[Any, Targets | None]:
        if self.kind(config.sampler) == "seal":
            return SealData(config, comm), None
        return super().opened(config, comm)

    def model_name(self, config: Config) -> str:
        return "dgcnn" if self.kind(config.sampler) == "seal" else config.model

    def model(self, config: Config, shape: dict[str, Any]) -> Any:
        if self.kind(config.sampler) == "seal":
            return make_dgcnn(config, shape["num_features"], shape["pool_rows"], threefry(0))
        return super().model(config, shape)
