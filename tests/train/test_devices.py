"""What the command trains on other devices than the host's, device 0 of this process's four."""

import jax
import numpy as np
from small_runs import arrays, metrics, same_run, train

from jgs.dist.communicators.comm import Alone
from jgs.train.loop.place import Place

# Of which a MiB holds 200 rows.
WIDE = ("num_nodes=400", "num_edges=3000", "num_features=1300", "num_classes=3")


def close(run, other):
    for mine, theirs in zip(metrics(run), metrics(other), strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert abs(value - theirs[name]) < 2e-2, (name, mine, theirs)
    for mine, theirs in zip(arrays(run), arrays(other), strict=True):
        if np.asarray(mine).dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, atol=2e-3)


def runs(place, name, *flags):
    """A function that trains on devices, and returns the run folder, in `place`."""

    def run(device, *more):
        folder = place / f"{name}-{device.replace(':', '').replace(',', '')}"
        assert train(folder, *flags, "--device", device, *more) == 0
        return folder

    return run


def test_the_parameters_do_not_depend_on_the_devices(tmp_path):
    run = runs(tmp_path, "sage", "--epochs", 2, "--batch-size", 12)
    host = run("cpu")
    same_run(run("cpu:3"), host)  # one device: to the bit
    for devices in ("cpu:1,2", "cpu:all"):
        close(run(devices), host)
    for memory in ("1", "1000"):  # some rows, and all
        hot = runs(
            tmp_path, f"hot{memory}", "--epochs", 2, "--batch-size", 12, "--data-options", *WIDE
        )
        close(hot("cpu:1,2", "--device-memory", memory), hot("cpu"))
    # A model that reads degrees, links, and a sampler that learns.
    for name, *flags in (
        ("gcn", "--model", "gcn", "--epochs", 1),
        ("links", "--task", "links", "--epochs", 1, "--batch-size", 100),
    ):
        run = runs(tmp_path, name, *flags)
        same_run(run("cpu:1"), host := run("cpu"))
        close(run("cpu:1,2"), host)
    for name, *flags in (
        ("thanos", "--sampler", "thanos"),
        ("seal", "--task", "links", "--sampler", "seal", "--batch-size", 500),
    ):
        run = runs(tmp_path, name, *flags, "--epochs", 1)
        same_run(run("cpu:2"), run("cpu"))
    # A run goes on with another number of devices.
    folder = runs(tmp_path, "going", "--epochs", 1, "--batch-size", 12)("cpu:1,2")
    more = ("--epochs", 2, "--batch-size", 12, "--resume")
    assert train(folder, *more, "--device", "cpu:all") == 0
    close(folder, tmp_path / "sage-cpu")


def test_wrong_devices_are_refused(tmp_path, capsys):
    for flags, said in (
        (("--device", "gpu"), "a device must be one that JAX finds here"),
        (("--device", "cpu:4"), "a device's number must be one of 0, 1, 2, 3, or all; got '4'"),
        (("--device", "cpu:1,1"), "each device must be named once"),
        (("--device", "cpu:all", "--batch-size", 10), "a multiple of 4, the number of devices"),
        (("--device", "cpu:1,2", "--sampler", "thanos"), "Name one device"),
        (
            ("--device", "cpu:1,2", "--task", "links", "--sampler", "seal"),
            "several devices must share batches",
        ),
        (("--device-memory", 9), "--device-memory must be for dense features"),
    ):
        assert train(tmp_path / "wrong", *flags) == 2
        assert said in capsys.readouterr().err, said


def test_places_say_what_they_are():
    assert str(Place.of("cpu:1,2", Alone())) == "2 x cpu"
    with jax.default_device(jax.devices()[2]):
        assert Place.of("auto", Alone()).destination is None  # it is then the host too
