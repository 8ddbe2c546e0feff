"""`python -m jgs.launch` without other hosts: its errors, and how processes run and end."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jgs.launch import hosts, start
from jgs.launch.__main__ import main
from jgs.partition.__main__ import main as partition

# Takes ssh's place. All hosts are this machine, and some are set up wrongly.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
case "$host" in
nowhere) echo "ssh: Could not resolve hostname nowhere: Name not known" >&2; exit 255;;
bare) echo "sh: 1: exec: python: not found" >&2; exit 127;;
old) PYTHONPATH=%s; export PYTHONPATH;;
esac
exec sh -c "$*"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with `parts`, four of them, and the command `ssh`."""
    folder = tmp_path_factory.mktemp("site")
    options = ["num_nodes=200", "num_edges=900", "num_features=3"]
    argv = ["--dataset", "synthetic", "--data-options", *options, "--parts", "4"]
    assert partition([*argv, "--method", "random", "--out", str(folder / "parts")]) == 0
    (folder / "old").mkdir()  # whatever finds jgs there, even the finder of an editable install
    changed = "import jgs\njgs.__version__ = '0.0.9'\n"
    (folder / "old" / "sitecustomize.py").write_text(changed)
    (folder / "ssh").write_text(SSH % (folder / "old"))
    (folder / "ssh").chmod(0o755)
    return folder


def refused(capsys, *argv):
    """The one line of the refusal."""
    capsys.readouterr()
    assert main([str(word) for word in argv]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_what_is_refused(site, capsys):
    parts = ("--parts", site / "parts", "--comm", "jax", "--ssh", site / "ssh")
    for argv, message in [
        ((), "one of the arguments --hosts --hostfile is required"),
        (("--hosts", "a,a"), "named once; got a twice in 'a,a'. Give .* a:2"),
        (("--hosts", "a,b:0"), "NAME:RANKS .* got 'b:0'"),
        (("--hostfile", "none"), "--hostfile must be a text file; got .*No such file"),
        (
            ("--hosts", "a", "--comm", "mpi", "--coordinator", "a:1"),
            "--coordinator must be for --comm jax; got --comm mpi",
        ),
        (("--hosts", "a,b", "--env", "A B=1"), "--env must be NAME=VALUE; got 'A B=1'"),
        (("--hosts", "a,b", "--", "--epochs", "x"), "argument --epochs: invalid int"),
        (("--hosts", "a,b", "--", "--comm", "jax"), "tells the ranks .*; got --comm after --"),
        (("--hosts", "a,b", "--parts", "none"), "none must be a folder of parts"),
        (("--hosts", "a,b,c", *parts), "must divide the 4 parts of .*; got 3. .*a:2"),
        (("--hosts", "a,nowhere", *parts), "by ssh; got nowhere: ssh: Could not resolve host"),
        (("--hosts", "a,bare", *parts), f"the Python .*{sys.executable}; got bare: sh: 1: "),
        (
            ("--hosts", "a,old", *parts),
            r"the same Python, jgs.*; got jgs .* on a; 0.0.9 on old\.",
        ),
        (
            ("--hosts", "a,b", "--ssh", "no-such-ssh"),
            "ssh must be installed.*; got no-such-ssh: No such file",
        ),
    ]:
        line = refused(capsys, *argv)
        assert re.search(message, line), line


def test_what_a_host_lacks(site, capsys, monkeypatch, tmp_path):
    """A shared file system lacks nothing. Otherwise what cannot be copied is named."""
    from jgs.launch import __main__ as command

    real, lacked = command.RemoteShell.ask, {}

    def ask(remote, host, directory, parts, *rest):
        """Answers as for hosts with disks of their own: the probe finds the parts elsewhere."""
        answer = real(remote, host, directory, str(copied), *rest)
        lacked[host.name] = answer["lacks"]
        return answer

    copied = shutil.copytree(site / "parts", tmp_path / "copied")
    os.remove(copied / "part-00002" / "features.npy")
    os.utime(copied / "graph" / "indptr.npy", (1, 1))
    run = ("--parts", site / "parts", "--comm", "jax", "--ssh", site / "ssh")
    monkeypatch.setattr("shutil.which", lambda name, *_, **__: None)
    monkeypatch.setattr(command.RemoteShell, "ask", ask)
    line = refused(capsys, "--hosts", "a,b", *run)
    assert "rsync must be on this host and on a, which lacks files" in line
    assert lacked == {
        "a": ["graph/indptr.npy"],
        "b": ["graph/indptr.npy", "part-00002/features.npy"],
    }
    line = refused(capsys, "--hosts", "a,b", *run, "--", "--mode", "vanilla")
    assert "on b, which lacks files" in line
    assert lacked == {"a": [], "b": ["part-00002/features.npy"]}
    (copied / "manifest.json").write_text("{}")
    line = refused(capsys, "--hosts", "a,b", *run)
    assert "must hold the same parts on every host; got others on a" in line


def test_host_files(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# three\na:2\n\nb slots=3  # fast\nc\n")
    assert hosts.from_file(str(file)) == hosts.from_list("a:2,b:3, c")
    assert [(h.name, h.first, h.ranks) for h in hosts.from_list("a:2,b")] == [
        ("a", 0, 2),
        ("b", 2, 1),
    ]


def test_an_mpiexec_of_another_kind(tmp_path, monkeypatch):
    other = tmp_path / "mpiexec"
    other.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n")
    other.chmod(0o755)
    monkeypatch.setattr(start, "mpiexec", lambda: str(other))
    with pytest.raises(ValueError, match=r"must be Hydra.* got .*OpenRTE.*docs/ranks\.md"):
        start.find_mpiexec()


# -- what is started ---------------------------------------------------------------------------

# A rank ends with a result, or waits for a signal and says which one it obeys or ignores. Or it
# fails or dies once the others wait.
RANK = """
import os, signal, sys, time
harm = sys.argv[1]
def others():
    while not os.path.exists(os.environ["OTHERS_WAIT"]):
        time.sleep(0.02)
def stop(number, frame):
    if harm != "deaf":
        sys.exit(f"stops by {signal.Signals(number).name}")
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
if harm == "result":
    print('{"result": 1}')
elif harm == "fail":
    others()
    sys.stderr.write("half a line")
    sys.exit(7)
elif harm == "die":
    others()
    os.kill(os.getpid(), signal.SIGKILL)
else:
    print("waits as", os.getpid(), file=sys.stderr, flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(1)
"""
RUN = """
import sys
from jgs.launch import rank, start
start.LAST_WORDS, rank.GRACE = 0.2, 0.2
command = [sys.executable, "-c", "from jgs.launch import rank; rank.GRACE = 0.2; "
           "import sys; rank.main(sys.argv[1:])", "--control"]
sys.exit(start.run({
    f"rank {i}": [*command, str(i), "a_rank", harm] for i, harm in enumerate(sys.argv[1:])
}))
"""


@pytest.fixture
def launch(tmp_path):
    """`launch(harm, ...)`: the process that runs the ranks, and the processes that wait."""
    (tmp_path / "a_rank.py").write_text(RANK)
    waiting, started = tmp_path / "waiting", []

    def start(*harms):
        waiting.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *harms],
            env=os.environ | {"PYTHONPATH": str(tmp_path), "OTHERS_WAIT": str(waiting)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        lines = [process.stderr.readline() for harm in harms if harm in ("wait", "deaf")]
        waiting.touch()
        return process, [int(line.split("waits as")[1]) for line in lines]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """The process's status, and what it has written since."""
    out, err = process.communicate(timeout=240)
    return process.returncode, out, sorted(err.splitlines())


def test_results_are_passed_on(launch):
    assert ended(launch("result", "result")[0]) == (0, '{"result": 1}\n' * 2, [])


def test_one_that_ends_badly_ends_all(launch):
    status, _, lines = ended(launch("wait", "fail")[0])
    assert status == 7
    assert "[1] half a line" in lines
    assert "[0] stops by SIGTERM" in lines  # the launcher closed its standard input
    assert "rank 1 ended with status 7; the others end too" in lines
    status, _, lines = ended(launch("deaf", "die")[0])
    assert status == 128 + signal.SIGKILL
    assert lines == ["rank 1 ended with status 137; the others end too"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_to_all_ranks(launch, number):
    process, _ = launch("wait", "wait")
    process.send_signal(number)
    status, _, lines = ended(process)
    assert (status, lines[:2]) == (1, [f"[{r}] stops by {number.name}" for r in (0, 1)])


def test_a_second_signal_and_the_launcher_s_own_end_leave_no_rank(launch):
    process, pids = launch("deaf", "deaf")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)  # both signals are heard, even before the first is passed on
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 128 + signal.SIGKILL
    process, more = launch("deaf", "wait")
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while any(running(pid) for pid in pids + more):
        assert time.monotonic() < end
        time.sleep(0.02)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
