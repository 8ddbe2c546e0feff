"""`python -m jgs.partition`: the table, the JSON line, and all errors in one line."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest
from cases import cases
from forks import quick_python
from refusals import command_refused

from jgs.data.parts import open_parts
from jgs.partition import memory, min_cut, nodes
from jgs.partition.__main__ import main

OPTIONS = ["num_nodes=500", "num_edges=4000", "num_features=4"]
DATA = ["--dataset", "synthetic", "--data-options", *OPTIONS]


@pytest.mark.parametrize("method", ["metis", "kaminpar", "ldg", "random"])
def test_it_writes_parts_and_says_how_even_they_are(tmp_path, capsys, method):
    out = tmp_path / "parts"
    assert main([*DATA, "--parts", "4", "--out", str(out), "--method", method]) == 0
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    result, parts = json.loads(line), open_parts(out)
    assert result["parts_id"] == parts.parts_id
    assert result["edge_cut"] == parts.manifest["edge_cut"]
    assert max(result["balance"][k] for k in ("nodes", "edges", "train", "seeds")) <= 1.06
    assert f"by {method}" in said.err
    assert "max / mean" in said.err
    for part in parts.manifest["parts"]:
        for number in part.values():
            assert f"{number:,}" in said.err
    # The output has the data set's own ids.
    assert np.sort(parts.original_ids).tolist() == list(range(500))


@cases(
    "arguments, message",
    (["--parts", "101"], "no more parts than training nodes, 100; got 101"),
    (["--parts", "2", "--threads", "2"], "with --method kaminpar; got 2"),
    (["--parts", "2", "--method", "ldg", "--seed", "5"], "a method that draws"),
    (["--parts", "2", "--assignment", "a.npy", "--method", "ldg"], "without --assignment"),
    (["--parts", "2", "--assignment", "a.npy"], "a .npy file of integers; got [Errno 2]"),
    (["--parts", "2", "--dataset", "no-such"], "a data set must be one of"),
    (["--parts", "2", "--data-options", "seed"], "NAME=VALUE"),
    (["--parts", "2", "--data-options", "sed=1"], "the options of the data set"),
    ([], "must parse"),
)
def test_bad_input_is_one_line(tmp_path, capsys, arguments, message):
    out = tmp_path / "parts"
    said = command_refused(capsys, message, main, [*DATA, "--out", str(out), *arguments])
    assert said.count("\n") == 1
    assert not out.exists()


def test_the_method_that_was_used_is_the_one_that_is_named(tmp_path, capsys):
    out = tmp_path / "parts"
    assert main([*DATA, "--parts", "40", "--out", str(out)]) == 0  # 12 nodes in each part
    said = capsys.readouterr()
    assert "ldg instead of metis" in said.err
    assert "40 parts by ldg" in said.err
    assert json.loads(said.out)["method"] == open_parts(out).manifest["method"] == "ldg"


@cases(
    "out, message",
    # Another folder would take its place, and the user's shell would be left nowhere.
    *((out, "than the working directory") for out in (".", "..", "sub/..", "{}")),
    ("{}/full", "must not exist, be empty"),
    ("{}/full/thesis.txt/x", "must be a folder that can be written"),
)
def test_an_out_is_refused_before_any_work(tmp_path, capsys, monkeypatch, out, message):
    monkeypatch.setattr("jgs.data.plain.load_whole", lambda *_, **__: pytest.fail("loaded"))
    here, full = tmp_path / "here", tmp_path / "full"
    (here / "sub").mkdir(parents=True)
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    monkeypatch.chdir(here)
    argv = [*DATA, "--parts", "2", "--out", out.format(tmp_path)]
    assert command_refused(capsys, message, main, argv).count("\n") == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["full", "here", "sub", "thesis.txt"]


def test_an_assignment_from_a_file_is_taken_as_it_is(tmp_path, capsys):
    out, file = tmp_path / "parts", tmp_path / "owner.npy"
    arguments = [*DATA, "--parts", "3", "--out", str(out), "--assignment", str(file)]
    owner = np.random.default_rng(0).choice(3, 500, p=[0.2, 0.3, 0.5])
    for wrong, message in (
        (owner[:-1], "each of the 500 nodes; got 499"),
        (owner + 0.0, "an assignment must be integers [N]; got float64[500]"),
        (owner + 1, "must be in [0, 3); got 1 to 3"),
    ):
        np.save(file, wrong)
        command_refused(capsys, message, main, arguments)
    np.save(file, owner.astype(np.uint8))
    assert main(arguments) == 0
    said, parts = capsys.readouterr(), open_parts(out)
    assert "the parts are uneven" in said.err
    assert json.loads(said.out)["method"] == parts.manifest["method"] == "assignment"
    np.testing.assert_array_equal(parts.owner(np.arange(500)), owner[parts.original_ids])


def test_memory_is_told_before_it_is_taken(tmp_path, capsys, monkeypatch):
    out = tmp_path / "parts"
    arguments = [*DATA, "--parts", "2", "--out", str(out)]
    sizes = {"metis": 40 * 10**9, "kaminpar": 30 * 10**9, "ldg": 4 * 10**9, "random": 3 * 10**9}
    monkeypatch.setattr(memory, "predicted", lambda method, *_: sizes[method])
    monkeypatch.setattr(memory, "machine", lambda: memory.Machine(24 * 10**9, 3 * 10**9))
    monkeypatch.setattr(nodes, "metis_partition", lambda *_: pytest.fail("begun"))
    says = "will need about 40.0 GB, this machine has 24.0 GB. Use --method ldg or"
    assert command_refused(capsys, says, main, arguments).count("\n") == 1
    assert not out.exists()
    assert main([*arguments, "--method", "ldg"]) == 0
    said = capsys.readouterr()
    assert "ldg will need about 4.0 GB of memory; of this machine's 24.0 GB are 3.0" in said.err
    assert json.loads(said.out)["memory"]["predicted"] == 4 * 10**9


def test_a_kaminpar_that_is_killed_is_one_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "run.py").write_text("import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(min_cut.kaminpar_run, "__file__", str(tmp_path / "run.py"))
    arguments = [*DATA, "--parts", "2", "--out", str(tmp_path / "parts")]
    arguments += ["--method", "kaminpar"]
    says = "in the memory there is; got its process ended with -9"
    command_refused(capsys, says, main, arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["run.py"]  # no other file is left
    monkeypatch.setattr(min_cut.importlib.util, "find_spec", lambda _: None)
    command_refused(capsys, "pip install 'jgs[kaminpar]'", main, arguments)


# The second shell ignores SIGINT at first, as with `command &`.
@pytest.mark.parametrize("before", [[], ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]])
def test_ctrl_c_during_metis_ends_at_once_and_leaves_nothing(tmp_path, before):
    out = tmp_path / "parts"
    program = (  # a METIS that tells when it begins and takes ten minutes
        "import ctypes, sys\n"
        "import jgs.partition.min_cut as m\n"
        "class Slow:\n"
        "    METIS_SetDefaultOptions = staticmethod(lambda *_: 1)\n"
        "    def METIS_PartGraphKway(self, *_):\n"
        "        print('begun', file=sys.stderr, flush=True)\n"
        "        return ctypes.CDLL(None).sleep(600)\n"
        "m._library = lambda largest: (Slow(), 'int64')\n"
        "from jgs.partition.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [quick_python(), "-c", program, *DATA, "--parts", "4", "--out", str(out)]
    with subprocess.Popen(
        [*before, *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                if "begun" in line:
                    break
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out_text, error = process.communicate(timeout=240)
        finally:
            process.kill()
    assert (process.returncode, out_text) == (130, "")
    assert error.splitlines()[-1].startswith("interrupted; --out is as it was")
    assert list(tmp_path.iterdir()) == []
