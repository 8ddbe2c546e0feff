"""Time `make train` in a clone of this folder, with an empty home: `python3 first_minute.py`.

It prints what `make train` prints, with the seconds since the beginning, and at the end the
size of what was installed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ("PATH", "LANG", "PIP_", "SSL_", "CXX", "MAKE", "JGS_", "HTTP", "HTTPS", "NO_PROXY")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="jgs-first-minute-") as folder:
        clone, home = Path(folder) / "jgs", Path(folder) / "home"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        home.mkdir()
        own = {k: v for k, v in os.environ.items() if k.upper().startswith(KEPT)}
        own = {k: v for k, v in own.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
        command = ["make", "--no-print-directory", "train", *sys.argv[1:]]
        began = time.perf_counter()
        with subprocess.Popen(
            command,
            cwd=clone,
            env=own | {"HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as made:
            assert made.stdout is not None
            for line in made.stdout:
                print(f"{time.perf_counter() - began:6.1f} s  {line}", end="", flush=True)
        seconds = time.perf_counter() - began
        size = subprocess.check_output(["du", "-sm", clone, home], text=True)
        megabytes = sum(int(line.split()[0]) for line in size.splitlines())
        print(f"{seconds:.0f} s, {megabytes} MB")
        return made.returncode


sys.exit(main())
