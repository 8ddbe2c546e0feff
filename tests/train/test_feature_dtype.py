"""Runs whose feature rows are kept as codes or halves: those of the same numbers in float32, on
ranks, from disk, on a device, by node type, predicted and exported."""

from dataclasses import replace

import numpy as np
import pytest
from small_data import papers, small
from small_runs import close_arrays, comm_of, command, metrics, of_ranks, result, same_run

import jgs
from jgs.data.described import facts
from jgs.data.parts import open_parts
from jgs.dist.batches.ranks import RankParts
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError
from jgs.export import NewNodes
from jgs.graph import TypedFeatures, as_device
from jgs.graph.row_tables.table import as_table
from jgs.partition.__main__ import main as partition
from jgs.tables import DTYPES, ROW_TABLES

RUN = "--hidden 8 --batch-size 10 --epochs 2 --no-progress --fanouts 3 3"
TYPED = "--hidden 8 --batch-size 20 --epochs 2 --no-progress --fanouts *=3 4 --model rgcn"


CODED = DTYPES[3:]  # the row tables that are made of others
CODE = CODED[-1]  # the newest


def numbers(features):
    """The same numbers as float32; sparse ones as they are."""
    if isinstance(features, TypedFeatures):
        tables = [None if t is None else numbers(t) for t in features.tables]
        return TypedFeatures(tuple(tables), features.schema)
    table = as_table(features)
    return features if table.by_entries else as_device(table.numbers().astype(np.float32))


def kept(dtype, make, *of):
    return make(*of).kept_as(dtype)


def kept_numbers(dtype, make, *of):
    """The data set of the numbers of `kept`, in float32."""
    data = kept(dtype, make, *of)
    return replace(data, features=numbers(data.features))


def mixed():
    """Types whose rows are kept in three ways, and one without features."""
    data = papers(1, True)
    of = dict(
        zip(
            (name for name, _ in data.graph.schema.node_types),
            data.features.tables,
            strict=True,
        )
    )
    of["paper"] = ROW_TABLES[CODE].of(of["paper"])
    return replace(data, features=TypedFeatures.from_dict(data.graph.schema, of))


def run(data, folder, *flags):
    assert command("--dataset", data, "--run-dir", folder, *flags) == 0
    return folder


def close(one, other):
    for mine, theirs in zip(metrics(one), metrics(other), strict=True):
        for name, value in mine.items():
            assert abs(value - theirs[name]) < 2e-2, (name, mine, theirs)
    close_arrays(one, other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", *CODED])
def test_a_run_is_that_of_the_numbers(saved, tmp_path, dtype):
    """The flag, the stored data set, and float32 features of the same numbers learn alike."""
    kept_folder = saved(kept, dtype, small)
    flag = run(saved(small), tmp_path / "flag", RUN, "--feature-dtype", dtype)
    stored = run(kept_folder, tmp_path / "stored", RUN)
    wide = run(saved(kept_numbers, dtype, small), tmp_path / "wide", RUN)
    same_run(stored, flag)
    close(flag, wide)
    assert jgs.data.load(str(kept_folder)).features.shape == (400, 8)
    sizes = {path.name: path.stat().st_size for path in kept_folder.iterdir()}
    rows = sizes["features.npy" if dtype == "float16" else "features.codes.npy"]
    assert rows < 400 * 8 * (1 if dtype == "int8" else 2) + 200
    found = facts(jgs.data.load(str(kept_folder)))
    assert (found["features"], found["sparse"]) == (8, False)
    # Predictions open the run with its flag, and read the same rows.
    opened, other = (jgs.open_run(folder, progress=False) for folder in (flag, wide))
    nodes = np.arange(40)
    np.testing.assert_allclose(opened.logits(nodes), other.logits(nodes), atol=0.2)
    sampled = opened.logits(nodes, fanouts=(3, 3))
    jgs.export_run(flag, tmp_path / "model", fanouts=(3, 3), batch_sizes=(8,), with_graph=True)
    served = jgs.load_exported(tmp_path / "model")
    np.testing.assert_array_equal(served.logits(nodes), sampled)


def test_new_nodes_of_an_export_are_coded(saved, tmp_path, caplog):
    """A new node with the features and the neighbours of one has its answer, by whole rows."""
    folder = run(saved(small), tmp_path / "run", RUN, "--epochs 1 --feature-dtype", CODE)
    options = {"fanouts": (100, 100), "batch_sizes": (1,), "with_graph": True}
    jgs.export_run(folder, tmp_path / "model", **options)
    served = jgs.load_exported(tmp_path / "model", new_nodes=3, new_edges=100)
    assert served.spec.feature_dtype == CODE
    data = small()
    rows, indptr = as_table(data.features).numbers(), np.asarray(data.graph.indptr)
    node = int(np.argmax(np.diff(indptr)))
    src = np.asarray(data.graph.indices)[indptr[node] : indptr[node + 1]]
    new = NewNodes(rows[node : node + 1], src, np.full(src.size, 400))
    of_node = served.logits([node])
    np.testing.assert_allclose(served.logits([400], new=new), of_node, rtol=1e-5, atol=1e-5)
    assert not caplog.text
    far = NewNodes(rows[node : node + 1] * 1e6, src, np.full(src.size, 400))
    assert np.isfinite(served.logits([400], new=far)).all()
    assert ("8 numbers are out of the range" in caplog.text) == (CODE == "int8")


@pytest.mark.parametrize("make", [lambda: kept(CODE, papers), mixed], ids=["all", "mixed"])
def test_types(tmp_path, make):
    """Each type has a table of its own; where one is made of codes, the others stay."""
    data = make()
    data.save(tmp_path / "kept")
    replace(data, features=numbers(data.features)).save(tmp_path / "wide")
    one = run(tmp_path / "kept", tmp_path / "one", TYPED)
    close(one, run(tmp_path / "wide", tmp_path / "two", TYPED))
    opened = jgs.open_run(one, progress=False)
    assert opened.predict(np.arange(65, 69)).prediction.shape == (4,)


@pytest.mark.parametrize("make", [small, papers])
def test_ranks(parted, tmp_path, make):
    """Two ranks send each other codes, and learn what one learns."""
    parts = parted(2, kept, CODE, make)
    typed = {"model": "rgcn", "fanouts": ("*=3", 4)} if make is papers else {"fanouts": (3, 3)}
    settings = {"partition": str(parts), "hidden": 8, "epochs": 2, "batch_size": 20, **typed}
    for ranks in (1, 2):
        of_ranks(tmp_path / f"{ranks}", ranks, **settings)
    close(tmp_path / "2", tmp_path / "1")


def test_ranks_keep_codes_in_their_cache(parted):
    from small_runs import comm_of

    from jgs.data.parts import open_parts
    from jgs.dist.rows.exchange import FeatureExchange

    parts = open_parts(parted(2, kept, "int8", small))
    comm = comm_of(2)
    ranks = RankParts(comm, parts)
    exchange = FeatureExchange(comm, ranks.offsets, ranks.features, 50, in_place=True)
    assert exchange.row_bytes == 8
    rows = as_table(parts.part(0).features).numbers()
    nodes = [np.array([0, 3, 399, 400], np.int32)] * 2
    exchange.cache([np.array([399], np.int32), np.array([0], np.int32)])
    placed, lost = exchange(comm.own(nodes))
    assert not lost
    for own in comm.local(placed):
        np.testing.assert_allclose(own.rows()[:2], rows[[0, 3]], rtol=1e-6)
        assert not np.asarray(own.rows()[3]).any()


def test_ranks_with_other_scales_are_refused():
    """Codes that each rank made of its own rows would read as other numbers elsewhere."""
    comm, rows = comm_of(2), np.arange(24, dtype=np.float32).reshape(6, 4)
    tables = [ROW_TABLES[CODE].of(rows[:3]), ROW_TABLES[CODE].of(10 * rows[3:])]
    for wrong in (tables, [tables[0], [rows[3:]]]):
        if CODE == "int8" or wrong is not tables:
            with pytest.raises(InputError, match="must keep their rows alike"):
                FeatureExchange(comm, np.array([0, 3, 6]), wrong, 2)


def test_partition_writes_codes(saved, tmp_path):
    flags = ["--dataset", str(saved(small)), "--parts", "2", "--out", str(tmp_path / "parts")]
    assert partition([*flags, "--feature-dtype", "int8", "--method", "random"]) == 0
    part = open_parts(tmp_path / "parts").part(1)
    assert part.features.kind == "int8"
    assert part.features.shape[1] == 8


def wide_codes():
    """Of whose rows of codes a MiB holds half."""
    return kept(
        CODE,
        lambda: jgs.data.load(
            "synthetic", num_nodes=400, num_edges=3000, num_features=5000, num_classes=3
        ),
    )


def test_rows_on_disk(saved, tmp_path):
    flags = "--fanouts 3 --hidden 8 --batch-size 10 --epochs 1 --no-progress"
    data = saved(wide_codes)
    memory = run(data, tmp_path / "memory", flags)
    disk = run(data, tmp_path / "disk", flags, "--feature-memory 1 --feature-block 3")
    assert result(disk)["params_sha256"] == result(memory)["params_sha256"]


def test_rows_on_a_device(saved, tmp_path):
    flags = "--fanouts 3 --hidden 8 --batch-size 12 --epochs 1 --no-progress"
    data = saved(wide_codes)
    host = run(data, tmp_path / "host", flags, "--device cpu")
    close(run(data, tmp_path / "hot", flags, "--device cpu:1 --device-memory 1"), host)


def test_refusals(saved, capsys):
    parts = "--feature-dtype int8 --partition x --fanouts 3 3"
    assert command(parts) == 2
    assert "jgs partition --feature-dtype" in capsys.readouterr().err
    assert command("--dataset synthetic --feature-dtype int4") == 2
    assert "int8" in capsys.readouterr().err
