"""No constructor and no public function has more than 10 arguments."""

import ast
from pathlib import Path

import jgs

MOST = 10
MORE = {
    "build": "names the columns of files",
    "RelGT.__init__": "a model's settings, each a flag",
    "CellTransformer.__init__": "a model's settings, each a flag",
    "export_run": "what an artifact is made for, each a flag",
}
"""Those that have more, and why. Records of data, whose fields they hold, are not counted."""


def functions(node: ast.AST, of: str = ""):
    """The public functions in a file, and the constructors and methods of public classes, each
    with its name and what it is called with."""
    for each in ast.iter_child_nodes(node):
        public = not each.name.startswith("_") if hasattr(each, "name") else False
        if isinstance(each, ast.ClassDef) and public:
            yield from functions(each, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef) and (public or each.name == "__init__"):
            own = each.args
            names = [arg.arg for arg in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
            yield of + each.name, [name for name in names if name not in ("self", "cls")]


def test_no_function_has_too_many_arguments():
    counts = {}
    for path in sorted(Path(jgs.__file__).parent.rglob("*.py")):
        for name, arguments in functions(ast.parse(path.read_text())):
            if len(arguments) > MOST:
                counts[name] = f"{path.name}: {len(arguments)}"
    assert counts.keys() - MORE.keys() == set(), counts
    assert MORE.keys() - counts.keys() == set(), "these have few: remove them here"
