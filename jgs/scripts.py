"""The commands as console scripts: `jgs-train` runs what `python -m jgs.train` does, and so on.

Each runs that very file, which has Ctrl-C end the process before its slow imports begin.
"""

import runpy
from functools import partial

_run = partial(runpy.run_module, run_name="__main__", alter_sys=True)
train = partial(_run, "jgs.train")
partition = partial(_run, "jgs.partition")
plan = partial(_run, "jgs.plan")
predict = partial(_run, "jgs.predict")
launch = partial(_run, "jgs.launch")
