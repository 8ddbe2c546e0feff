"""Runs `jgs.train` as one of several ranks, once with each list of arguments in a JSON file.

`check_bad_input.py CASES FOLDER` writes each command's output and exit status to
`FOLDER/CASE-RANK.{out,err,status}`.
"""

import json
import os
import sys
from pathlib import Path

from jgs.train.__main__ import main

if __name__ == "__main__":
    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for case, argv in cases.items():
        place = folder / f"{case}-{os.environ['PMI_RANK']}"
        for stream, suffix in ((1, ".out"), (2, ".err")):
            file = os.open(place.with_suffix(suffix), os.O_CREAT | os.O_WRONLY)
            os.dup2(file, stream)
            os.close(file)
        status = main(argv)
        sys.stdout.flush()
        place.with_suffix(".status").write_text(str(status))
