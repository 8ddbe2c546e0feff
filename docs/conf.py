"""How Sphinx builds the pages of this folder: `make docs`.

Docstrings are plain text with Markdown's backticks and lists. `to_rst` turns them into the
reStructuredText that Sphinx reads.
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
suppress_warnings = ["ref.python"]  # a class has its public name and that of its module
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "alphabetical"
autodoc_default_options = {"members": True, "imported-members": True}
add_module_names = False
python_display_short_literal_types = True
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

_PIECE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)
_ENTRY = re.compile(r"  (?! )([^`:]+?): (.*)")


def to_rst(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText.

    A heading such as "Args:" with indented entries below it, "name: what it is", becomes a
    list. Other indented text becomes code. Backticks are code; no other character is special.
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
            # A list must begin after an empty line, which a docstring may lack.
            if item and made and made[-1] and not re.match(r"(- |\d+\. )", made[-1]):
                made.append("")
            made.append(joined)
            at += 1
    return made


def _item(words: list[str]) -> str:
    return f"* {_plain(' '.join(words))}"


def _is_heading(lines: list[str], at: int) -> bool:
    """Whether the line `at` is a heading: entries or indented text follow it."""
    after = lines[at + 1] if at + 1 < len(lines) else ""
    return bool(re.match(r"\w.*:$", lines[at]) and re.match(r"  \S", after))


def _begins(lines: list[str], at: int) -> bool:
    """Whether an item of a list, or a heading with entries, begins in the line `at`."""
    return bool(re.match(r"(- |\d+\. )", lines[at])) or _is_heading(lines, at)


def _plain(text: str) -> str:
    """`text` with code in double backticks, and every other special character escaped."""
    pieces = re.split(r"(`+[^`]+`+)", text)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = re.sub(r"([*|_`\\])", r"\\\1", piece)
    for i in range(1, len(pieces), 2):
        # No letter may follow code; "\\ " separates the two and prints nothing.
        pieces[i] = f"\\ ``{pieces[i].strip('`')}``\\ "
    return "".join(pieces).strip()


def without_options(signature: str) -> str:
    """A signature in which `Annotated[T, Option(...)]` is `T`."""
    while found := re.search(r"~?\w+\.Annotated\[", signature):
        kept, depth, at = None, 1, found.end()
        while depth:
            piece = _PIECE.match(signature, at)[0]
            if depth == 1 and piece == "," and kept is None:
                kept = signature[found.end() : at]
            depth += (piece in "([{") - (piece in ")]}")
            at += len(piece)
        signature = signature[: found.start()] + kept + signature[at:]
    return signature


def setup(app):
    def process(app, what, name, thing, options, lines):
        lines[:] = to_rst(list(lines))

    def shorten(app, what, name, thing, options, signature, returned):
        return (without_options(signature), returned) if signature else None

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", shorten)
