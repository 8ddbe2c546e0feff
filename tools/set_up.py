"""Install jgs, and what training needs, into this virtual environment.

`VENV/bin/python tools/set_up.py` installs jgs as it lies here (editable). The kernels are
compiled while packages are fetched. Without a C++ compiler a line says so: jgs runs in plain
JAX then. Each step prints its seconds. What only compiling needs goes again: when a kernel has
changed, `make` fetches CMake anew, and makes the precompiled header anew.
"""

import subprocess
import sys
import time
from pathlib import Path

from needed import needed

BUILD = ["cmake", "ninja", "scikit-build-core>=0.10", "jaxlib>=0.10.2"]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
KERNELS = "import sys, jgs.kernels; sys.exit(not jgs.kernels.available())"


def say(done: str, began: float) -> None:
    print(f"{done}: {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    began = time.perf_counter()
    if subprocess.run([*PIP, *BUILD]).returncode:
        sys.exit("pip could not install what builds the kernels: see above")
    say("installed what builds the kernels", began)
    began = time.perf_counter()
    alone = ["--no-build-isolation", "--no-deps", "--editable", "."]
    building = subprocess.Popen(
        [*PIP, *alone], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if subprocess.run([*PIP, *needed([])]).returncode:
        building.kill()
        sys.exit("pip could not install what jgs needs: see above")
    say("installed what jgs needs", began)
    output, _ = building.communicate()
    if building.returncode:
        sys.exit(f"pip could not install jgs:\n{output.decode()}")
    subprocess.run([*PIP[:3], "uninstall", "--quiet", "--yes", "cmake"])
    for header in Path("build").rglob("*.gch"):
        header.unlink()
    if subprocess.run([sys.executable, "-c", KERNELS], stderr=subprocess.DEVNULL).returncode:
        print("warning: no kernels were built, so jgs runs in plain JAX (see: jgs doctor)")
    else:
        say("compiled the kernels meanwhile", began)


main()
