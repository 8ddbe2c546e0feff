#!/usr/bin/env bash
# One would guess: a flag of XLA that a later patch release no longer has is ignored, with a
# warning, or at least raises an error in Python, as an unknown option of JAX does.
#
# What happens: the process ends while JAX looks for its first device. No exception can be caught,
# and nothing names JAX. jaxlib 0.11.0 takes `--xla_cpu_use_fusion_emitters=false`, which made
# programs compile in a third of the time. jaxlib 0.11.2, of the same minor version, does not know
# the flag any more. A job script that sets XLA_FLAGS thus stops working with a patch release.
#
# Seen on 2026-11-28, Python 3.13.0, Linux x86-64:
#   jaxlib 0.11.0: status 0, [2.0]
#   jaxlib 0.11.2: status 1, "Unknown flag in XLA_FLAGS: --xla_cpu_use_fusion_emitters=false"
#   jaxlib 0.12.0.1: the same as 0.11.2
#
# What jgs does: its tests set this flag only for a jaxlib that has it (tests/programs.py).
set -euo pipefail
python=${PYTHON:-python3.13}  # 3.12 or later
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
program='
import jax
try:
    print("jaxlib", jax.lib.__version__, (jax.numpy.ones(1) + 1).tolist())
except BaseException as error:
    print("caught", type(error).__name__)
'
for version in 0.11.0 0.11.2; do
  "$folder/env/bin/pip" install --quiet "jax==$version" "jaxlib==$version"
  status=0
  XLA_FLAGS=--xla_cpu_use_fusion_emitters=false JAX_PLATFORMS=cpu \
    "$folder/env/bin/python" -c "$program" > "$folder/$version" 2>&1 || status=$?
  echo "jaxlib $version: status $status: $(tail -n 1 "$folder/$version")"
  echo "$status" > "$folder/$version.status"
done
[ "$(cat "$folder/0.11.0.status")" = 0 ] || { echo "changed: 0.11.0 refuses the flag"; exit 1; }
[ "$(cat "$folder/0.11.2.status")" != 0 ] || { echo "changed: 0.11.2 takes the flag"; exit 1; }
grep -q "Unknown flag in XLA_FLAGS" "$folder/0.11.2" || { echo "changed: another message"; exit 1; }
! grep -q caught "$folder/0.11.2" || { echo "changed: an exception"; exit 1; }
