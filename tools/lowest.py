"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

`python3 tools/lowest.py EXTRA...` prints those of jgs itself and of the named extras.
"""

import re
import sys
import tomllib
from pathlib import Path


def main() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    needed = project["dependencies"]
    for extra in sys.argv[1:]:
        needed = needed + project["optional-dependencies"][extra]
    for name, version in re.findall(r"^([\w-]+)>=([\w.]+)$", "\n".join(needed), re.MULTILINE):
        print(f"{name}=={version}")


main()
