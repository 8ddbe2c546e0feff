"""The console scripts: `jgs train` and `jgs-train` run what `python -m jgs.train` does.

Each runs that package's `__main__` itself, which lets Ctrl-C end the process before its slow
imports begin.
"""

import runpy
import sys
from functools import partial

from jgs import interrupts

COMMANDS = {
    "train": "train a graph network or embeddings",
    "predict": "write the classes or embeddings that a trained run predicts",
    "report": "write a page about a run: curves, mistakes, calibration, examples",
    "export": "write a trained model as one artifact, to serve it",
    "serve": "answer over HTTP of an exported model, of a graph that may grow",
    "replay": "compute the answers of a server again, and compare the bits",
    "partition": "split a data set into parts, one for each rank",
    "launch": "train on several hosts, reached by ssh",
    "data": "list, fetch, describe or build data sets",
    "audit": "look for leaks in a task of a database, and in what is drawn",
    "doctor": "check this installation, one line for each thing",
    "completion": "print the completions of a shell: jgs completion bash|zsh|tcsh",
}
_HELP = """\
usage: jgs COMMAND [FLAGS]

Mini-batch graph sampling and distributed GNN training for JAX.

{commands}

  jgs COMMAND --help         the flags of a command
  jgs --version              the version

A first run, on a generated graph: jgs train
"""


def main() -> int:
    """The command `jgs`; returns its exit status."""
    interrupts.end_at_once()  # before the imports that take their time
    name, *flags = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        lines = (f"  {each:<12} {text}" for each, text in COMMANDS.items())
        print(_HELP.format(commands="\n".join(lines)), end="")
        return 0
    from jgs import __version__, command, errors  # a slow import, for --help and Ctrl-C

    if name == "--version":
        print(f"jgs {__version__}")
        return 0
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        near = errors.nearest(name, COMMANDS)
        command.say(f"error: the command must be one of {known}; got {name!r}. {near}")
        return 2
    command.PREFIX = "jgs "
    sys.argv[1:] = flags
    _run(f"jgs.{name}")
    return 0


_run = partial(runpy.run_module, run_name="__main__", alter_sys=True)
train = partial(_run, "jgs.train")
partition = partial(_run, "jgs.partition")
predict = partial(_run, "jgs.predict")
launch = partial(_run, "jgs.launch")
