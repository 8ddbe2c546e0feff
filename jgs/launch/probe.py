"""What `jgs.launch` asks a host. The host's Python reads this file from standard input.

So a host without jgs can answer that it has none. `main` is called with the questions and
prints one line: `MARK` and a JSON object. Shells may print lines of their own.
"""

import hashlib
import json
import os
import platform
import shutil
import socket
from importlib import metadata

MARK = "jgs.launch: "


def main(directory, parts, digest, files):
    """Prints a JSON object that describes this host.

    Args:
      directory: the ranks' working directory, which is made where it is missing.
      parts: the folder of the parts, or None.
      digest: the digest that the manifest of the parts must have.
      files: for each path within `parts` its size in bytes and its time of change in seconds.

    Fields of the object:
      versions: those of Python, jgs, JAX, jaxlib and mpi4jax; None for one not installed.
      rsync: whether rsync is installed.
      port: a port that is free.
      connection: the caller's address and this host's, as its ssh server sees them, or None.
      lacks: which of `files` are missing or differ.
      other: whether the folder holds other parts.
      problem: why there can be no such working directory, or None.
    """
    problem = None
    try:
        os.makedirs(directory, exist_ok=True)
        os.chdir(directory)
    except OSError as error:
        problem = str(error)
    versions: dict = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in ("jax", "jaxlib", "mpi4jax"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    try:
        import jgs  # only now: a host without jgs says so

        versions["jgs"] = jgs.__version__
    except ImportError:
        versions["jgs"] = None
    words = os.environ.get("SSH_CONNECTION", "").split()
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    there = None
    if parts is not None:
        try:
            with open(os.path.join(parts, "manifest.json"), "rb") as manifest:
                there = hashlib.sha256(manifest.read()).hexdigest()
        except OSError:
            pass  # the file is to be copied
    said = {
        "problem": problem,
        "versions": versions,
        "rsync": shutil.which("rsync") is not None,
        "port": port,
        "connection": [words[0], words[2]] if len(words) == 4 else None,
        "lacks": sorted(name for name, at in files.items() if state(parts, name) != at),
        "other": there not in (None, digest),
    }
    print("\n" + MARK + json.dumps(said), flush=True)


def state(folder, name):
    """A file's size and time of change, as rsync compares them; None where there is no file."""
    try:
        found = os.stat(os.path.join(folder, name))
    except OSError:
        return None
    return [found.st_size, int(found.st_mtime)]
