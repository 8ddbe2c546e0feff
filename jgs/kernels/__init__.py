"""The compiled kernels: this is the only place that finds and registers them.

`available()` says whether they can be used. They are a plain shared library of XLA FFI
handlers. Each has a plain form in `jax.numpy` that computes the same and runs on any device, so
without the library jgs is only slower. A second library has those for NVIDIA GPUs, where it was
built. Five environment variables are read at import:

  JGS_KERNELS: `off` uses the plain forms only; a path loads that library instead.
  JGS_CUDA: `1` uses the kernels for NVIDIA GPUs; a path loads that library instead.
  JGS_NUM_THREADS: the largest number of threads of a kernel (default: all of XLA's pool).
  JGS_FEATURE_PARTS: into how many parts sums over edges split the features (`feature_parts.h`;
    default: by a rule of sizes and cache).
  JGS_MAX_ISA: 1 for AVX2 at most, 0 for neither AVX2 nor AVX-512 (default: what the CPU has).
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from jgs.devices import computes_on_cpu
from jgs.errors import InputError, refusing

_LIBRARY = "libjgs_kernels.so"
# The XLA FFI handlers of the host's CPU. `register` makes known those of other platforms.
_NAMES = (
    *("sample_neighbors", "sample_labor", "walk", "frontier", "visits", "push", "induced"),
    "relabel",
    *("aggregate", "aggregate_grad", "aggregate_grad_weight"),
    *("edge_scores", "edge_scores_grad", "edge_softmax", "edge_softmax_grad"),
    *("gather", "gather_codes", "gather_sparse"),
    *("gather_aggregate", "gather_aggregate_tables", "gather_aggregate_sparse"),
    *("gather_aggregate_codes", "gather_aggregate_code_tables"),
    *("linear", "linear_grad", "skipgram"),
    *("runs", "relation_linear", "relation_linear_grad"),
    *("route", "route_rows", "merge_rows", "put_rows", "equal_rows"),
    *("smallest_ranks", "expand", "extract", "rearrange", "places", "distinct_nodes"),
    *("exact_sum", "sum_chain", "count_rows", "edge_inner", "running_weights"),
    "project",
    *("context_hops", "context_tree", "context_visits"),
)
# The symbol of each target: `jgs_edge_scores` is `JgsEdgeScores`.
HANDLERS = {f"jgs_{name}": "Jgs" + name.title().replace("_", "") for name in _NAMES}

# What jgs_sample_neighbors does too, under its own name: a GPU's kernel draws no other way.
HANDLERS["jgs_sample_uniform"] = HANDLERS["jgs_sample_neighbors"]

# The handlers for NVIDIA GPUs, of device_ffi.cu.
_CUDA_LIBRARY = "libjgs_cuda.so"
_CUDA_HANDLERS = {
    "jgs_sample_uniform": "JgsDeviceSampleUniform",
    "jgs_aggregate": "JgsDeviceAggregate",
    "jgs_aggregate_grad": "JgsDeviceAggregateGrad",
    "jgs_aggregate_grad_weight": "JgsDeviceAggregateGradWeight",
}

# Plain functions that Python calls outside XLA, with the addresses of NumPy arrays.
FUNCTIONS = (
    *("JgsGroupCount", "JgsGroupSpread", "JgsGroupSort", "JgsGroupResult"),
    "JgsInsert",
    "JgsMoveRows",
    "JgsRelationRuns",
    "JgsSetFeatureParts",
    *("JgsPoolReset", "JgsPoolSee", "JgsPoolTake", "JgsReadRows", "JgsCopyRows"),
    "JgsReadAhead",
)

_MOST = 4096  # threads, and parts
_REGISTERED: dict[str, set[str]] = {}  # the targets by platform
_INSTRUCTION_SETS = ("baseline", "AVX2", "AVX-512")  # in the order of isa.h


def _from_environment(name: str, least: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return 0
    if not text.isdecimal() or not least <= int(text) <= _MOST:
        raise InputError(
            f"{name} must be an integer from {least} to {_MOST}", repr(text), "Unset it?"
        )
    return int(text)


def _find() -> Path | None:
    if _WANTED.lower() == "off":
        return None
    if _WANTED:
        if not Path(_WANTED).is_file():
            raise InputError(
                "JGS_KERNELS must be `off` or the path of a kernel library",
                repr(_WANTED),
                "Unset it to use the installed one.",
            )
        return Path(_WANTED)
    return _installed(_LIBRARY)


def _installed(library: str) -> Path | None:
    for folder in __path__:  # an editable install has two folders: the source and the build
        if (path := Path(folder) / library).is_file():
            return path
    return None


def _register() -> ctypes.CDLL | None:
    if _PATH is None:
        if not _WANTED:
            logging.getLogger("jgs").warning(
                "the compiled kernels are not installed: jgs runs in pure JAX, slower. "
                "To build them, install a C++ compiler and reinstall jgs."
            )
        return None
    rule = f"{_PATH} must be the kernel library of this version of jgs"
    again = "Reinstall jgs, or set JGS_KERNELS=off to do without."
    remedy = "Correct or unset JGS_KERNELS." if _WANTED else again
    with refusing((OSError, AttributeError), rule, remedy):
        library = ctypes.CDLL(str(_PATH))
        symbols = {s: getattr(library, s) for s in (*HANDLERS.values(), *FUNCTIONS)}
    for target, symbol in HANDLERS.items():
        register(target, jax.ffi.pycapsule(symbols[symbol]), "cpu")
    symbols["JgsSetFeatureParts"](ctypes.c_int64(_from_environment("JGS_FEATURE_PARTS", 0)))
    return library


def _register_cuda() -> None:
    wanted = os.environ.get("JGS_CUDA", "0")
    if wanted in ("", "0", "off") or not _AVAILABLE:
        return
    path = _installed(_CUDA_LIBRARY) if wanted == "1" else Path(wanted)
    try:
        library = ctypes.CDLL(str((path or Path(_CUDA_LIBRARY)).absolute()))
        symbols = {target: getattr(library, s) for target, s in _CUDA_HANDLERS.items()}
    except (OSError, AttributeError) as error:
        raise InputError(
            "JGS_CUDA must be 1 where jgs was built with a CUDA compiler, or the path of its "
            f"library {_CUDA_LIBRARY}",
            f"{wanted!r}: {error}",
            "Unset it to use plain JAX on GPUs, or build the library (docs/guides/devices.md).",
        ) from None
    for target, symbol in symbols.items():
        register(target, jax.ffi.pycapsule(symbol), "CUDA")


def register(target: str, handler: Any, platform: str) -> None:
    """Makes known the handler of a target of `HANDLERS` on a platform, "cpu" or "CUDA".

    It is all that a kernel of another platform needs: callers name the operation, and its plain
    form is used where a handler is missing (`jgs.kernels.call`). `handler` is what
    `jax.ffi.register_ffi_target` takes. Call it before anything is traced.
    """
    jax.ffi.register_ffi_target(target, handler, platform=platform)
    _REGISTERED.setdefault(platform.lower(), set()).add(target)


def registered(platform: str) -> set[str]:
    """The targets that have a handler on a platform, as JAX names it: "cpu", "cuda"."""
    return _REGISTERED.get(platform, set())


def other_platforms() -> list[str]:
    """The platforms beside the CPU that have handlers."""
    return [platform for platform in _REGISTERED if platform != "cpu"]


NUM_THREADS = _from_environment("JGS_NUM_THREADS", 1)  # 0: as many as are in XLA's pool
if (_isa := os.environ.get("JGS_MAX_ISA", "2")) not in ("0", "1", "2"):  # isa.h reads it
    raise InputError("JGS_MAX_ISA must be 0, 1 or 2", repr(_isa), "Unset it?")
_WANTED = os.environ.get("JGS_KERNELS", "")
_PATH = _find()
_LOADED = _register()
_AVAILABLE = _LOADED is not None
_register_cuda()


def library() -> Path | None:
    """The file of the compiled kernels in use; None if there are none."""
    return _PATH if _AVAILABLE else None


def instruction_set() -> str:
    """The instruction set that the kernels use on this CPU. The kernels must be available."""
    assert _LOADED is not None
    return _INSTRUCTION_SETS[_LOADED.JgsInstructionSet()]


# JAX traces a function anew where this value differs, also inside of another function.
_HOST_ONLY = jax.make_user_context(False)
_PLAIN = jax.make_user_context(False)


def this_host_only(wanted: bool = True) -> AbstractContextManager[None]:
    """A block in which this thread traces for this host alone.

    Where JAX's default device is a CPU, kernels are traced there without their plain forms,
    which saves time and memory. Such a trace cannot be lowered for another platform. It is not
    reused outside of such a block. Where `wanted` is False, the plain forms are traced too.
    """
    return _HOST_ONLY(wanted)


def host_only() -> bool:
    """Whether this thread is in a `this_host_only`, on a CPU."""
    return _HOST_ONLY.value and computes_on_cpu()


def plain(wanted: bool = True) -> AbstractContextManager[None]:
    """A block in which this thread traces the plain forms, as if there were no kernels. Such a
    trace is not reused outside of such a block."""
    return _PLAIN(wanted)


def function(symbol: str, result: Any) -> Any:
    """One of `FUNCTIONS`, called through `ctypes`, which lets other threads run meanwhile.
    `result` is the `ctypes` type of its result, or None. The kernels must be `available()`."""
    found = getattr(_LOADED, symbol)
    found.restype = result
    return found


def available() -> bool:
    """Whether the compiled kernels are in use on CPU devices."""
    return _AVAILABLE and not _PLAIN.value
