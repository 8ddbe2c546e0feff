"""Another revision of jgs, beside the installed one in the same process.

Its package has another name, and so do its FFI targets and the C++ namespace of its kernels.
Thus it is called through its own Python side, whatever operands its kernels take.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from unittest import mock

NAME = "jgs_before"
_REPOSITORY = Path(__file__).parents[1]
_LIBRARY = "libjgs_kernels.so"
_OWN = re.compile(r"\bjgs(?![A-Za-z0-9])")  # the package, and the beginning of each FFI target


def load(revision: str, folder: Path) -> ModuleType:
    """The package at a git revision, with its kernels compiled in `folder`, which must stay
    while the package is used. Raises `subprocess.CalledProcessError`."""
    command = ["git", "-C", _REPOSITORY, "archive", revision, "jgs"]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    package = renamed(folder / "jgs", folder)
    build(package / "kernels", folder / "build")
    return imported(package)


def renamed(package: Path, folder: Path) -> Path:
    """A copy of the package in `folder`, under the other name."""
    copy = folder / NAME
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.rglob("*.py"):
        file.write_text(_OWN.sub(NAME, file.read_text()))
    return copy


def build(kernels: Path, folder: Path) -> None:
    """Compiles the kernels into the library beside them, as the installation does. With one
    namespace for both, a library would call inline functions of the other."""
    cmake = [sys.executable, "-m", "cmake"]
    flags = f"{os.environ.get('CXXFLAGS', '')} -Djgs={NAME} -w"  # -w: it has been built before
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS": flags,
        "CMAKE_LIBRARY_OUTPUT_DIRECTORY": kernels,
        "Python_EXECUTABLE": sys.executable,
    }
    make = [*cmake, "-S", kernels, "-B", folder, *(f"-D{n}={v}" for n, v in options.items())]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    make = [*cmake, "--build", folder, "--parallel", str(os.cpu_count())]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    if not (kernels / _LIBRARY).is_file():
        raise FileNotFoundError(kernels / _LIBRARY)


def imported(package: Path) -> ModuleType:
    """The package in this folder, with the kernel library in it."""
    path = [str(package.parent), *sys.path]
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", path):
        os.environ.pop("JGS_KERNELS", None)  # it is for the installed package
        importlib.import_module(f"{package.name}.sampling")
    return sys.modules[package.name]
