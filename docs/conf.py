"""How Sphinx builds the pages of this folder: `make docs`.

Docstrings are plain text with Markdown's backticks and lists. `to_rst` makes of them what
Sphinx reads.
"""

import re

import jgs

project = "jgs"
version = release = jgs.__version__
copyright = "the authors of jgs"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"jgs {release}"
html_copy_source = False
html_static_path = ["images"]
exclude_patterns = ["images"]
suppress_warnings = ["ref.python"]  # a class has a name here and one where it is written
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "alphabetical"
autodoc_default_options = {"members": True, "imported-members": True}
add_module_names = False
python_display_short_literal_types = True
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

_ENTRY = re.compile(r"  (?! )([^`:]+?): (.*)")


def to_rst(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText.

    Of a heading such as "Args:" and the indented entries below it, "name: what it is", it makes
    a list; of what else is indented, code. Backticks are code; no other character is special.
    """
    made: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        block = at + 1
        while block < len(lines) and (lines[block].startswith("  ") or not lines[block]):
            block += 1
        indented = [text for text in lines[at + 1 : block] if text]
        if _is_heading(lines, at):
            made += ["", f"**{line[:-1]}**" if "`" not in line else _plain(line), ""]
            entry: list[str] = []
            for text in indented:
                if found := _ENTRY.match(text):
                    made += [_item(entry)] if entry else []
                    entry = [f"`{found[1]}`: {found[2]}"]
                else:
                    entry.append(text.strip())
            made += [_item(entry), ""]
            at = block
        elif line.startswith("    ") and (at == 0 or not lines[at - 1]):
            made += ["::", ""]
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at]):
                made.append(lines[at])
                at += 1
            made.append("")
        else:
            text = [line]
            while line and at + 1 < len(lines) and lines[at + 1] and not _begins(lines, at + 1):
                at += 1
                text.append(lines[at])
            item = re.match(r"(- |\d+\. )", text[0])
            joined = _plain(" ".join([text[0], *(t.strip() for t in text[1:])]))
            # A list begins after an empty line, also where the text goes right on to it.
            if item and made and made[-1] and not re.match(r"(- |\d+\. )", made[-1]):
                made.append("")
            made.append(joined)
            at += 1
    return made


def _item(words: list[str]) -> str:
    return f"* {_plain(' '.join(words))}"


def _is_heading(lines: list[str], at: int) -> bool:
    """Whether what the line says is followed by entries, or by an indented text."""
    after = lines[at + 1] if at + 1 < len(lines) else ""
    return bool(re.match(r"\w.*:$", lines[at]) and re.match(r"  \S", after))


def _begins(lines: list[str], at: int) -> bool:
    """Whether a list's item, or entries with their heading, begin in a line."""
    return bool(re.match(r"(- |\d+\. )", lines[at])) or _is_heading(lines, at)


def _plain(text: str) -> str:
    """Code in double backticks; outside of it nothing is special but a list's mark."""
    pieces = re.split(r"(`+[^`]+`+)", text)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = re.sub(r"([*|_`\\])", r"\\\1", piece)
    for i in range(1, len(pieces), 2):
        # Code ends where no letter follows it; "\\ " is nothing, as a word's end.
        pieces[i] = f"\\ ``{pieces[i].strip('`')}``\\ "
    return "".join(pieces).strip()


def setup(app):
    def process(app, what, name, thing, options, lines):
        lines[:] = to_rst(list(lines))

    app.connect("autodoc-process-docstring", process)
