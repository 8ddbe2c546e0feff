"""Where things run: graphs and kernels on the host's CPU, training steps on a device.

The *host device* is the CPU device of this process where graphs lie and kernels draw. Where
JAX's default device is a CPU, it is that one. Elsewhere, on a machine with GPUs or TPUs, it is
the first CPU device, and batches are sent to the default device (`jgs.sampling.Loader`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from jgs.errors import InputError


def default_device() -> Any:
    """The device on which JAX computes in this thread where nothing says otherwise."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if isinstance(chosen, str):
        return jax.local_devices(backend=chosen)[0]
    return jax.local_devices()[0] if chosen is None else chosen


def host_device() -> Any:
    """The CPU device of graphs and kernels in this thread. Without CPU devices, as with
    JAX_PLATFORMS=cuda, it is the default device."""
    default = default_device()
    if default.platform == "cpu":
        return default
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return default


def computes_on_cpu() -> bool:
    """Whether JAX computes on a CPU in this thread where nothing says otherwise."""
    return default_device().platform == "cpu"


def on_host() -> AbstractContextManager[Any]:
    """A block in which this thread computes on the host device where nothing says otherwise."""
    if computes_on_cpu() or host_device().platform != "cpu":
        return nullcontext()
    return jax.default_device("cpu")


def compute_on_host() -> None:
    """As `on_host`, for all that this process does from now on. It starts no device."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    if "cpu" in (platforms or "cpu").split(","):
        jax.config.update("jax_default_device", "cpu")


def to_device(tree: Any, device: Any = None) -> Any:
    """A pytree of arrays, such as a `Graph` or features, on a device or a sharding; None: JAX's
    default device. On a host without another one that is where they are.

    It is `jax.device_put` with 64-bit integers kept. On the way from a CPU to a GPU JAX 0.11
    cuts them to 32 bits outside `jax.enable_x64`, so offsets of edges would be wrong.
    """
    if device is None and computes_on_cpu():
        return tree
    with jax.enable_x64(True):
        return jax.device_put(tree, default_device() if device is None else device)


def find_devices(text: str) -> list[Any]:
    """The devices of this process that `text` names: `"gpu"`, `"tpu"` or `"cpu"` the first of
    that kind, `"gpu:1,3"` those of these numbers, `"gpu:all"` all of them; `"auto"` the first
    that JAX found, or the one that `jax.default_device` names. Raises `InputError`."""
    if not text:
        raise InputError("a device must have a name", repr(text), "Write auto, cpu or gpu.")
    if text == "auto":
        chosen = getattr(jax.config, "jax_default_device", None)
        named = chosen is not None and not isinstance(chosen, str)  # text is of `on_host`
        return [chosen if named else jax.local_devices()[0]]
    kind, colon, numbers = text.partition(":")
    try:
        there = jax.local_devices(backend=kind)
    except RuntimeError:
        there = []
    if not there:
        raise InputError(
            "a device must be one that JAX finds here: " + ", ".join(_kinds()),
            repr(text),
            "Choose one of these, or install JAX for the other: pip install 'jax[cuda13]'.",
        )
    if numbers == "all":
        return list(there)
    wanted = numbers.split(",") if colon else ["0"]
    known = {str(number): device for number, device in enumerate(there)}
    if unknown := [number for number in wanted if number not in known]:
        raise InputError(
            f"a device's number must be one of {', '.join(known)}, or all",
            f"{unknown[0]!r} in {text!r}",
            f"Write {kind}:0, or several numbers with commas.",
        )
    if len(set(wanted)) < len(wanted):
        raise InputError("each device must be named once", repr(text), "Name it once.")
    return [known[number] for number in wanted]


def shown(devices: Sequence[Any]) -> str:
    """The devices as messages name them, such as `2 x NVIDIA H100`."""
    kinds = [device.device_kind for device in devices]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    return ", ".join(f"{n} x {kind}" if n > 1 else kind for kind, n in counts.items())


def _kinds() -> list[str]:
    found = []
    for kind in ("gpu", "tpu", "cpu"):
        try:
            found += [f"{kind}:{n}" for n, _ in enumerate(jax.local_devices(backend=kind))]
        except RuntimeError:
            continue
    return found
