"""What the command trains on other devices than the host's, device 0 of this process's four."""

import jax
import numpy as np
import pytest
from small_data import papers, ring_edges
from small_runs import SMALL, close_arrays, command, cut, metrics, same_run, train

import jgs
from jgs.dist.communicators.comm import Alone
from jgs.train.loop.learned import Place

# Of which a MiB holds 200 rows.
WIDE = "--data-options num_nodes=400 num_edges=3000 num_features=1300 num_classes=3"


def close(run, other):
    for mine, theirs in zip(metrics(run), metrics(other), strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert abs(value - theirs[name]) < 2e-2, (name, mine, theirs)
    close_arrays(run, other, rtol=0)


def runs(place, name, *flags):
    """A function that trains on devices, and returns the run folder, in `place`."""

    def run(device, *more):
        folder = place / f"{name}-{device.replace(':', '').replace(',', '')}"
        assert train(folder, *flags, "--device", device, *more) == 0
        return folder

    return run


def test_the_parameters_do_not_depend_on_the_devices(tmp_path):
    run = runs(tmp_path, "sage", "--epochs 2 --batch-size 12 --keep 9")
    host, shared = run("cpu"), run("cpu:all")
    same_run(run("cpu:3"), host)  # one device: to the bit
    close(shared, host)
    # A run goes on with another number of devices.
    half = cut(shared, tmp_path / "half", 7)
    assert train(half, "--epochs 2 --batch-size 12 --resume --device cpu:1,2") == 0
    close(half, host)


def test_rows_that_lie_on_the_devices(tmp_path):
    """Some of them, and all."""
    run = runs(tmp_path, "hot", "--epochs 1 --batch-size 12", WIDE)
    host = run("cpu")
    close(run("cpu:1,2", "--device-memory 1"), host)
    close(run("cpu:1", "--device-memory 1000"), host)


@pytest.mark.slow  # four trainings
def test_degrees_and_links_on_devices(tmp_path):
    for name, flags in (("gcn", "--model gcn"), ("links", "--task links --batch-size 100")):
        run = runs(tmp_path, name, flags, "--epochs 1 --fanouts 3")
        close(run("cpu:1,2"), run("cpu"))


@pytest.mark.slow  # two trainings; test_learned.py has the states
def test_a_sampler_that_learns_is_trained_by_one_device(tmp_path):
    run = runs(tmp_path, "thanos", "--sampler thanos --epochs 1 --fanouts 3")
    same_run(run("cpu:2"), run("cpu"))


def test_places_say_what_they_are():
    assert str(Place.of("cpu:1,2", Alone())) == "2 x cpu"
    with jax.default_device(jax.devices()[2]):
        assert Place.of("auto", Alone()).destination is None  # it is then the host too


def test_devices_that_draw_and_share_the_rows(tmp_path, capfd):
    """Their parameters are those of the host; a run goes on with fewer devices, which draw too,
    in the midst of an epoch."""
    flags = "--model gcn --epochs 2 --batch-size 12 --keep 9 --checkpoint-every 4"
    run = runs(tmp_path, "sharded", flags)
    host, shared = run("cpu"), run("cpu:all", "--features sharded --cache planned")
    close(shared, host)
    for number, devices in ((2, "cpu:1,2"), (1, "cpu:3")):
        half = cut(shared, tmp_path / f"half{number}", 4)
        more = f"--resume --features sharded --device {devices}"
        assert train(half, flags, more) == 0
        close(half, host)
    capfd.readouterr()
    assert train(tmp_path / "wrong", flags, "--features sharded --sampler thanos") == 2
    assert "must be for a sampler that does not learn" in capfd.readouterr().err


def test_rows_that_devices_learn(tmp_path, saved):
    """Each has a share of them; a run goes on with fewer devices."""
    flags = f"--model rgcn --dataset {saved(papers)} --fanouts *=3 --hidden 8 --epochs 2"
    flags += " --batch-size 20 --keep 9 --no-progress --lr-schedule cosine"

    def run(name, *more):
        assert command(flags, "--run-dir", tmp_path / name, *more) == 0
        return tmp_path / name

    host = run("host", "--device cpu")
    shared = run("shared", "--device cpu:all --features sharded --cache planned")
    close(shared, host)
    half = cut(shared, tmp_path / "half", 3)
    assert command("--resume --device cpu:1,2 --run-dir", half) == 0
    close(half, host)
    nodes = np.arange(60, 65)
    found = [jgs.open_run(each).logits(nodes) for each in (host, shared)]
    np.testing.assert_allclose(*found, rtol=0, atol=2e-3)


@pytest.mark.slow  # eight trainings
def test_types_codes_and_links_whose_rows_devices_share(tmp_path, saved):
    typed = f"--model rgcn --dataset {saved(papers, 1, True, False)} --fanouts *=3 4"
    cases = {
        "typed": f"{typed} --hidden 8 --batch-size 20 --epochs 2 --no-progress",
        "codes": f"{SMALL} --model gat --feature-dtype int8 --batch-size 12",
        "links": f"{SMALL} --task links --batch-size 100",
        "bare": f"--task links --dataset {tmp_path / 'bare.npz'} --batch-size 96 --epochs 1 "
        "--no-progress",
    }
    np.savez(tmp_path / "bare.npz", edge_index=ring_edges(), num_nodes=60)
    for name, flags in cases.items():
        found = []
        for more in ("--device cpu", "--device cpu:1,2 --features sharded"):
            found.append(tmp_path / f"{name}{len(found)}")
            assert command(flags, more, "--run-dir", found[-1]) == 0
        close(*found)
