"""What the command trains on other devices than the host's, device 0 of this process's four."""

import jax
import pytest
from small_runs import close_arrays, cut, metrics, same_run, train

from jgs.dist.communicators.comm import Alone
from jgs.train.loop.place import Place

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
