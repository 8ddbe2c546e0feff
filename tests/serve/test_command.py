"""`jgs serve` as a process of its own, and `jgs replay` of what it answered."""

import contextlib
import json
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from forks import quick_python
from refusals import command_refused

import jgs
from jgs.graph.live import Live
from jgs.replay import main as replay
from jgs.serve.__main__ import main as serve
from jgs.serve.__main__ import parser


@contextlib.contextmanager
def serving(artifact, *flags):
    """A server: its process, and a client."""
    argv = [quick_python(), "-m", "jgs.serve", "--artifact", artifact, "--port", 0]
    process = subprocess.Popen(
        [*map(str, (*argv, *flags))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = json.loads(process.stdout.readline())["address"]
        with httpx.Client(base_url=address, timeout=20) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def test_help_is_short():
    assert parser().format_help().count("\n") <= 60


def test_killed_it_loses_no_change_and_all_answers_are_replayed(
    artifact, folder, tmp_path, capsys
):
    record = tmp_path / "answers.jsonl"
    flags = ("--log", folder, "--record", record)
    with serving(artifact, *flags) as (process, client):
        known, nodes, asked, stop = [], [], [], threading.Event()
        width = jgs.load_exported(artifact).spec.num_features

        def work(number):
            rng = np.random.default_rng(number)
            while not stop.is_set():
                try:
                    edges = rng.integers(0, 300, (2, 5)).tolist()
                    body = {"src": edges[0], "dst": edges[1]}
                    known.append((client.post("/append", json=body).json(), body))
                    new = {"features": [[len(nodes)] * width]}
                    nodes.append((client.post("/nodes", json=new).json()["nodes"][0], new))
                    body = {"nodes": rng.integers(0, 300, 3).tolist()}
                    asked.append(client.post("/predict", json=body).json())
                except httpx.TransportError:
                    return

        with ThreadPoolExecutor(4) as pool:
            for number in range(4):
                pool.submit(work, number)
            while len(asked) < 60:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            stop.set()
    live = Live.open(folder, writes=False)
    assert live.position >= max(answer["position"] for answer, _ in known)
    for node, new in nodes:
        np.testing.assert_array_equal(np.asarray(live.features)[[node]], new["features"])
    graph = live.packed()
    src, dst = graph.edge_index()
    kept = dict(
        zip(np.asarray(graph.edge_order).tolist(), zip(src, dst, strict=True), strict=True)
    )
    for answer, body in known:
        found = [kept[number] for number in answer["edges"]]
        assert found == [*zip(body["src"], body["dst"], strict=True)]
    with open(record, "a") as file:
        file.write('{"artifact": "12')  # an answer that was not written whole
    with serving(artifact, *flags) as (process, client):
        assert client.get("/health").json()["position"] == live.position
        asked.append(client.post("/predict", json={"nodes": [7]}).json())
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert all(answer in lines for answer in asked)
    argv = ["--artifact", str(artifact), "--log", str(folder), "--answers", str(record)]
    assert replay(argv) == 0
    assert json.loads(capsys.readouterr().out) == {"answers": len(lines), "same": len(lines)}
    lines[9]["logits"][0][1] = float(np.nextafter(np.float32(lines[9]["logits"][0][1]), 9))
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replay(argv) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["same"] == len(lines) - 1
    position = lines[9]["position"]
    assert f"line 10, at position {position}, differs in logits" in err
    for changed, says in (
        ({"note": None}, "in note"),
        ({"key": "x"}, "it is no question: key"),
    ):
        record.write_text(json.dumps(lines[0] | changed) + "\n")
        assert replay(argv) == 1
        assert says in capsys.readouterr().err


def test_sigterm_answers_what_has_come(artifact, folder):
    with serving(artifact, "--log", folder, "--max-delay", 300) as (process, client):
        with ThreadPoolExecutor(8) as pool:
            bodies = [{"src": [n], "dst": [n + 1]} for n in range(8)]
            futures = [pool.submit(client.post, "/append", json=body) for body in bodies]
            while client.get("/health").json()["waiting"] < 8:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            answers = [future.result() for future in futures]
        assert process.wait(20) == 0
        assert [answer.status_code for answer in answers] == [200] * 8
        assert "Traceback" not in process.stderr.read()
    assert Live.open(folder, writes=False).position == answers[0].json()["position"]


def assert_slow_clients_are_ended(port):
    """Those that send no whole header: nothing, a part, one after a request, and by drops."""
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    ends, began = [], time.monotonic()
    for first in (b"", whole[:9], whole + whole[:9], whole[:9]):
        ends.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        ends[-1].sendall(first)
    with ends[3] as slow, contextlib.suppress(ConnectionError):
        while time.monotonic() < began + 10:
            slow.sendall(b"x")
            time.sleep(0.05)
    assert time.monotonic() < began + 5
    for end in ends[:3]:
        with end, contextlib.suppress(ConnectionResetError):
            while end.recv(1000):
                pass


def test_what_it_cannot_serve(artifact, folder, tmp_path, capsys):
    with serving(artifact, "--log", folder, "--timeout", 0.5) as (_, client):
        assert_slow_clients_are_ended(client.base_url.port)
        port, own = str(client.base_url.port), ["--artifact", str(artifact)]
        (tmp_path / "bytes").write_bytes(b"\xff")
        for flags, says in (
            (["--log", str(folder)], "one process that writes"),
            (["--port", port], f"127.0.0.1:{port} ... free"),
            (["--token", str(tmp_path / "none")], "--token ... file"),
            (["--token", str(tmp_path / "bytes")], "--token ... file of text"),
            (["--max-delay", "1e30"], "--max-delay ... at most 60000"),
            (["--queue", "0"], "--queue ... at least 1"),
            (["--record", __file__], "--record ... other lines"),
            (["--log", str(tmp_path / "no"), "--follow"], "live graph"),
            (["--follow"], "--follow must be beside --log"),
            (["--merge-at", "0.5"], "a process that writes a log ... no --log"),
            (["--artifact", str(tmp_path)], "exported model"),
        ):
            command_refused(capsys, says, serve, [*own, *flags])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\n", "line 1 of ... an answer"),
        ("[1\n", "line 1 of ... an answer"),
        ('{"artifact": 5, "position": 0, "nodes": [1]}\n', "line 1 of ... an answer"),
        ('{"artifact": "a", "position": 0, "nodes": [1]}\n', "answers must be of the artifact"),
    ],
)
def test_what_it_cannot_replay(artifact, tmp_path, capsys, text, says):
    path = tmp_path / "answers"
    path.write_text(text)
    argv = ["--artifact", str(artifact), "--answers", str(path)]
    command_refused(capsys, says, replay, argv)
