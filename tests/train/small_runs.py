"""Runs of the command, in this process, on small data: whole, resumed, by ranks, refused."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.evaluation.metrics import METRICS
from jgs.train.loop import checkpoint, folder, training
from jgs.train.tasks.task import open_job

# Eight steps in an epoch.
SMALL = """
    --data-options num_nodes=400 num_edges=3000 num_features=8 num_classes=3 --fanouts 3 3
    --hidden 8 --batch-size 10 --epochs 3 --no-progress
"""


def words(*flags):
    """Flags as a command takes them: a text may hold several."""
    return [word for text in flags for word in str(text).split()]


def command(*flags):
    """The exit status of `python -m jgs.train` with these flags."""
    return main(words(*flags))


def train(run_dir, *more):
    return command(SMALL, "--run-dir", run_dir, *more)


def trainer(flags):
    """`train(data, run_dir, *more)`: the result of a run of the command with `flags`."""

    def train(data, run_dir, *more):
        assert command(flags, "--dataset", data, "--run-dir", run_dir, *more) == 0
        return result(run_dir)

    return train


def result(run_dir):
    return json.loads((run_dir / folder.RESULT).read_text())


def measured(name, outputs, labels):
    """The metric `name` of one process."""
    return METRICS[name].measure(Alone(), [outputs], [labels])


def metrics(run_dir):
    keys = ("epoch", "train_loss", "val_accuracy")
    rows = folder.read_metrics(run_dir, 10**6)
    return [{k: row[k] for k in keys if k in row} for row in rows]


def arrays(run_dir):
    """Every array of the last checkpoint, read without the model."""
    import orbax.checkpoint as ocp

    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        return jax.tree.leaves(reader.restore(last.resolve() / checkpoint.ARRAYS))


def same_run(run_dir, whole):
    assert metrics(run_dir) == metrics(whole)
    for mine, theirs in zip(arrays(run_dir), arrays(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def close_arrays(run_dir, other, rtol=1e-2, atol=2e-3):
    for mine, theirs in zip(arrays(run_dir), arrays(other), strict=True):
        if np.asarray(mine).dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)


def cut(whole, copy, step):
    """A copy of a finished run, as if it had been killed after its checkpoint of `step`."""
    shutil.copytree(whole, copy)
    kept = checkpoint.checkpoints(copy / folder.CHECKPOINTS)
    steps = [int(path.name.split("-")[1]) for path in kept]
    for path in kept[steps.index(step) + 1 :]:
        shutil.rmtree(path)
    (copy / folder.RESULT).unlink()
    return copy


def resumed(whole, copy, step, *more):
    """Such a copy goes on, and becomes the same run."""
    assert command("--resume --run-dir", cut(whole, copy, step), *more) == 0
    same_run(copy, whole)


def comm_of(ranks):
    return Mesh(jax.devices()[:ranks]) if ranks > 1 else Alone()


def of_ranks(run_dir, ranks, **settings):
    """The result and the job of a run by ranks of this process. `batch_size` is that of all."""
    jobs = []

    def make_job(config):
        jobs.append(open_job(config, comm_of(ranks)))
        return jobs[0]

    settings["batch_size"] //= ranks
    config = Config(run_dir=str(run_dir), ranks=ranks, progress=False, **settings)
    return training.run(config, make_job), jobs[0]


def started(ranks=1, **settings):
    """The job of such ranks, and its first parameters."""
    settings["batch_size"] //= ranks
    job = open_job(Config(ranks=ranks, progress=False, **settings), comm_of(ranks))
    model = job.model(jax.random.key(0))
    job.start(model, jax.random.key(1), None)
    return job, nnx.state(model)


def on_all_neighbours(model, graph, x, nodes=None, **options):
    """The model's outputs for nodes or `Seeds`, by default all nodes, by a batch with all their
    neighbours."""
    nodes = np.arange(graph.num_nodes) if nodes is None else nodes
    nodes = nodes.astype(np.int32) if isinstance(nodes, np.ndarray) else nodes
    of = (graph, nodes, (-1,) * len(model.layers))
    batch = sample_neighbors(jax.random.key(0), *of, edges=model.edge_columns, **options)
    if model.uses_degrees:
        batch = batch.with_degrees(jnp.asarray(graph.degrees()))
    return np.asarray(nnx.jit(lambda m, b, x: m(b, x))(model, batch, gather(x, batch.nodes)))


def drawn_edges(batch):
    """The relations (0 where there are none), sources and targets `[3, n]` of the blocks."""
    nodes, found = np.asarray(batch.nodes), []
    for hop, block in enumerate(batch.blocks):
        indptr = np.asarray(block.indptr)
        target = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        source = np.asarray(block.indices)[: target.size]
        source = source if batch.direct_inputs and hop == 0 else nodes[source]
        typed = block.edge_type is not None
        relation = (
            np.asarray(block.edge_type)[: target.size] if typed else np.zeros_like(target)
        )
        found.append(np.stack([relation, source, nodes[target]]))
    return np.concatenate(found, axis=1)


def unordered(src, dst):
    """Pairs of nodes, whichever comes first."""
    return {tuple(sorted(pair)) for pair in zip(np.asarray(src), np.asarray(dst), strict=True)}
