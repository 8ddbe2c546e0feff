"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

`python3 tools/lowest.py EXTRA...` prints those of jgs itself and of the named extras.
"""

import re
import sys

from needed import needed

text = "\n".join(needed(sys.argv[1:]))
for name, version in re.findall(r"^([\w-]+)>=([\w.]+)$", text, re.MULTILINE):
    print(f"{name}=={version}")
