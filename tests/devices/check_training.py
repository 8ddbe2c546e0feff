"""What the command trains on other devices than the host's. Run with four forced CPU devices,
of which device 0 is the host, and a folder for the runs."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from small_runs import arrays, metrics, same_run, train

from jgs.train.loop.place import Place

FOLDER = Path(sys.argv[1])
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


def runs(name, *flags):
    """A function that trains on devices, and returns the run folder."""

    def run(device, *more):
        folder = FOLDER / f"{name}-{device.replace(':', '').replace(',', '')}"
        assert train(folder, *flags, "--device", device, *more) == 0
        return folder

    return run


def the_parameters_do_not_depend_on_the_devices():
    run = runs("sage", "--epochs", 2, "--batch-size", 12)
    host = run("cpu")
    same_run(run("cpu:3"), host)  # one device: to the bit
    for devices in ("cpu:1,2", "cpu:all"):
        close(run(devices), host)
    for memory in ("1", "1000"):  # some rows, and all
        hot = runs(f"hot{memory}", "--epochs", 2, "--batch-size", 12, "--data-options", *WIDE)
        close(hot("cpu:1,2", "--device-memory", memory), hot("cpu"))
    # A model that reads degrees, links, and a sampler that learns.
    for name, *flags in (
        ("gcn", "--model", "gcn", "--epochs", 1),
        ("links", "--task", "links", "--epochs", 1, "--batch-size", 100),
    ):
        run = runs(name, *flags)
        same_run(run("cpu:1"), host := run("cpu"))
        close(run("cpu:1,2"), host)
    run = runs("thanos", "--sampler", "thanos", "--epochs", 1)
    same_run(run("cpu:2"), run("cpu"))


def a_run_goes_on_with_another_number_of_devices():
    folder = runs("going", "--epochs", 1, "--batch-size", 12)("cpu:1,2")
    more = ("--epochs", 2, "--batch-size", 12, "--resume")
    assert train(folder, *more, "--device", "cpu:all") == 0
    close(folder, FOLDER / "sage-cpu")


def wrong_devices_are_refused(capsys):
    for flags, said in (
        (("--device", "gpu"), "a device must be one that JAX finds here"),
        (("--device", "cpu:4"), "a device's number must be one of 0, 1, 2, 3, or all; got '4'"),
        (("--device", "cpu:1,1"), "each device must be named once"),
        (("--device", "cpu:all", "--batch-size", 10), "a multiple of 4, the number of devices"),
        (("--device", "cpu:1,2", "--sampler", "thanos"), "Name one device"),
        (("--device-memory", 9), "--device-memory must be for dense features"),
    ):
        assert train(FOLDER / "wrong", *flags) == 2
        assert said in capsys(), said


def places_say_what_they_are():
    from jgs.dist.communicators.comm import Alone

    assert str(Place.of("cpu:1,2", Alone())) == "2 x cpu"
    with jax.default_device(jax.devices()[2]):
        assert Place.of("auto", Alone()).destination is None  # it is then the host too


if __name__ == "__main__":
    import contextlib
    import io

    said = io.StringIO()

    def taken():
        text = said.getvalue()
        said.truncate(0)
        return text

    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        wrong_devices_are_refused(taken)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        the_parameters_do_not_depend_on_the_devices()
        a_run_goes_on_with_another_number_of_devices()
    assert all("params_sha256" in json.loads(line) for line in out.getvalue().splitlines())
    places_say_what_they_are()
    print("passed")
