"""`--task embed`: embeddings of nodes by skip-gram on walks (DeepWalk, node2vec, metapaths,
CTDNE). `walk_loader`: draws the walks, on one rank or many. `probe`: how well linear functions
of embeddings predict labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.answers import Answer
from jgs.command import loading
from jgs.data.label_values import are_numbers
from jgs.data.plain import Plain, load_plain
from jgs.dist.batches.source import own_shares
from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import OWN, SAME, Alone, Communicator
from jgs.dist.rows.embedding import ShardedEmbedding, Table
from jgs.errors import refuse
from jgs.files.storage import save_npy
from jgs.files.writing import writing
from jgs.graph import Graph, NodeIds, Schema
from jgs.models.skipgram import (
    WalkBatch,
    count_runs,
    count_visits,
    damped_sgd,
    draw_pairs,
    first_row,
    noise_prefix,
    skipgram,
)
from jgs.options import Option
from jgs.sampling import Loader, Seeds, Walker
from jgs.sampling.checks import check_has_times, needs_times
from jgs.sampling.loading.schedule import Schedule, SeedParts, graph_digest
from jgs.sampling.loading.source import Source
from jgs.settings import exact_integers
from jgs.train.config import Config
from jgs.train.loop.keys import of_use
from jgs.train.loop.learner import Learner, digest
from jgs.train.loop.open_data import fingerprint_plain
from jgs.train.loop.progress import Meter, timed
from jgs.train.tasks.task import Task

EMBEDDINGS = "embeddings.npy"
_MOST_NODES = (1 << 30) - 1
_LEAST_RATE = 1e-4  # as a fraction of the first learning rate, as in word2vec
_WALKS_AT_ONCE = 1 << 11  # drawn in one call: a call costs as much for few walks as for many


# fmt: off
@dataclass(frozen=True)
class Embed(Task):
    """Embeddings of nodes from walks, by skip-gram with negative sampling (DeepWalk, node2vec,
    metapath2vec, CTDNE). SGD's first rate is --lr; it falls linearly over all --epochs, each of
    which is --num-walks passes over all nodes."""

    dim: Annotated[int, Option("width of the embeddings", least=1, most=1 << 14)] = 128
    num_walks: Annotated[int, Option(
        "walks from each node in an epoch", least=1, most=1 << 16
    )] = 10
    window: Annotated[int, Option(
        "the widest window; each center draws its own, from 1 to this", least=1, most=1 << 16
    )] = 10
    negatives: Annotated[int, Option(
        "how many negatives count for each pair of a center and a context", least=1,
        most=1 << 10
    )] = 5
    shared_negatives: Annotated[int, Option(
        "so many drawn negatives are shared by half as many centers in a row", least=1,
        most=1 << 16
    )] = 32

    like = "embed"
    defaults: ClassVar[dict[str, Any]] = {
        "sampler": "walk", "epochs": 3, "batch_size": 32,
        "lr": 0.05,  # steps as word2vec's 0.025, see `damped_sgd`
    }
    # fmt: on

    def answer(self, shape: dict[str, Any]) -> Answer:
        return Answer()

    def model(self, config: Config, shape: dict[str, Any]) -> None:
        return None

    def flags(self, config: Config, shape: dict[str, Any]) -> frozenset[str]:
        return frozenset({"nodes", "node_type", "embed"})

    def opened(self, config: Config, comm: Communicator) -> tuple[WalkData, None]:
        return WalkData.of(config), None

    def model_name(self, config: Config) -> str:
        return "skip-gram"

    def open(self, config: Config, comm: Communicator | None = None) -> EmbedJob:
        return EmbedJob(config, comm or Alone())

    def learner(self, job: Any, key: jax.Array, run_dir: Path | None) -> Learner:
        return EmbedLearner(job, key, run_dir)


class WalkData(NamedTuple):
    """The whole graph, on every rank, and digests by which a resumed run recognises it."""

    plain: Plain
    digests: dict[str, str]

    @classmethod
    def of(cls, config: Config) -> Self:
        with loading():
            plain = load_plain(config.dataset, config.root, **config.data_arguments())
        return cls(plain, fingerprint_plain(plain))

    @property
    def name(self) -> str:
        return self.plain.name

    @property
    def node_ids(self) -> NodeIds | None:
        return self.plain.node_ids

    @property
    def schema(self) -> Schema | None:
        return self.plain.graph.schema


class EmbedJob:
    """The job of `--task embed`, with what the loop calls of `Job`. All ranks call it alike."""

    def __init__(self, config: Config, comm: Communicator):
        self.config, self.comm = config, comm
        self.data = WalkData.of(config)
        self.graph: Graph = self.data.plain.graph
        num_nodes = self.graph.num_nodes
        self.batch_size = config.batch_size * self.comm.size
        self.num_seeds = num_nodes * config.num_walks
        refuse(
            (num_nodes > _MOST_NODES,
             f"the nodes to embed must be at most {_MOST_NODES}: each has two rows", num_nodes,
             "Embed a part of the graph."),
            (self.batch_size > num_nodes,
             "the walks of a step must be at most the number of nodes",
             f"{self.batch_size} for {num_nodes} nodes", "Lower --batch-size."),
        )  # fmt: skip
        self.walker: Walker = config.made("sampler")
        # Walks under cutoffs begin after the latest edge, and so from the whole graph.
        self.cutoff: int | None = None
        if needs_times(self.walker):
            check_has_times(self.graph)
            time = np.asarray(self.graph.edge_time)
            self.cutoff = 1 + int(time.max()) if time.size else 0
        if self.walker.by_source and self.graph.edge_time is None:
            self.graph = self.graph.sorted()
        self.state = self.walker.init(self.graph)  # not in `start`: here errors reach all ranks

    def start(self, key: jax.Array) -> None:
        config = self.config
        self.loader = walk_loader(
            self.comm,
            self.graph,
            self.walker,
            config.batch_size,
            state=self.state,
            key=key,
            num_walks=config.num_walks,
            pairs=(config.window, config.shared_negatives),
            prefetch=config.prefetch,
            cutoff=self.cutoff,
        )

    def batches(self, meter: Meter) -> Iterator[tuple[Any, None]]:
        for batch in timed(self.loader, meter):
            yield batch, None

    def close(self) -> None:
        self.loader.close()


class EmbedLearner:
    """The learner of `--task embed`: `damped_sgd` on skip-gram with word2vec's learning rate,
    which falls linearly over all epochs, from `--lr` to 1e-4 of it. A run that is resumed with
    more epochs continues at the rate that the longer run has at that step.

    The table, two rows `[D + 1]` for each node, is a `ShardedEmbedding`. A step reads and
    updates only the rows of its walks and negatives, and all ranks' gradients are added.
    """

    def __init__(self, job: EmbedJob, key: jax.Array, run_dir: Path | None):
        table_key, loader_key = (of_use(key, use) for use in ("parameters", "batches"))
        job.start(loader_key)
        config, comm = job.config, job.comm
        self.job = job
        self.record: dict[str, Any] = {"named": job.data.plain.node_ids is not None}
        self.num_nodes = job.graph.num_nodes
        offsets = 2 * np.linspace(0, self.num_nodes, comm.size + 1).astype(np.int64)
        places, shared = config.walk_length + 1, config.shared_negatives
        read = config.batch_size * (2 * places + count_runs(places, shared) * shared)
        self.table = ShardedEmbedding(
            comm,
            offsets,
            config.dim + 1,
            table_key,
            damped_sgd(),
            capacity=min(read, int(np.diff(offsets).max())),
            init=first_row,
        )
        self._rows = comm.program(WalkBatch.rows, (OWN,), OWN)
        self._gradient = comm.program(self._of_rows, (OWN, OWN, SAME, SAME, OWN), (OWN, SAME))
        # float32 `[3]`: the epoch's loss and pairs so far, and how many ranks asked to stop.
        self._sums: Any = None
        self.start_epoch()

    def step(self, batch: Any, x: None, stop: bool) -> bool:
        comm = self.job.comm
        asked = comm.own([np.float32(stop)] * comm.num_local)
        rows, token = self.table.pull(self._rows(batch))
        gradient, self._sums = self._gradient(rows, batch, self._rate(), self._sums, asked)
        self.table.push(token, gradient)
        jax.block_until_ready(self._sums)
        return True

    def _rate(self) -> Any:
        loader, config = self.job.loader, self.job.config
        # The loader has already counted this step's batch.
        done = loader.epoch * len(loader) + loader.step - 1
        left = 1 - done / (config.epochs * len(loader))
        return self.job.comm.same(np.float32(config.lr * max(left, _LEAST_RATE)))

    def _of_rows(self, rows, batch, rate, sums, stop):
        """The gradient of the rows that were read, times the rate, and the new `_sums`."""
        weight = self.job.config.negatives
        found = skipgram(rows, batch, self.num_nodes, weight, rate)
        more = self.job.comm.all_reduce(jnp.stack([found.loss, found.pairs, stop]))
        return found.rows, (sums + more).at[2].set(more[2])

    def stopping(self) -> bool:
        return float(self._sums[2]) > 0

    def loss(self) -> float:
        total, pairs, _ = np.asarray(self._sums).tolist()
        return total / max(pairs, 1.0)

    def start_epoch(self) -> None:
        self._sums = self.job.comm.same(np.zeros(3, np.float32))

    def evaluate(self, epoch: int) -> dict[str, Any]:
        return {}

    def spent(self, epoch: int) -> bool:
        return False

    def arrays(self) -> dict[str, Any]:
        return {"rows": self.table.rows(), "sums": np.array(self._sums)}

    def load(self, arrays: dict[str, Any]) -> None:
        like = self.table.state()[0]
        self.table.load_state(Table(arrays["rows"], like.opt_state))
        self._sums = self.job.comm.same(np.array(arrays["sums"]))

    def result(self, run_dir: Path | None) -> dict[str, Any]:
        rows = self.arrays()["rows"]

        def finish() -> dict[str, Any]:
            own = {"params_sha256": digest(rows)}
            if run_dir is None:
                return own
            embeddings, place = np.ascontiguousarray(rows[::2, :-1]), run_dir
            with writing(place):
                save_npy(place / EMBEDDINGS, embeddings)
            plain = self.job.data.plain
            scores = probe(embeddings, plain.labels, plain.train_idx, plain.test_idx)
            return scores | {"embeddings": str(place / EMBEDDINGS)} | own

        return everywhere(self.job.comm, finish)


class WalkSource(Source):
    """A `jgs.sampling.loading.source.Source` that yields an `OWN` `WalkBatch` a step.

    Every rank has the whole graph and draws its own `1 / R` of a step's walks. The ranks do not
    communicate. Their walks are together what one rank draws from as many roots.

    Args:
      comm: the communicator of the programs that draw.
      graph: the graph, equal on all ranks.
      walker: walks from the roots of `schedules`, which are distinct in a batch.
      state: what `walker.init(graph)` returned.
      schedules: for each local rank that of its share of the roots.
      prefix: as for `jgs.models.skipgram.draw_pairs`.
      pairs: its window and its number of negatives.
      cutoff: the cutoff of every root, or None.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        walker: Walker,
        state: Any,
        schedules: Sequence[Schedule],
        prefix: np.ndarray,
        pairs: tuple[int, int],
        cutoff: int | None = None,
    ):
        super().__init__(schedules)
        self._comm, self._walker, self._pairs, self._cutoff = comm, walker, pairs, cutoff
        self._of_all = comm.same(graph), comm.same(state), comm.same(prefix)
        own, num_steps = schedules[0].batch_size // comm.size, len(schedules[0])
        self.at_once = min(max(_WALKS_AT_ONCE // own, 1), num_steps)
        self._sample = comm.program(self._draw, (SAME, SAME, SAME, SAME, OWN), OWN)
        self._pick = comm.program(_pick, (OWN, SAME), OWN)

    def draw(self, key_data: np.ndarray, asked: list[Any], state: Any) -> list[Any]:
        with self._timed("sampling"):
            keys, roots = self._comm.same(key_data), self._comm.own(asked)
            batches = jax.block_until_ready(self._sample(keys, *self._of_all, roots))
        return [self._pick(batches, self._comm.same(np.int32(i))) for i in range(self.at_once)]

    def _draw(
        self, key_data: jax.Array, graph: Graph, state: Any, prefix: jax.Array, roots: jax.Array
    ) -> WalkBatch:
        """The stacked batches of the roots int32 `[S, B]`, drawn by the keys uint32 `[S,
        2]`."""
        with exact_integers():
            times = None if self._cutoff is None else jnp.full(roots.shape, self._cutoff)
        walks = self._walker.sample(key_data, graph, state, Seeds(roots, times))
        with exact_integers():
            draw = jax.vmap(lambda key, nodes: draw_pairs(key, nodes, prefix, *self._pairs))
            return draw(key_data, walks.nodes)


def _pick(batches: WalkBatch, which: jax.Array) -> WalkBatch:
    return jax.tree.map(lambda a: a[which], batches)


def walk_loader(
    comm: Communicator,
    graph: Graph,
    walker: Walker,
    batch_size: int,
    *,
    state: Any,
    key: Any,
    num_walks: int,
    pairs: tuple[int, int],
    prefetch: int,
    cutoff: int | None = None,
) -> Loader:
    """Walks from every node: `num_walks` from each in an epoch, `batch_size` a step and rank.

    An epoch goes over the nodes `num_walks` times, each time in another order. The ranks draw
    together what one rank draws with as many walks a step. The loader yields an `OWN`
    `WalkBatch` a step. All ranks call it and iterate alike. `state` is what
    `walker.init(graph)` returned. `pairs` are the window and the number of negatives. With a
    `cutoff` walks follow edges before it alone (`Seeds.time`). Negatives are drawn by how often
    walks visit a node (`jgs.models.skipgram.count_visits`). Raises `InputError`.
    """
    nodes = np.arange(graph.num_nodes, dtype=np.int32)
    settings = repr((walker, num_walks, *pairs))
    settings += "" if cutoff is None else f" before {cutoff}"
    roots = SeedParts.whole(nodes, graph_digest(graph))._replace(passes=num_walks)
    of_all = (key, roots, batch_size * comm.size, graph.num_nodes)
    shares = own_shares(comm)
    schedules = [Schedule(*of_all, settings=settings, share=share) for share in shares]
    prefix = noise_prefix(count_visits(key, graph, walker, state, cutoff))
    of_walks = (walker, state, schedules, prefix, pairs, cutoff)
    source = WalkSource(comm.clone(), graph, *of_walks)
    return Loader.over(source, prefetch if comm.concurrent else 0)


def probe(
    embeddings: np.ndarray,
    labels: np.ndarray | None,
    train_idx: np.ndarray | None = None,
    test_idx: np.ndarray | None = None,
) -> dict[str, Any]:
    """The scores of one-against-rest logistic regression on `embeddings` float32 `[N, D]`.

    Single labels, int `[N]` with -1 for none, give `accuracy` and `macro_f1`. Multi-label data
    `[N, C]` give `micro_f1` and `macro_f1`; the prediction for a node with `k` labels is the
    `k` most likely ones, as DeepWalk's authors do (Perozzi et al. 2014, section 5.1). A label
    that is not known counts as one that a node lacks. The regression is trained on `train_idx`
    and scored on `test_idx`; without a split the scores are means over 5 random halves of the
    labelled nodes. The result is `{}` where there are no labels, or float32 numbers `[N]`.

    The objective is the sum of the logistic losses plus half the squared weights, without the
    intercept, as in scikit-learn's `LogisticRegression` by default.
    """
    if labels is None or are_numbers(labels):
        return {}
    labels = np.nan_to_num(labels)  # integers stay as they are
    known = np.flatnonzero(labels >= 0 if labels.ndim == 1 else labels.any(axis=1))
    if known.size < 2:
        return {}
    if train_idx is not None and test_idx is not None and len(test_idx):
        splits = [(train_idx, test_idx)]
    else:
        orders = [np.random.default_rng(i).permutation(known) for i in range(5)]
        splits = [(order[: known.size // 2], order[known.size // 2 :]) for order in orders]
    found = [_score(embeddings, labels, *split) for split in splits]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def fit(x: np.ndarray, y: np.ndarray, penalty: float = 1.0) -> np.ndarray:
    """float64 `[D + 1, C]`: the weights, and in the last row the intercepts, of one logistic
    regression on `x` `[n, D]` for each column of `y` `[n, C]`, which is 0 or 1."""
    x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1).astype(np.float32)
    sign = (2 * y.astype(np.float32)) - 1

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(x.shape[1], -1)
        margin = sign * (x @ weights.astype(np.float32))
        loss = np.logaddexp(0, -margin).sum(dtype=np.float64)
        slope = -sign * (0.5 - 0.5 * np.tanh(margin / 2))  # no overflow
        gradient = (x.T @ slope).astype(np.float64)
        gradient[:-1] += penalty * weights[:-1]
        return loss + penalty / 2 * (weights[:-1] ** 2).sum(), gradient.ravel()

    from scipy.optimize import minimize  # a slow import, and most runs have no probe

    start = np.zeros(x.shape[1] * y.shape[1])
    options = {"maxiter": 200, "gtol": 1e-2}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(x.shape[1], -1)


def _score(
    x: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    single = labels.ndim == 1
    one_hot = labels[:, None] == np.arange(labels.max() + 1) if single else labels > 0.5
    weights = fit(x[train], one_hot[train])
    likely = x[test] @ weights[:-1] + weights[-1]
    true = one_hot[test]
    # Each label's rank at its node: a node with k labels is predicted the k most likely ones.
    rank = np.argsort(np.argsort(-likely, axis=1, kind="stable"), axis=1, kind="stable")
    predicted = rank < true.sum(axis=1, keepdims=True)
    right = (predicted & true).sum(axis=0)
    either = predicted.sum(axis=0) + true.sum(axis=0)
    macro = float(np.mean(2 * right / np.maximum(either, 1)))
    micro = float(2 * right.sum() / max(either.sum(), 1))
    return {"accuracy" if single else "micro_f1": micro, "macro_f1": macro}
