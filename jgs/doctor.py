"""`python -m jgs.doctor`: whether jgs can work here, and what to do where it cannot.

The command checks one thing after the other and prints a line for each. A line begins with
`ok` for what works. It begins with `no` for something missing that jgs needs, and with `--` for
something missing that only some uses need; such a line says what to do. The exit status is 1
where a line begins with `no`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import importlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import jgs
from jgs import command
from jgs.errors import InputError

_LEAST_FREE = 1 << 30
_TRIAL_SECONDS = 300
# The extras of pyproject.toml: what each is for, and a module that is there if it is installed.
_EXTRAS = {
    "viz": ("curve.png and jgs.viz", "matplotlib"),
    "tables": ("Parquet and CSV", "pyarrow"),
    "database": ("databases", "duckdb"),
    "serve": ("jgs serve", "uvicorn"),
    "partition": ("--method metis", "pymetis"),
    "kaminpar": ("--method kaminpar", "kaminpar"),
    "grain": ("grain_iterator", "grain"),
    "tensorboard": ("--log tensorboard", "tensorboard"),
    "wandb": ("--log wandb", "wandb"),
    "completion": ("jgs completion", "shtab"),
}


class Finding(NamedTuple):
    """A line of the output."""

    mark: str  # "ok", "no" or "--"
    text: str  # what was found
    remedy: str = ""  # what the user should do; "" where there is nothing to do

    def __str__(self) -> str:
        return f"{self.mark:<3} {self.text}" + (f". {self.remedy}" if self.remedy else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 1 if jgs cannot work here, otherwise as
    `jgs.command.run`."""
    return command.run(lambda: _examine(argv))


def parser() -> command.Parser:
    return command.Parser(
        "python -m jgs.doctor",
        "Say what this installation has and lacks; the exit status is 1 where jgs cannot work.",
    )


def _examine(argv: Sequence[str] | None) -> int:
    parser().parse_args(argv)
    found = []
    for check in (_python, _packages, _devices, _kernels, _agreement, _mpi, _memory, _extras):
        for finding in _tried(check):
            command.print_out(str(finding), "every line", "Write them to a file.")
            found.append(finding)
        if any(finding.mark == "no" for finding in found):
            return 1  # the next checks rest on this one
    return 0


def _tried(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check. An error of the check itself is a finding too."""
    try:
        yield from check()
    except InputError as error:
        yield Finding("no", " ".join(str(error).split()))
    except Exception as error:  # whatever a broken installation raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        yield Finding("no", f"{check.__name__.strip('_')}: {text}", "Reinstall jgs.")


def _python() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("ok", f"jgs {jgs.__version__}, Python {platform.python_version()}, {system}")


def _packages() -> Iterator[Finding]:
    try:
        declared = metadata.requires("jgs") or []
    except metadata.PackageNotFoundError:
        text = "jgs is not installed, so nothing says which packages it needs"
        yield Finding("--", text, "Install it, with pip install -e in a checkout.")
        return
    good = []
    for line in declared:
        if not (found := re.fullmatch(r"([\w-]+)>=([\d.]+)", line)):
            continue  # it belongs to an extra
        name, least = found.groups()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding("no", f"{name} is not installed", f"Run pip install {name}.")
            continue
        if _numbers(version) < _numbers(least):
            text = f"{name} {version} is too old: jgs needs {least}"
            yield Finding("no", text, f"Run pip install '{line}'.")
        else:
            good.append(f"{name} {version}")
    yield Finding("ok", ", ".join(good))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _devices() -> Iterator[Finding]:
    try:
        import jax  # a slow import

        devices = jax.devices()
    except Exception as error:
        text = " ".join(str(error).split())
        yield Finding("no", f"JAX cannot start: {text}", "Correct or unset JAX_PLATFORMS.")
        return
    from jgs.devices import find_devices, host_device, shown

    there = f"; there are {shown(devices)}" if len(devices) > 1 else ""
    first = shown(find_devices("auto"))
    yield Finding("ok", f"training on {first} (--device){there}")
    if (host := host_device()).platform == "cpu":
        yield Finding("ok", f"graphs, sampling and evaluation on {shown([host])}")
        return
    yield Finding(
        "--",
        "JAX has no CPU device here: sampling is in plain JAX, where graphs lie",
        "Unset JAX_PLATFORMS, or add cpu to it.",
    )


def _kernels() -> Iterator[Finding]:
    from jgs import kernels  # a slow import

    if (path := kernels.library()) is None:
        off = os.environ.get("JGS_KERNELS", "").lower() == "off"
        yield Finding(
            "--",
            "the compiled kernels are not in use: sampling is slower",
            "Unset JGS_KERNELS." if off else "Install a C++ compiler, then reinstall jgs.",
        )
        return
    limit = " (JGS_MAX_ISA limits it)" if os.environ.get("JGS_MAX_ISA") else ""
    yield Finding("ok", f"compiled kernels with {kernels.instruction_set()}{limit}: {path}")


def _agreement() -> Iterator[Finding]:
    """Whether the kernels and plain JAX agree. Each runs in a process of its own, as a kernel
    may crash."""
    from jgs import kernels  # a slow import

    if kernels.library() is None:
        return
    code = "from jgs.doctor import trial; trial()"
    own = {"JAX_PLATFORMS": "cpu", "JGS_KERNELS": str(kernels.library())}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | own | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for more in ({}, {"JGS_KERNELS": "off"})
    ]
    try:
        said = [process.communicate(timeout=_TRIAL_SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    remedy = "Set JGS_MAX_ISA=0, or JGS_KERNELS=off, and report it."
    for process, (_, errors) in zip(started, said, strict=True):
        if (status := process.returncode) != 0:
            last = (errors.strip().splitlines() or ["nothing said"])[-1]
            text = f"a trial of sampling and training ended with {status}: {last}"
            yield Finding("no", text, remedy)
            return
    own_trial, plain = (json.loads(out.splitlines()[-1]) for out, _ in said)
    near = all(
        abs(a - b) <= 1e-4 * max(abs(b), 1)
        for a, b in zip(own_trial["numbers"], plain["numbers"], strict=True)
    )
    if own_trial["samples"] == plain["samples"] and near:
        yield Finding("ok", "kernels and plain JAX draw the same and compute the same")
    else:
        yield Finding("no", f"kernels and plain JAX differ: {own_trial} and {plain}", remedy)


def trial() -> None:
    """Draws batches from a small graph and computes a loss and its gradient on each. Prints a
    digest of the samples and these numbers, as a JSON line."""
    # Slow imports.
    import hashlib

    import jax
    import numpy as np
    from flax import nnx

    from jgs.data import load
    from jgs.models import MODELS
    from jgs.sampling import Labor, Loader, Neighbors
    from jgs.train.loop.step import node_loss

    command.configure_jax()
    data = load("synthetic", num_nodes=3000, num_edges=30000, num_features=16, num_classes=4)
    features, labels = jax.numpy.asarray(data.features), jax.numpy.asarray(data.labels)
    digest, numbers = hashlib.sha256(), []
    for name, sampler in (("sage", Neighbors((5, 5))), ("gat", Labor((5, 5)))):
        graphdef, params = nnx.split(MODELS[name](16, 16, 4, 2, rngs=nnx.Rngs(0)))

        def loss_of(params: Any, batch: Any, graphdef: Any = graphdef) -> jax.Array:
            outputs = nnx.merge(graphdef, params)(batch, features[batch.nodes])
            return node_loss(outputs, batch, labels)

        step = jax.jit(jax.value_and_grad(loss_of))
        loader = Loader(data.graph, data.train_idx, 300, sampler, key=jax.random.key(0))
        for batch in loader:
            for leaf in jax.tree.leaves((batch.nodes, batch.blocks)):
                digest.update(np.asarray(leaf).tobytes())
            loss, slope = step(params, batch)
            norms = [float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(slope)]
            numbers += [float(loss), sum(norms)]
        loader.close()
    print(json.dumps({"samples": digest.hexdigest()[:16], "numbers": numbers}))


def _mpi() -> Iterator[Finding]:
    from jgs.launch.start import mpiexec  # a slow import

    path = mpiexec()
    if importlib.util.find_spec("mpi4jax") is None or path is None:
        lacking = "mpiexec" if path is None else "mpi4jax"
        yield Finding(
            "--",
            f"no {lacking}: --comm mpi cannot be used, --comm jax can",
            "Run pip install mpich mpi4py, then pip install mpi4jax.",
        )
    else:
        yield Finding("ok", f"MPI: mpi4jax {metadata.version('mpi4jax')}, {path}")


def _memory() -> Iterator[Finding]:
    from jgs.partition.memory import machine  # a slow import

    if (has := machine()) is None:
        yield Finding("--", "the system does not say how much memory there is")
        return
    text = f"memory: {has.free / 1e9:,.1f} of {has.total / 1e9:,.1f} GB free"
    if has.free < _LEAST_FREE:
        yield Finding("--", text, "End other programs before you train.")
    else:
        yield Finding("ok", text)


def _extras() -> Iterator[Finding]:
    there = {
        extra: importlib.util.find_spec(module) is not None
        for extra, (_, module) in _EXTRAS.items()
    }
    if good := [extra for extra, found in there.items() if found]:
        yield Finding("ok", f"extras: {', '.join(good)}")
    if lacking := [extra for extra, found in there.items() if not found]:
        uses = ", ".join(f"{extra} for {_EXTRAS[extra][0]}" for extra in lacking)
        yield Finding(
            "--", f"no extras {uses}", f"Run pip install 'jgs[{','.join(lacking)}]' for all."
        )


if __name__ == "__main__":
    interrupts.leave(main())
