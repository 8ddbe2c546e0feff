"""Runs commands as one of several ranks, one after the other. A JSON file has each command's
name and the words of each rank: `train` or `predict`, and its arguments. Among these may be a
setting of JAX that is switched on meanwhile, and `no_kernels`.

`check_commands.py CASES FOLDER` writes each command's output and exit status to
`FOLDER/CASE-RANK.{out,err,status}`.
"""

import json
import os
import sys
from pathlib import Path

import jax

from jgs import kernels
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train

if __name__ == "__main__":
    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    rank, available = int(os.environ["PMI_RANK"]), kernels._AVAILABLE
    for case, each in cases.items():
        place, (command, *words) = folder / f"{case}-{rank}", each[rank]
        for stream, suffix in ((1, ".out"), (2, ".err")):
            file = os.open(place.with_suffix(suffix), os.O_CREAT | os.O_WRONLY)
            os.dup2(file, stream)
            os.close(file)
        settings = [word for word in words if word.startswith("jax_")]
        for setting in settings:
            jax.config.update(setting, True)
        kernels._AVAILABLE = available and "no_kernels" not in words
        argv = [word for word in words if word not in (*settings, "no_kernels")]
        status = {"train": train, "predict": predict}[command](argv)
        for setting in settings:
            jax.config.update(setting, False)
        sys.stdout.flush()
        place.with_suffix(".status").write_text(str(status))
