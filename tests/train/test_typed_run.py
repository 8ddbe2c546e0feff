"""What a run gives a model of typed graphs: rows of each type's width, and edge types."""

import jax
import numpy as np
import pytest
import scipy.sparse
from flax import nnx

from jgs import Graph, InputError
from jgs.data import Dataset
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.ops import aggregate, gather
from jgs.partition.folder import write_parts
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop.model import (
    make_model,
    make_sampler,
    shape_of_types,
    types_of,
)
from jgs.train.loop.open_data import open_data
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

OWN_MODEL = "test_typed_run:Small"


class Small(nnx.Module):
    """A linear map for each node type, a learned row for types without features, and means."""

    typed, uses_degrees, input_reduce = True, False, None
    message_widths, activate = (), None

    def __init__(
        self,
        in_features: tuple[int, ...],
        hidden_features: int,
        out_features: int,
        num_layers: int,
        *,
        schema,
        dropout=0.0,
        input_dropout=0.0,
        norm=None,
        rngs,
    ):
        assert len(schema.node_types) == len(in_features)
        self.widths = in_features
        self.inputs = nnx.List(
            [nnx.Linear(max(w, 1), hidden_features, rngs=rngs) for w in in_features]
        )
        out = [hidden_features] * (num_layers - 1) + [out_features]
        self.layers = nnx.List([nnx.Linear(hidden_features, each, rngs=rngs) for each in out])

    def __call__(self, batch, x, *, key=None):
        total = 0.0
        for number, (table, layer) in enumerate(zip(x.tables, self.inputs, strict=True)):
            mine = x.kind == number
            rows = mine[:, None] * jax.numpy.ones((1, 1))
            if table is not None:
                rows = gather(table, jax.numpy.where(mine, x.place, -1))
            total += jax.numpy.where(mine[:, None], layer(rows), 0)
        for block, layer in zip(batch.blocks, self.layers, strict=True):
            assert block.edge_type is not None
            total = layer(total[: block.target_capacity] + aggregate(block, total, "mean"))
        return total


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set, its parts, and a data set with one matrix for all nodes."""
    rng, counts = np.random.default_rng(0), {"author": 60, "paper": 90, "venue": 5}
    edges = {
        ("author", "writes", "paper"): (rng.integers(0, 60, 300), rng.integers(0, 90, 300)),
        ("paper", "at", "venue"): (np.arange(90), rng.integers(0, 5, 90)),
    }
    graph = Graph.from_relations(counts, edges, both_ways=True)
    labels = np.arange(90) % 3
    features = {
        "paper": np.eye(3)[labels] + rng.standard_normal((90, 3)) / 2,
        "author": scipy.sparse.random(60, 40, 0.1, "csr", np.float32, rng),
    }
    splits = {"train": np.arange(60), "val": np.arange(60, 70), "test": np.arange(70, 90)}
    root = tmp_path_factory.mktemp("typed")
    data = Dataset.from_arrays(graph, features, {"paper": labels}, splits, name="typed")
    data.save(root / "data")
    assignment = rng.integers(0, 2, graph.num_nodes).astype(np.int32)
    write_parts(root / "parts", data, assignment, 2, method="random")
    one = rng.standard_normal((155, 4)).astype(np.float32)
    Dataset.from_arrays(graph, one, {"paper": labels}, splits, name="one").save(root / "one")
    plain = Graph(graph.indptr, graph.indices)
    ids = {"train": data.train_idx, "val": data.val_idx, "test": data.test_idx}
    Dataset.from_arrays(plain, one, data.labels, ids, name="untyped").save(root / "plain")
    return root


def config(folder, **changes):
    given = {"dataset": str(folder / "data"), "model": OWN_MODEL, "batch_size": 20, "hidden": 8}
    return Config(**given | {"fanouts": (4, 3), "prefetch": 0, "dropout": 0.0} | changes)


def trained(config, comm=None, epochs=4):
    """The losses of the epochs, the data and the last step's rows."""
    data = open_data(config, comm)
    comm, key = data.comm, jax.random.key(0)
    widths = (data.num_features, data.num_classes, data.sparse)
    graphdef, params = nnx.split(make_model(config, *widths, key, data.types))
    optimizer = make_optimizer(0.05)
    state = comm.same(init_state(params, optimizer))
    step = make_train_step(graphdef, optimizer, comm)
    key_data, losses = comm.same(jax.random.key_data(key)), []
    sampler = make_sampler(config)
    states = {sampler: data.state_of(sampler, None)}
    with data.loader(sampler, key, None, states) as batches:
        for _ in range(epochs):
            for batch, x in batches:
                stop = comm.own([np.float32(0)] * comm.num_local)
                state = step(state, key_data, batch, x, data.labels, stop)
            losses.append(float(state.loss_sum) / float(state.num_seeds))
            state = comm.same(state._replace(loss_sum=np.float32(0), num_seeds=np.float32(0)))
    return losses, data, x


def test_a_typed_model_trains_on_one_machine(folder):
    losses, data, x = trained(config(folder))
    assert losses[-1] < 0.8 * losses[0]
    assert data.types.widths == (40, 3, 0)
    assert data.sparse
    for mine, table in zip(x.tables[1:2], data.features[0].tables[1:2], strict=True):
        assert mine.unsafe_buffer_pointer() == table.unsafe_buffer_pointer()  # no copy


def test_ranks_learn_what_one_learns(folder):
    parts = str(folder / "parts")
    alone, of_one, _ = trained(config(folder, partition=parts, batch_size=20), Alone())
    for options in ({"cache": "none"}, {"cache": "planned"}):
        of_ranks = config(folder, partition=parts, batch_size=10, **options)
        losses, data, _ = trained(of_ranks, Mesh(jax.devices()[:2]))
        assert data.types.widths == (40, 3, 0)
        assert data.types.scales == of_one.types.scales
        assert data.types.scales[0] == (2.0,)
        np.testing.assert_allclose(losses, alone, rtol=1e-4)


def test_one_matrix_for_all_nodes_is_given_by_type(folder):
    losses, data, _ = trained(config(folder, dataset=str(folder / "one")), epochs=1)
    assert data.types.widths == (4, 4, 4)
    assert np.isfinite(losses).all()


def test_a_checkpoint_remembers_the_types(folder):
    types = open_data(config(folder)).types
    assert types_of(shape_of_types(types)) == types
    assert types_of(shape_of_types(None)) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "sage"}, "equally many.*author 40, paper 3.*Choose a model of typed"),
        (
            {"dataset": "plain"},
            "must be for a graph with node types.*got untyped, which has none",
        ),
        ({"sampler": "pinsage"}, "says the type of an edge.*--sampler pinsage"),
        ({"sampler": "asgcn", "sizes": (9, 9)}, "in one matrix for all nodes.*--sampler asgcn"),
    ],
)
def test_models_and_data_that_do_not_fit_are_refused(folder, changes, says):
    if "dataset" in changes:
        changes = {"dataset": str(folder / changes["dataset"])}
    given = {"dataset": str(folder / "data"), "model": OWN_MODEL, "batch_size": 20} | changes

    def start():
        settings = Config(**given)
        open_data(settings).state_of(make_sampler(settings), None)

    with pytest.raises(InputError, match=says):
        start()


def test_the_command_refuses_in_one_line(folder, tmp_path, capsys):
    arguments = ["--dataset", str(folder / "data"), "--run-dir", str(tmp_path / "run")]
    assert main([*arguments, "--batch-size", "20"]) == 2
    assert "must have equally many for a model that knows no types" in capsys.readouterr().err
