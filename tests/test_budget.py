"""Each room of `jgs/` has at most the lines that CONTRIBUTING grants it."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def granted():
    """Room and lines, from the table of the section "Lines"."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Lines\n")[2]
    rows = re.findall(r"^\| `jgs/(\S*)` \| ([\d,]+) \|$", section.partition("\n## ")[0], re.M)
    return {room.rstrip("/"): int(lines.replace(",", "")) for room, lines in rows}


def test_every_room_keeps_to_its_lines():
    found = Counter()
    for path in (ROOT / "jgs").rglob("*.py"):
        room = path.relative_to(ROOT / "jgs").parts[0]
        found["" if room == path.name else room] += len(path.read_text().splitlines())
    rooms = granted()
    assert rooms.keys() == found.keys()
    assert not {room: n - rooms[room] for room, n in found.items() if n > rooms[room]}
