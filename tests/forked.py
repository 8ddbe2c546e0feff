"""Runs Python files in forks of a process that has imported JAX, which takes most of a second.

`python forked.py` reads a JSON line for each: the file, its arguments, the folder to run in,
and the file for its output. It prints each one's exit status.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def forks():
    """`run(file, *arguments, cwd)` in this block: the exit status, and all that was said."""
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as parent:

        def run(file, *arguments, cwd):
            said = Path(cwd, "said.txt")
            print(json.dumps([str(file), arguments, str(cwd), str(said)]), file=parent.stdin)
            parent.stdin.flush()
            return int(parent.stdout.readline()), said.read_text()

        yield run
        os.killpg(parent.pid, signal.SIGKILL)  # also a file that hangs


def main() -> None:
    import jax  # noqa: F401

    for line in sys.stdin:
        file, arguments, folder, said = json.loads(line)
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        os.chdir(folder)
        nothing, output = (
            os.open(os.devnull, os.O_RDONLY),
            os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY),
        )
        for stream, opened in enumerate((nothing, output, output)):
            os.dup2(opened, stream)
        sys.argv, sys.path[0] = [file, *arguments], str(Path(file).parent)
        runpy.run_path(file, run_name="__main__")
        return


if __name__ == "__main__":
    main()
