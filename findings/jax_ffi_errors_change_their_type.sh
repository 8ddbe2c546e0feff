#!/usr/bin/env bash
# One would guess: a function of one's own that JAX calls by its foreign function interface says what
# is wrong with an error code, and Python gets the same exception from every call of the program.
#
# What happens: the first call of a jitted program decides. If it was wrong, this and every later wrong
# call raise jax.errors.JaxRuntimeError, with the code at the begin of the text. If it was right, later
# wrong calls raise ValueError, whatever the code is. Neither class is derived from the other, so
# `except jax.errors.JaxRuntimeError` around a training loop misses what goes wrong after a good start.
#
# Seen on 2026-12-01, jax 0.10.2 and jaxlib 0.10.2, Python 3.11, CPU:
#   INVALID_ARGUMENT, wrong first: JaxRuntimeError, right, JaxRuntimeError, JaxRuntimeError
#   INVALID_ARGUMENT, right first: right, ValueError, ValueError, right
#   OUT_OF_RANGE, wrong first: JaxRuntimeError, right, JaxRuntimeError, JaxRuntimeError
#   OUT_OF_RANGE, right first: right, ValueError, ValueError, right
#   INTERNAL, wrong first: JaxRuntimeError, right, JaxRuntimeError, JaxRuntimeError
#   INTERNAL, right first: right, ValueError, ValueError, right
#
# What jgs does: its docstrings name both classes, and its tests take both.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2
cat > "$folder/refuse.cc" <<'PROGRAM'
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error Refuse(int64_t code, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  y->typed_data()[0] = x.typed_data()[0];
  if (x.typed_data()[0] >= 0) return ffi::Error::Success();
  return ffi::Error(static_cast<ffi::ErrorCode>(code), "numbers must not be negative");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(RefuseHandler, Refuse,
                              ffi::Ffi::Bind()
                                  .Attr<int64_t>("code")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
PROGRAM
include=$("$folder/env/bin/python" -c "import jax; print(jax.ffi.include_dir())")
c++ -std=c++17 -O1 -shared -fPIC -I "$include" "$folder/refuse.cc" -o "$folder/refuse.so"
cd "$folder"
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PROGRAM'
import ctypes

import jax
import numpy as np

print("jax", jax.__version__)
library = ctypes.CDLL("./refuse.so")
jax.ffi.register_ffi_target("refuse", jax.ffi.pycapsule(library.RefuseHandler), platform="cpu")
codes = {"INVALID_ARGUMENT": 3, "OUT_OF_RANGE": 11, "INTERNAL": 13}


def types(code, values):
    call = jax.ffi.ffi_call("refuse", jax.ShapeDtypeStruct((1,), np.float32))
    run = jax.jit(lambda x: call(x, code=np.int64(code)))
    found = []
    for value in values:
        try:
            jax.block_until_ready(run(np.float32([value])))
            found.append("right")
        except Exception as error:
            found.append(type(error).__name__)
    return ", ".join(found)


orders = {"wrong first": (-1, 1, -1, -1), "right first": (1, -1, -1, 1)}
found = {
    (name, order): types(code, values)
    for name, code in codes.items()
    for order, values in orders.items()
}
for (name, order), each in found.items():
    print(f"{name}, {order}: {each}")
wanted = {
    "wrong first": "JaxRuntimeError, right, JaxRuntimeError, JaxRuntimeError",
    "right first": "right, ValueError, ValueError, right",
}
assert all(each == wanted[order] for (_, order), each in found.items()), "it has changed"
PROGRAM
