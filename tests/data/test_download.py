"""Downloads from a server on 127.0.0.1, which the tests own and can make misbehave."""

import hashlib
import http.server
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from folders import cases, refused

from jgs.data.download import fetch, verified

BODY = np.random.default_rng(0).bytes(3 * 2**20 + 12345)


class Server(http.server.ThreadingHTTPServer):
    """Serves `body` at any path; `requests` lists the Range header of each request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.tag, self.requests = BODY, '"one"', []
        self.cuts: list[int] = []  # for each of the next requests, cut after so many bytes
        self.ranges, self.length, self.status = True, True, 200
        self.url = f"http://127.0.0.1:{self.server_port}/data.zip"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.requests.append(asked)
        if server.status != 200:
            return self.send_error(server.status)
        body, start = server.body, 0
        fresh = self.headers.get("If-Range") in (None, server.tag)
        if asked and server.ranges and fresh:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return self.send_error(416)
            self.send_response(206)
            last = len(body) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(body)}")
        else:
            self.send_response(200)
        if server.length:
            self.send_header("Content-Length", str(len(body) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        piece = body[start:]
        self.wfile.write(piece[: server.cuts.pop(0)] if server.cuts else piece)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_whole_download(server, tmp_path, capsys):
    path = fetch(server.url, tmp_path / "new" / "data.zip")
    assert path.read_bytes() == BODY
    kept = (tmp_path / "new" / "data.zip.sha256").read_text()
    assert kept == f"{hashlib.sha256(BODY).hexdigest()}  data.zip\n"
    names = {"data.zip", "data.zip.sha256", ".data.zip.lock"}
    assert {p.name for p in path.parent.iterdir()} == names
    shown = capsys.readouterr()
    assert "3.2 MB" in shown.err
    assert server.url in shown.err
    assert shown.out == ""
    fetch(server.url, path)
    assert len(server.requests) == 1  # the file was there already


def test_a_cut_connection_goes_on_where_it_was(server, tmp_path):
    server.cuts = [2**20, 2**20 + 7]
    path = fetch(server.url, tmp_path / "data.zip")
    assert path.read_bytes() == BODY
    assert server.requests == [None, f"bytes={2**20}-", f"bytes={2**21 + 7}-"]


def test_a_later_run_goes_on_where_the_first_was(server, tmp_path):
    server.cuts = [2**20, 0]
    says = "cut at 1,048,576 of * after 1.0 MB"
    refused(says, fetch, server.url, tmp_path / "data.zip")
    assert not (tmp_path / "data.zip").exists()
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    assert server.requests == [None, f"bytes={2**20}-", f"bytes={2**20}-"]


@cases(
    "settings, requests",
    ({"ranges": False, "cuts": [2**20]}, [None, f"bytes={2**20}-"]),
    ({"tag": None, "cuts": [2**20]}, [None, None]),  # without a validator nothing is joined
    ({"length": False}, [None]),
)
def test_a_server_that_says_less_sends_the_file_again(server, tmp_path, settings, requests):
    vars(server).update(settings)
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    assert server.requests == requests


@cases(
    "tag, body",
    ('"two"', BODY[::-1]),
    ('"two"', BODY[:100]),
    ('"one"', BODY[: 2**19]),  # shorter than what is there
    ('"one"', BODY[::-1][: 2**21]),  # of another length
    ids=range(4),
)
def test_a_file_that_changed_starts_again(server, tmp_path, tag, body):
    server.cuts = [2**20, 0]
    refused("", fetch, server.url, tmp_path / "data.zip")
    server.tag, server.body = tag, body
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == body


def test_rubbish_left_in_part_is_not_used(server, tmp_path):
    (tmp_path / "data.zip.part").write_bytes(b"rubbish")
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    (tmp_path / "b.zip.part").write_bytes(b"rubbish")
    (tmp_path / "b.zip.part.json").write_text("{rubbish")
    assert fetch(server.url, tmp_path / "b.zip").read_bytes() == BODY


def test_what_cannot_be_fetched(server, tmp_path, monkeypatch):
    path = tmp_path / "data.zip"
    for status in (403, 404, 500):
        server.status = status
        refused(f"the answer {status}", fetch, server.url, path)
    closed = "http://127.0.0.1:9/data.zip"
    refused(f"{closed}*into the folder {tmp_path}.", fetch, closed, path)
    server.status = 200
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused("needs 3.2 MB *1.0 kB free", fetch, server.url, path)


def test_the_checksum_is_checked_on_reuse(server, tmp_path):
    path = fetch(server.url, tmp_path / "data.zip")
    path.write_bytes(BODY[:-1])
    refused("checksum", fetch, server.url, path)
    (tmp_path / "own.zip").write_bytes(b"placed here by hand")
    verified(tmp_path / "own.zip")
    assert (tmp_path / "own.zip.sha256").is_file()


def test_two_at_once_download_once(server, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        paths = [*pool.map(fetch, [server.url] * 3, [tmp_path / "data.zip"] * 3)]
    assert [p.read_bytes() == BODY for p in paths] == [True] * 3
    assert len(server.requests) == 1
