"""What each optimisation of the matrix API saves: gSampler's Figure 10, on this machine.

    python -m benchmarks.ablation [--full] [--device gpu] [--only Pass] [--rounds 15]

GraphSAGE (fanouts 10, 10), LADIES and FastGCN (512 rows a layer, two layers) draw from 512
seeds, and PASS (fanouts 10, 10, three biases) from 64, as in the README. PASS computes its
attention on every edge into the frontier, and from 512 seeds the frontier has more than two
million. All variants run in one process, in turn. The figures are medians; `--rounds` and
`--seconds` limit the calls of each algorithm. Each column leaves one optimisation out:

- extract-select: slices are built before anything is computed or selected. That also leaves out
  the fused edge-map-reduce, which needs a slice that is not built. FastGCN slices what it has
  selected.
- pre-processing: what depends on the graph alone is computed for every batch.
- layout: the layout that `choose_layout` does not choose.
- super-batch: one batch a call, not eight. The other columns have one batch a call too. This
  column is the time of calls of one, each with other seeds, over that of one call with all of
  them. With `--device gpu` there are calls of 8, 32 and 128 batches: a GPU wants more at once.

A dash means that the program has nothing that could be left out. On a GPU everything is plain
JAX.

    python -m benchmarks.ablation --stored [--full] [--rounds 15]

This measures the second case of pre-processing instead: values of the whole graph that are
sliced later, `A ** 2` and inner products of the nodes' features, of 16, 64 and 256 numbers.
Each slice computes its own, or reads what `init` has stored. LADIES draws 512 rows a layer for
512 seeds by the sums of the squared values, and a node-wise program 10 edges of each node for
64 seeds by the values. The last column is what `choose_stored` takes.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jgs
from benchmarks import graph, inputs
from benchmarks.__main__ import CACHE, command_line, say
from jgs.sampling import plan_capacity
from jgs.sampling.matrix import Matrix, MatrixSampler, choose_layout, choose_stored, stack

BATCH, WIDTH = 512, 16
OF_PASS = 64
SUPER_BATCHES = {"cpu": (8,), "gpu": (8, 32, 128)}


@dataclasses.dataclass(frozen=True)
class Program(MatrixSampler):
    """A program whose slices may be built at once."""

    built: bool = False

    def slice(self, A: Matrix, frontier: jax.Array) -> Matrix:
        sub = A[:, frontier]
        return sub.built() if self.built else sub


@dataclasses.dataclass(frozen=True)
class GraphSAGE(Program):
    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        return self.slice(A, frontier).individual_sample(k)


@dataclasses.dataclass(frozen=True)
class Ladies(Program):
    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        sub = self.slice(A.div(A.count(axis=0), axis=0), frontier)
        sample = sub.collective_sample(k, (sub**2).sum(axis=1))
        sample = sample.div(sample.row_probs, axis=1)
        return sample.div(sample.sum(axis=0), axis=0)


@dataclasses.dataclass(frozen=True)
class FastGCN(Program):
    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        P = A.div(A.count(axis=0), axis=0)
        sample = P.collective_sample(k, (P**2).sum(axis=1))[:, frontier]
        return sample.div(sample.row_probs, axis=1)


@dataclasses.dataclass(frozen=True)
class Pass(Program):
    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        sub = self.slice(A, frontier)
        rows, columns = (_embedding(ids) for ids in (sub.row(), frontier))
        biases = [sub.dot(rows * s, columns).softmax() for s in (1.0, -1.0)]
        biases.append(sub.div(sub.count(axis=0), axis=0))
        bias = stack(biases).map(lambda values: jax.nn.relu(values.sum(-1)) + 1e-6)
        return sub.individual_sample(k, bias)


def _embedding(nodes: jax.Array) -> jax.Array:
    """float32 `[n, WIDTH]`: features computed from the node ids, so that none are stored."""
    phase = nodes[:, None].astype(jnp.float32) * jnp.arange(1, WIDTH + 1)
    return jnp.sin(phase)


@dataclasses.dataclass(frozen=True)
class OfWhole(MatrixSampler):
    """Draws by values of the whole graph: inner products of features of so many numbers, or for
    0 the squares of the edges' weights."""

    width: int = 0
    node_wise: bool = False

    def values(self, A: Matrix) -> Matrix:
        if not self.width:
            return A**2
        x = A.graph.node_columns["features"][:, : self.width]
        return A.dot(x, x)

    def layer(self, A: Matrix, frontier: jax.Array, k: int) -> Matrix:
        sub = self.values(A)[:, frontier]
        if self.node_wise:
            return sub.individual_sample(k, sub**2)
        sample = sub.collective_sample(k, (sub**2).sum(axis=1))
        return sample.div(sample.row_probs, axis=1)


WIDTHS = (0, 16, 64, 256)
PROGRAMS = (GraphSAGE((10, 10)), Ladies((512, 512)), FastGCN((512, 512)), Pass((10, 10)))
SLICES = (GraphSAGE, Ladies)  # the programs whose slices need not be built
NAMES = "extract-select", "pre-processing", "layout"


def main() -> int:
    parser = command_line("ablation", __doc__)
    parser.add_argument("--stored", action="store_true", help="only what is stored")
    parser.add_argument("--full", action="store_true", help="the larger graph")
    parser.add_argument("--device", choices=sorted(SUPER_BATCHES), default="cpu")
    parser.add_argument("--only", choices=[type(p).__name__ for p in PROGRAMS])
    parser.add_argument("--rounds", type=int, default=15, help="(default: 15)")
    parser.add_argument("--seconds", type=float, default=60, help="(default: 60)")
    arguments = parser.parse_args()
    try:
        jax.config.update("jax_default_device", jax.devices(arguments.device)[0])
    except RuntimeError as error:
        say(f"JAX has no {arguments.device}: {str(error).splitlines()[0]}")
        return 1
    size = graph.FULL if arguments.full else graph.QUICK
    CACHE.mkdir(parents=True, exist_ok=True)
    data = jgs.Graph.open(graph.cached(CACHE, size), verify=False).unweighted()
    many = SUPER_BATCHES[arguments.device]
    nodes = np.load(inputs.seeds(CACHE, size)).astype(np.int32)
    if arguments.stored:
        _print_stored(data, nodes, arguments.rounds, arguments.seconds)
        return 0
    columns = [f"without {name}" for name in NAMES] + [f"{n} batches a call" for n in many]
    print("| algorithm | all on | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * (len(columns) + 1))
    for program in PROGRAMS:
        if arguments.only not in (None, type(program).__name__):
            continue
        began = time.perf_counter()
        batch = OF_PASS if isinstance(program, Pass) else BATCH
        seeds = nodes[: batch * max(many)].reshape(max(many), batch)
        calls = _calls(program, data, seeds, many)
        say(f"{program!r}: planned in {time.perf_counter() - began:.0f} s")
        medians = _medians(calls, arguments.rounds, arguments.seconds)
        base = medians["all on"]
        cells = [
            f"{medians[name]:.2f} ms, {medians[name] / base:.2f}" if name in medians else "-"
            for name in NAMES
        ]
        for n in many:
            each, alone = medians[str(n)] / n, medians[f"{n} alone"] / n
            cells.append(f"{each:.2f} ms each, {alone / each:.2f}")
        label = type(program).__name__
        print(f"| {label} | {base:.2f} ms | " + " | ".join(cells) + " |", flush=True)
    return 0


def _print_stored(data: jgs.Graph, nodes: np.ndarray, rounds: int, seconds: float) -> None:
    x = np.random.default_rng(0).standard_normal((data.num_nodes, max(WIDTHS)), np.float32)
    data = data.with_node_columns(features=x)
    print("| values of the graph | draws | a slice computes | stored, a slice reads | chosen |")
    print("|---|---|---|---|---|")
    for node_wise, sizes, batch in ((False, (512, 512), BATCH), (True, (10, 10), OF_PASS)):
        for width in WIDTHS:
            plain = OfWhole(sizes, compact=True, width=width, node_wise=node_wise)
            samplers = [dataclasses.replace(plain, stored=stored) for stored in (False, True)]
            seeds = nodes[:batch]
            capacity = plan_capacity(data, batch, plain, seeds=nodes[: 8 * batch], trials=4)
            calls = {
                name: _one_batch(sampler, data, seeds, capacity)
                for name, sampler in zip(("computed", "read"), samplers, strict=True)
            }
            ms = _medians(calls, rounds, seconds)
            chosen = choose_stored(data, batch, plain, seeds=seeds)
            cells = [f"{ms[name]:.2f} ms" for name in calls]
            cells.append("stored" if chosen.stored else "computed")
            values = f"`A.dot(x, x)`, {width} wide" if width else "`A ** 2`"
            draws = "10, 10 edges" if node_wise else "512, 512 rows"
            print(f"| {values} | {draws} | {' | '.join(cells)} |", flush=True)


def _one_batch(
    sampler: MatrixSampler, data: jgs.Graph, seeds: np.ndarray, capacity: jgs.sampling.Capacity
) -> Callable[[], object]:
    draw, state = jax.jit(sampler.sample, static_argnums=4), sampler.init(data)
    key = jax.random.key(0)
    return lambda: draw(key, data, state, seeds, capacity)


def _medians(
    calls: dict[str, Callable[[], object]], rounds: int, seconds: float
) -> dict[str, float]:
    """Median milliseconds of each call, made in turn until the rounds or seconds are over."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())  # compiled
    end = time.perf_counter() + seconds
    for number in range(rounds):
        if number > 2 and time.perf_counter() > end:
            break
        for name, call in calls.items():
            jax.block_until_ready(call())  # not timed: it loads its data into the caches
            began = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(some) for name, some in times.items()}


def _calls(
    program: Program, data: jgs.Graph, seeds: np.ndarray, many: tuple[int, ...]
) -> dict[str, Callable[[], object]]:
    """A call that draws one batch for each variant, and a super-batch for each of `many`."""
    program = choose_layout(data, seeds.shape[1], program, seeds=seeds.ravel())
    built = dataclasses.replace(program, built=type(program) in SLICES)
    other = dataclasses.replace(program, compact=not program.compact)
    capacity = plan_capacity(
        data, seeds.shape[1], built, seeds=seeds.ravel(), margin=0.2, trials=4
    )
    key_data = jax.random.key_data(jax.random.split(jax.random.key(0), len(seeds)))
    state = program.init(data)

    def one(sampler: Program, state: object, n: int = 1) -> Callable[[], object]:
        draw = jax.jit(
            lambda key_data, data, state, seeds: sampler.sample(
                key_data, data, state, seeds, capacity
            )
        )
        return lambda: [
            jax.block_until_ready(draw(key_data[i], data, state, seeds[i])) for i in range(n)
        ]

    together = jax.jit(
        lambda key_data, data, state, seeds: program.sample_separately(
            key_data, data, state, seeds, capacity
        )
    )
    calls = {"all on": one(program, state), "layout": one(other, state)}
    if built.built:
        calls["extract-select"] = one(built, state)
    if jax.tree.leaves(state):
        calls["pre-processing"] = one(program, ())
    for n in many:
        calls[f"{n} alone"] = one(program, state, n)
        calls[str(n)] = lambda n=n: together(key_data[:n], data, state, seeds[:n])
    return calls


if __name__ == "__main__":
    sys.exit(main())
