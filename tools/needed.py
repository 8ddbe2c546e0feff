"""Print what jgs needs, as pyproject.toml says it, a requirement a line.

`python3 tools/needed.py EXTRA...` prints what jgs itself and the named extras need.
"""

import sys
import tomllib
from pathlib import Path


def needed(extras: list[str]) -> list[str]:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    of_extras = (project["optional-dependencies"][extra] for extra in extras)
    return sum(of_extras, project["dependencies"])


if __name__ == "__main__":
    print("\n".join(needed(sys.argv[1:])))
