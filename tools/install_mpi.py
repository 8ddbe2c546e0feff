"""Install MPI into this virtual environment: `VENV/bin/python tools/install_mpi.py`.

MPICH comes as a wheel. mpi4jax is compiled against it, which needs `mpicc`, Python's headers
and, for GPUs, a CUDA toolkit. If the headers are missing, they come from Debian's package,
without root. If that fails too, the last line says what to install. jgs works without MPI.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

BIN = Path(sys.prefix) / "bin"


def pip_install(*packages: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(command, check=True, env=os.environ | environment)


def header_folders(folder: Path) -> list[Path]:
    """The folders of Python.h, taken from Debian's package into `folder`.

    None are needed where the compiler finds Python.h itself.
    """
    if (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return []
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    try:
        subprocess.run(
            ["apt-get", "download", "--quiet", f"lib{version}-dev"], cwd=folder, check=True
        )
        (package,) = folder.glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit("MPI: Python.h is missing, so mpi4jax is not installed: install python3-dev")
    return [folder / "usr" / "include" / version, folder / "usr" / "include"]


def cuda_path() -> str | None:
    """The root of the CUDA toolkit; None without one.

    mpi4jax assumes that it is the parent of `nvcc`'s folder, and fails where `nvcc` on the PATH
    is a mere script.
    """
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).parents[1], "/usr/local/cuda"]
    found = [r for r in roots if r and (Path(r) / "include" / "cuda_runtime.h").is_file()]
    return str(found[0]) if found else None


def main() -> None:
    pip_install("mpich", "mpi4py")
    with tempfile.TemporaryDirectory() as folder:
        paths = [*map(str, header_folders(Path(folder))), os.environ.get("CPATH", "")]
        environment = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "CPATH": os.pathsep.join(filter(None, paths)),
        }
        # `folder` has no toolkit: with it mpi4jax is built for CPUs alone.
        toolkits = [p for p in (cuda_path(), folder) if p]
        for toolkit in toolkits:
            try:
                return pip_install("mpi4jax>=0.9.1", CUDA_PATH=toolkit, **environment)
            except subprocess.CalledProcessError:
                print(f"mpi4jax does not build with CUDA_PATH={toolkit}", file=sys.stderr)
    sys.exit("MPI: mpi4jax is not installed (see above)")


try:
    main()
except subprocess.CalledProcessError as error:
    sys.exit(f"MPI is not installed: {error}")
