"""`jgs COMMAND`, its help and completions; `jgs data` and `jgs doctor`."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from forks import quick_python
from refusals import command_refused

from jgs import completion, data, doctor
from jgs.data.__main__ import main as data_command
from jgs.scripts import COMMANDS, main

REPOSITORY = Path(__file__).parents[1]
CODE = "import sys; from jgs.scripts import main; status = main(); "


def jgs(*words, code="", python=None, **variables):
    argv = [python or quick_python(), "-c", CODE + code + "sys.exit(status)", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=variables or None)


def test_help_fits_a_screen_and_does_not_wait_for_jax():
    check = "assert 'jax' not in sys.modules; "
    shown = jgs("--help", code=check, python=sys.executable)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert all(any(line.split()[:1] == [name] for line in lines) for name in COMMANDS)


def test_a_command_is_called_by_the_name_that_was_typed():
    assert jgs("train", "--help").stdout.startswith("usage: jgs train [--help [NAME]]")
    refused = jgs("predict", "--no-such-flag")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "See jgs predict --help." in refused.stderr


@pytest.mark.parametrize("words", [(), ("trian",)])
def test_a_command_that_does_not_exist(monkeypatch, capsys, words):
    monkeypatch.setattr("jgs.interrupts.end_at_once", lambda: None)
    monkeypatch.setattr(sys, "argv", ["jgs", *words])
    assert main() == 2
    said = capsys.readouterr().err
    assert said.startswith("error: the command must be one of train, ")
    assert said.endswith("Did you mean train?\n" if words else "Give e.g. train.\n")


def test_bash_completes_commands_and_flags(tmp_path, capsys):
    assert completion.main(["bash"]) == 0
    script = tmp_path / "jgs.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words):
        asks = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        shell = f"source {script}; {asks}; _shtab_jgs; echo ${{COMPREPLY[@]}}"
        return subprocess.run(
            ["bash", "-c", shell], capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("jgs", "pr") == ["predict"]
    assert completed("jgs", "train", "--fanout") == ["--fanouts", "--fanout-schedule"]
    assert completed("jgs", "train", "--reduce", "m") == ["mean", "max"]
    assert completed("jgs", "train", "--sampler", "la") == ["labor", "ladies"]
    assert completed("jgs", "train", "--help", "lea") == ["learning"]


def test_data_sets_are_listed_and_described(capsys, tmp_path):
    assert data_command(["list"]) == 0
    listed = json.loads(capsys.readouterr().out)["datasets"]
    assert [each["name"] for each in listed] == list(data.LOADERS)
    assert {each["name"] for each in listed if each["fetched"]} >= {"cora", "ogbn-arxiv"}
    options = ["--data-options", "num_nodes=60", "num_edges=300", "num_classes=3"]
    assert data_command(["describe", "synthetic", *options]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"] == 60
    assert json.loads(out)["classes"] == 3
    assert "labels of a node" in err
    root = ["--root", str(tmp_path)]
    for argv, line in [
        (["describe"], "must name a data set"),
        (["list", "cora"], "list none; got list cora"),
        (["list", "--picture", "x.svg"], "list must have no options; got picture"),
        (["fetch", "facebook"], "can be fetched must be one of cora"),
        (["describe", "pubmed", *root], "the data set pubmed must be in"),  # not fetched yet
    ]:
        command_refused(capsys, line, data_command, argv)


def test_the_doctor_finds_this_installation_well_and_bad_libraries(monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", quick_python())
    status, said = doctor.main([]), capsys.readouterr().out
    assert status == 0, said
    assert said.startswith("ok  jgs ")
    assert all(line[:3] in ("ok ", "-- ") for line in said.splitlines())
    assert "draw the same and compute the same" in said or "not in use" in said
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    others = {"mpi", "docs", "test", "jraph"}
    assert project["optional-dependencies"].keys() - others == doctor._EXTRAS.keys()
    with open("/proc/self/maps") as maps:  # a library that is not jgs's own
        libc = next(line.split()[-1] for line in maps if "/libc.so" in line)
    for file in ("/etc/passwd", libc):
        ill = jgs("doctor", JGS_KERNELS=file)
        assert ill.returncode == 1
        last = ill.stdout.splitlines()[-1]
        assert last.startswith(f"no  {file} must be the kernel library")
        assert last.endswith("Correct or unset JGS_KERNELS.")


def test_the_doctor_says_in_one_line_that_nobody_reads_on():
    """As with `jgs doctor | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [quick_python(), "-m", "jgs.doctor"]
    cut = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert cut.returncode == 2
    assert cut.stderr.startswith("error: standard output must take every line; got [Errno 32]")
    assert cut.stderr.count("\n") == 1
