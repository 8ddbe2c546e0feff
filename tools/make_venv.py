"""Make a virtual environment with pip: `python3 make_venv.py FOLDER`.

The system's Python may come without ensurepip (Debian without python3-venv). Then pip is
fetched from the package index that pip itself would use, and checked against its SHA-256.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from pathlib import Path

WHEEL = re.compile(r'href="([^"]*/pip-(\d+(?:\.\d+)*)-py3-none-any\.whl)#sha256=([0-9a-f]{64})')


def fetch_pip(folder: Path) -> Path:
    """The newest pip wheel of the package index (PEP 503), downloaded into `folder`."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    with urllib.request.urlopen(index, timeout=60) as reply:
        found = WHEEL.findall(reply.read().decode())
    if not found:
        sys.exit(f"{index} lists no wheel of pip: install python3-venv, or set PIP_INDEX_URL")
    address, _, checksum = max(found, key=lambda w: [int(n) for n in w[1].split(".")])
    address = urllib.parse.urljoin(index, address)
    path = folder / address.rsplit("/", 1)[1]
    with urllib.request.urlopen(address, timeout=60) as reply:
        path.write_bytes(reply.read())
    if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        sys.exit(f"{address} does not have the checksum that {index} names")
    return path


def main() -> None:
    target = Path(sys.argv[1])
    if sys.version_info < (3, 11):  # noqa: UP036 (any python3 may run this)
        sys.exit(f"jgs needs Python 3.11 or later; this is {sys.version.split()[0]}")
    try:
        import ensurepip  # noqa: F401

        venv.create(target, with_pip=True, clear=True)
    except (ImportError, subprocess.CalledProcessError):
        venv.create(target, with_pip=False, clear=True)
        with tempfile.TemporaryDirectory() as folder:
            wheel = fetch_pip(Path(folder))
            python = target / "bin" / "python"
            command = [python, f"{wheel}/pip", "install", "--no-index", wheel]
            subprocess.run(command, check=True)


main()
