"""Python runs this first in processes with this folder in PYTHONPATH: all keep their programs.

JAX has process 0 alone keep what it compiles. The programs of the other processes name other
devices, so these processes would compile all of them in each test.

They search less often for cycles, as the commands and the tests' own processes do.
"""

import gc
import importlib.util
import sys
from types import SimpleNamespace


def _change(module):
    # What it asks for the number of the process before it writes a program.
    alone = SimpleNamespace(process_id=0, client=None)
    module.distributed = SimpleNamespace(global_state=alone)


class _Finder:
    @staticmethod
    def find_spec(name, *_):
        if name != "jax._src.compiler":
            return None
        sys.meta_path.remove(_Finder)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            _change(module)

        spec.loader.exec_module = execute_and_change
        return spec


if compiler := sys.modules.get("jax._src.compiler"):  # a fork (tests/forks.py)
    _change(compiler)
else:
    sys.meta_path.insert(0, _Finder)
gc.set_threshold(50_000, *gc.get_threshold()[1:])
