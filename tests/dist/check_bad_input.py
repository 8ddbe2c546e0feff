"""Runs `jgs.train` as one of several ranks, once for each case in a JSON file. A case has the
arguments of each rank. An argument in front that is a setting of JAX is switched on meanwhile.

`check_bad_input.py CASES FOLDER` writes each command's output and exit status to
`FOLDER/CASE-RANK.{out,err,status}`.
"""

import json
import os
import sys
from pathlib import Path

import jax

from jgs.train.__main__ import main

if __name__ == "__main__":
    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    rank = int(os.environ["PMI_RANK"])
    for case, each in cases.items():
        place = folder / f"{case}-{rank}"
        for stream, suffix in ((1, ".out"), (2, ".err")):
            file = os.open(place.with_suffix(suffix), os.O_CREAT | os.O_WRONLY)
            os.dup2(file, stream)
            os.close(file)
        settings = [word for word in each[rank] if word.startswith("jax_")]
        for setting in settings:
            jax.config.update(setting, True)
        status = main([word for word in each[rank] if word not in settings])
        for setting in settings:
            jax.config.update(setting, False)
        sys.stdout.flush()
        place.with_suffix(".status").write_text(str(status))
