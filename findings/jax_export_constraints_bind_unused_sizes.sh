#!/usr/bin/env bash
# One would guess: a model that is exported as several programs shares one SymbolicScope, which says
# once what holds of its sizes. A program in whose arguments a size does not occur is not concerned by
# what the scope says of that size.
#
# What happens: jax.export refuses such a program while it is exported, with an error of the module for
# shapes that names the size and not the constraint. A size without a constraint may stay unused, and
# one that is constrained and used is taken. So each program needs a scope of its own, with the
# constraints of its own sizes.
#
# Seen on 2026-11-30, jax 0.10.2 (and 0.12.0.1 on Python 3.13, the same):
#   no constraint: exported
#   of the used size: exported
#   of the unused size: UnexpectedDimVar
#   of both: UnexpectedDimVar
#
# What jgs does: each program of an artifact has a scope with the sizes of its own arguments.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2
"$folder/env/bin/python" - <<'PROGRAM'
import jax
import jax.numpy as jnp
from jax import export

print("jax", jax.__version__)
scopes = {
    "no constraint": [],
    "of the used size": ["used >= 2"],
    "of the unused size": ["other >= 2"],
    "of both": ["used <= other"],
}
found = {}
for name, constraints in scopes.items():
    scope = export.SymbolicScope(constraints)
    used, _ = export.symbolic_shape("used, other", scope=scope)
    try:
        export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((used,), jnp.float32))
        found[name] = "exported"
    except Exception as error:
        found[name] = type(error).__name__
    print(f"{name}: {found[name]}")
wanted = ["exported", "exported", "UnexpectedDimVar", "UnexpectedDimVar"]
assert list(found.values()) == wanted, "the behaviour has changed"
PROGRAM
