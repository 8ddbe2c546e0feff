"""`jgs serve` as a process of its own, and `jgs replay` of what it answered."""

import json
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from forks import quick_python
from refusals import command_refused

from jgs.graph.live import Live
from jgs.replay.__main__ import main as replay
from jgs.serve.__main__ import main as serve
from jgs.serve.__main__ import parser


@contextmanager
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
        known, asked, stop = [], [], threading.Event()

        def work(number):
            rng = np.random.default_rng(number)
            while not stop.is_set():
                try:
                    edges = rng.integers(0, 300, (2, 5)).tolist()
                    body = {"src": edges[0], "dst": edges[1]}
                    known.append((client.post("/append", json=body).json(), body))
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
    graph = live.packed()
    src, dst = graph.edge_index()
    kept = dict(
        zip(np.asarray(graph.edge_order).tolist(), zip(src, dst, strict=True), strict=True)
    )
    for answer, body in known:
        found = [kept[number] for number in answer["edges"]]
        assert found == [*zip(body["src"], body["dst"], strict=True)]
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


def test_what_it_cannot_serve(artifact, folder, tmp_path, capsys):
    with serving(artifact, "--log", folder) as (_, client):
        port, own = str(client.base_url.port), ["--artifact", str(artifact)]
        for flags, says in (
            (["--log", str(folder)], "one process that writes"),
            (["--port", port], f"127.0.0.1:{port} ... free"),
            (["--token", str(tmp_path / "none")], "--token ... file"),
            (["--queue", "0"], "--queue ... at least 1"),
            (["--log", str(tmp_path / "no"), "--follow"], "live graph"),
            (["--artifact", str(tmp_path)], "exported model"),
        ):
            command_refused(capsys, says, serve, [*own, *flags])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\n", "line 1 of ... an answer"),
        ("[1\n", "line 1 of ... an answer"),
        ('{"artifact": "a", "position": 0, "nodes": [1]}\n', "answers must be of the artifact"),
    ],
)
def test_what_it_cannot_replay(artifact, tmp_path, capsys, text, says):
    path = tmp_path / "answers"
    path.write_text(text)
    argv = ["--artifact", str(artifact), "--answers", str(path)]
    command_refused(capsys, says, replay, argv)
