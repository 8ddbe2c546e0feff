"""After every one of many changes, draws from a live graph are those from one made anew."""

import faulthandler

import jax
import numpy as np
import pytest
from test_live import RELATIONS, SIZES

from jgs import Graph, Neighbors, kernels
from jgs.graph.live import Live
from jgs.sampling.seeds import Seeds

SAMPLER = Neighbors(({"*": 2},), weighted=True, edges=("id", "time", "x"))
LONG = pytest.mark.slow, pytest.mark.timeout(3600)
KEY, SLOTS = jax.random.key(5), 1 << 12  # slots of each graph made anew, so that none compiles


class Edges:
    """The edges of a graph in the order in which they came."""

    def __init__(self):
        self.columns = {name: np.zeros(0, int) for name in ("kind", "src", "dst", "time", "x")}
        self.there = np.zeros(0, bool)

    def add(self, kind, **columns):
        columns["kind"] = np.full(len(columns["src"]), kind)
        for name, column in columns.items():
            self.columns[name] = np.concatenate([self.columns[name], column])
        self.there = np.append(self.there, np.ones(len(columns["kind"]), bool))

    def graph(self, room=SLOTS):
        """A graph of the edges, made anew; its `edge_order` has their numbers."""
        kinds = [np.flatnonzero(self.there & (self.columns["kind"] == r)) for r in range(3)]
        each = [{name: c[at] for name, c in self.columns.items()} for at in kinds]

        def by(make):
            return {r: make(c) for r, c in zip(RELATIONS, each, strict=True)}

        made = Graph.from_relations(
            SIZES,
            by(lambda c: (c["src"], c["dst"])),
            by(lambda c: c["x"].astype(np.float32)),  # parallel edges, some of weight 0
            edge_time=by(lambda c: c["time"]),
            edge_columns=by(lambda c: {"x": c["x"]}),
        )
        numbers = np.concatenate(kinds)[np.asarray(made.edge_order)]
        arrays = made.edge_arrays() | {"edge_order": numbers.astype(np.int32)}
        return Graph.from_edge_arrays(made.indptr, arrays, room, made.schema)


def programs():
    """Draws by the kernels on 1 and on 2 threads, and in plain JAX, as lists of arrays."""

    def made(plain, threads):
        def draw(graph, seeds):
            batch = SAMPLER.sample(KEY, graph, (), seeds)
            numbers = [graph.edge_order.at[b.edge_id].get(mode="drop") for b in batch.blocks]
            real = [np.arange(b.indices.shape[0]) < b.num_edges for b in batch.blocks]
            numbers = [jax.numpy.where(r, n, -1) for r, n in zip(real, numbers, strict=True)]
            blocks = [b for block in batch.blocks for b in jax.tree.leaves(block)]
            return [b for b in blocks if b.dtype != np.int64], batch.nodes, numbers

        program = jax.jit(draw)

        def run(graph, seeds):
            with pytest.MonkeyPatch.context() as patch, kernels.plain(plain):
                patch.setattr(kernels, "NUM_THREADS", threads)
                return jax.tree.leaves(jax.device_get(program(graph, seeds)))

        return run

    plain = made(True, 1)
    return [made(False, 1), made(False, 2), plain] if kernels.available() else [plain]


@pytest.mark.parametrize("number", [50, pytest.param(10_000, marks=LONG)])
def test_after_each_change(number, tmp_path):
    if number > 1000:
        faulthandler.cancel_dump_traceback_later()  # which ends tests after 700 s
    rng, edges, draws = np.random.default_rng(number), Edges(), programs()
    edges.add(0, src=[0], dst=[0], time=[0], x=[1])
    live = Live(edges.graph(None), folder=tmp_path / "live")
    for step in range(number):
        kind = rng.choice(["append"] * 6 + ["delete"] * 3 + ["merge", "restart"])
        if kind == "append":
            r, num = int(rng.integers(3)), int(rng.integers(1, 9))
            src, dst = (rng.integers(0, SIZES[RELATIONS[r][i]], num) for i in (0, 2))
            time, x = rng.integers(0, 12, (2, num))
            weight = {"edge_weight": x.astype(np.float32), "edge_columns": {"x": x}}
            live.append(src, dst, time=time, relation=RELATIONS[r], **weight)
            edges.add(r, src=src, dst=dst, time=time, x=x)
        elif kind == "delete" and edges.there.any():
            there = np.flatnonzero(edges.there)
            some = rng.choice(there, 1 + there.size // 20)
            edges.there[some] = False
            live.delete_edges(some)
        elif kind == "merge" and step % 5 == 0:
            live.merge()
        elif kind == "restart":
            live.close()
            live = Live.open(tmp_path / "live")
        seeds = Seeds(rng.integers(0, 12, 8).astype(np.int32), rng.integers(0, 14, 8))
        for draw in draws:
            one, other = draw(live.graph, seeds), draw(edges.graph(), seeds)
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b, f"after change {step}, {kind}")
    assert np.count_nonzero(edges.there) == live.num_edges
