"""The example `serve.py`, with a real client and with 32 at once."""

import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from cases import cases
from forks import quick_python

import jgs

SERVE = Path(__file__).parents[2] / "examples" / "serve.py"


@pytest.fixture(scope="module")
def served(artifact):
    """The exported model, and a client of the server that answers with it."""
    out = artifact[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([quick_python(), str(SERVE), str(out), str(port)])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(600):
                assert process.poll() is None, "the server ended"
                try:
                    client.get("/")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield jgs.load_exported(out), client
    finally:
        process.terminate()
        process.wait(60)


def test_clients_get_the_models_answers(served):
    model, client = served
    about = client.get("/").json()
    assert about["num_nodes"] == 300
    assert about["fanouts"] == [3, 3]
    rng = np.random.default_rng(0)
    asked = [rng.integers(0, 300, rng.integers(1, 12)).tolist() for _ in range(96)]
    with ThreadPoolExecutor(32) as pool:
        answers = [
            *pool.map(lambda nodes: client.post("/predict", json={"nodes": nodes}), asked)
        ]
    for nodes, answer in zip(asked, answers, strict=True):
        want = model.predict(nodes)
        assert answer.status_code == 200
        found = answer.json()
        assert found["prediction"] == model.class_names[want.prediction].tolist()
        np.testing.assert_array_equal(np.float32(found["probability"]), want.probability)
    row, edges = rng.random((1, 8)), [[7, 42], [300, 300]]
    answer = client.post("/predict", json={"features": row.tolist(), "edges": edges})
    new = jgs.export.NewNodes(np.float32(row), *edges, raw=True)
    want = model.class_names[model.predict(new=new).prediction]
    assert answer.json()["prediction"] == want.tolist()


@cases(
    "body, words",
    (b'{"nodes": [300]}', "300"),
    (b'{"nodes": ["x"]}', "nodes"),
    (b'{"nodes": 1e999}', "nodes"),
    (b'{"nodes": [1], "edges": [[1], [2]]}', "nodes or features"),
    (b'{"colour": 3}', "colour"),
    (b'{"nodes": [1', "delimiter"),
    (b"[" * 100_000, ""),
    (b'{"features": [[1, 2]]}', "[n, 8]"),
    (b'{"features": [[1, 2, 3, 4, 5, 6, 7, NaN]]}', "finite"),
    (b'{"features": [[1, 2, 3, 4, 5, 6, 7, 8]], "edges": [[0], [301]]}', "301"),
)
def test_malformed_requests_are_refused(served, body, words):
    answer = served[1].post("/predict", content=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert words in error
    assert "\n" not in error
    assert served[1].post("/predict", content=b" " * (2 << 20)).status_code == 413
