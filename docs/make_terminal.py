"""Draws the pictures of the pages in docs/jobs: `python docs/make_terminal.py`.

The programs and commands of a page run one after the other in an empty folder, in a terminal.
Where a picture `../images/NAME.svg` follows commands, it gets what these wrote; what others
wrote is printed. The folder is called /home/ann in both.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

DOCS = Path(__file__).parent
COLUMNS = 104
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```\n+(?:!\[[^]]*\]\(\.\./images/(\w+)\.svg\))?", re.DOTALL | re.M
)
CURVES = {"predict_links": ("runs/shop/curve.png", "jobs_links_curve.png")}
# Rich's picture of a terminal, without the fonts that it would fetch.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})"
  clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def in_terminal(command: str, folder: Path) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    size = {"COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        ["bash", "-ec", command],
        cwd=folder,
        env=os.environ | size | {"PATH": path},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 1 << 16):
            pieces.append(piece)
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    if process.wait():
        raise RuntimeError(f"{command}\n{b''.join(pieces).decode()}")
    return b"".join(pieces).decode()


def last_shown(written: str) -> list[str]:
    """The lines that a terminal shows in the end. A progress bar moves up and clears lines."""
    lines, at = [""], 0
    for piece in re.split(r"(\x1b\[\d*[AK]|\x1b\[\?\d+[hl]|\r\n|\r|\n)", written):
        if piece.endswith("\n"):
            at += 1
            lines += [""] * (at == len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b["):
            at -= int(piece[2:-1] or 1)
        elif piece.endswith("K") and piece.startswith("\x1b["):
            lines[at] = ""
        elif piece != "\r" and not piece.startswith("\x1b[?"):
            lines[at] += piece
    return lines


def draw(command: str, written: str, path: Path) -> None:
    """The picture of a command and of what it wrote."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for at, line in enumerate(command.rstrip().splitlines()):
        going_on = at and command.splitlines()[at - 1].endswith("\\")
        console.print(Text(("  " if going_on else "$ ") + line.strip(), "bold cyan"))
    for line in last_shown(written.rstrip()):
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis", crop=True)
    title = command.split()[0]
    path.write_text(
        console.export_svg(title=title, theme=MONOKAI, code_format=FORMAT, unique_id=path.stem)
    )


def main() -> None:
    for page in sorted((DOCS / "jobs").glob("*.md")):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for language, text, picture in BLOCK.findall(page.read_text()):
                if language == "python":
                    subprocess.run([sys.executable, "-c", text], cwd=folder, check=True)
                    continue
                written = in_terminal(text, folder).replace(place, "/home/ann")
                if picture:
                    draw(text, written, DOCS / "images" / f"{picture}.svg")
                else:
                    print(text + "\n".join(last_shown(written)))
            if page.stem in CURVES:
                made, name = CURVES[page.stem]
                shutil.copy(folder / made, DOCS / "images" / name)


if __name__ == "__main__":
    main()
