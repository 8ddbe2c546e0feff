"""Ctrl-C and SIGTERM at any moment: one line, and exit status 130 or 143."""

import gc
import pkgutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from cases import cases

from jgs import command
from jgs.interrupts import WORDS, status_of

TRAIN = ["jgs.train", "--data-options", "num_nodes=400", "num_edges=3000"]
PARTITION = ["jgs.partition", "--dataset", "synthetic", "--parts", "2"]
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def by_module(name):
    return ["-m", name]


def by_script(name):
    """The arguments that start `name` as the script that pip writes does."""
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    module, _, function = scripts[name.replace(".", "-")].partition(":")
    return ["-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


@cases(
    "by, argv, moment, number",
    (by_module, TRAIN, "jgs.interrupts", signal.SIGINT),
    (by_module, TRAIN, "flax.nnx", signal.SIGTERM),
    (by_script, TRAIN, "jgs.command", signal.SIGTERM),
    (by_script, PARTITION, "numpy.dtypes", signal.SIGINT),  # C code prints what is raised
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_signal_among_the_imports(tmp_path, by, argv, moment, number):
    command, *flags = argv
    flags += ["--out" if argv is PARTITION else "--run-dir", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *by(command), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in process.stderr:
                if line.startswith("import time:") and line.split()[-1] == moment:
                    break
            if moment == "jgs.interrupts":  # what is imported next has the handler
                next(process.stderr)
            process.send_signal(number)
            said, err = process.communicate(timeout=240)
        finally:
            process.kill()
    lines = [s for s in err.splitlines() if not s.startswith("import time:")]
    assert process.returncode == status_of(number), err
    assert said == ""
    assert [line.partition(";")[0] for line in lines] == [WORDS[number]]
    assert not any(tmp_path.iterdir())


def test_scripts_run_what_is_there():
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    assert {"jgs", "jgs-train", "jgs-partition", "jgs-predict", "jgs-launch"} == {*scripts}
    assert all(map(callable, map(pkgutil.resolve_name, scripts.values())))


def in_a_collection(number):
    """In a callback of garbage collection, as JAX has one: Python swallows what it raises."""

    def press(phase, _):
        gc.callbacks.remove(press)
        signal.raise_signal(number)

    gc.callbacks.append(press)
    gc.collect()


def in_a_destructor(number):
    class Pressing:
        def __del__(self):
            signal.raise_signal(number)

    Pressing()


def suppressed(number):
    with suppress(BaseException):
        signal.raise_signal(number)


def made_another(number):
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise ValueError("a callback failed") from None


def in_an_import(number):
    """The import ends before the interrupt takes effect."""
    import pressing  # written by the test

    assert pressing.ended


def twice(number):
    """As launchers send SIGTERM: the handler of the first signal must not notice the second."""
    try:
        signal.raise_signal(number)
    finally:
        if number == signal.SIGTERM:
            signal.raise_signal(number)


WHERE = [in_a_collection, in_a_destructor, suppressed, made_another, in_an_import, twice]


@pytest.mark.parametrize("press", WHERE)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_not_swallowed(tmp_path, monkeypatch, capsys, press, number):
    text = f"import signal\nsignal.raise_signal({number:d})\nended = True\n"
    (tmp_path / "pressing.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pressing", raising=False)
    before, hook = [signal.getsignal(n) for n in WORDS], sys.unraisablehook

    def work():
        press(number)
        for _ in range(500):
            time.sleep(0.01)
        return {"done": True}

    words = ("rule", "remedy")
    status = command.run(
        work, stopped="; again", disk=words, memory=words, kept=lambda _: "nowhere"
    )
    assert status == status_of(number)
    assert tuple(capsys.readouterr()) == ("", f"{WORDS[number]}; again\n")
    assert [signal.getsignal(n) for n in WORDS] == before
    assert sys.unraisablehook is hook
