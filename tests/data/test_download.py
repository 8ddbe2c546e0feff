"""Downloads from a server on 127.0.0.1, which the tests own and can make misbehave."""

import hashlib
import http.server
import shutil
import threading

import numpy as np
import pytest

from jgs import InputError
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
    assert {p.name for p in path.parent.iterdir()} == {
        "data.zip",
        "data.zip.sha256",
        ".data.zip.lock",
    }
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
    with pytest.raises(InputError, match=r"cut at 1,048,576 of .* after 1\.0 MB") as caught:
        fetch(server.url, tmp_path / "data.zip")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data.zip").exists()
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    assert server.requests == [None, f"bytes={2**20}-", f"bytes={2**20}-"]


def test_a_server_that_ignores_ranges_starts_again(server, tmp_path):
    server.ranges, server.cuts = False, [2**20]
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    assert server.requests == [None, f"bytes={2**20}-"]


@pytest.mark.parametrize("length", [len(BODY), 100])
def test_a_file_that_changed_starts_again(server, tmp_path, length):
    server.cuts = [2**20, 0]
    with pytest.raises(InputError):
        fetch(server.url, tmp_path / "data.zip")
    server.body, server.tag = BODY[::-1][:length], '"two"'
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == server.body


def test_a_shorter_file_under_the_same_tag_starts_again(server, tmp_path):
    server.cuts = [2**20, 0]
    with pytest.raises(InputError):
        fetch(server.url, tmp_path / "data.zip")
    server.body = BODY[: 2**19]
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == server.body
    server.body = BODY[: 2**21]


def test_another_length_under_the_same_tag_starts_again(server, tmp_path):
    server.cuts = [2**20, 0]
    with pytest.raises(InputError):
        fetch(server.url, tmp_path / "data.zip")
    server.body = BODY[::-1][: 2**21]
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == server.body


def test_without_a_validator_nothing_is_joined(server, tmp_path):
    server.tag, server.cuts = None, [2**20]
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    assert server.requests == [None, None]


def test_without_a_length(server, tmp_path):
    server.length = False
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY


def test_rubbish_left_in_part_is_not_used(server, tmp_path):
    (tmp_path / "data.zip.part").write_bytes(b"rubbish")
    assert fetch(server.url, tmp_path / "data.zip").read_bytes() == BODY
    (tmp_path / "b.zip.part").write_bytes(b"rubbish")
    (tmp_path / "b.zip.part.json").write_text("{rubbish")
    assert fetch(server.url, tmp_path / "b.zip").read_bytes() == BODY


@pytest.mark.parametrize("status", [403, 404, 500])
def test_an_answer_that_is_an_error(server, tmp_path, status):
    server.status = status
    with pytest.raises(InputError, match=f"the answer {status}"):
        fetch(server.url, tmp_path / "data.zip")


def test_offline_names_the_address_and_the_folder(tmp_path):
    url = "http://127.0.0.1:9/data.zip"
    with pytest.raises(InputError) as caught:
        fetch(url, tmp_path / "data.zip")
    message = str(caught.value)
    assert url in message
    assert f"into the folder {tmp_path}." in message
    assert "\n" not in message


def test_the_checksum_is_checked_on_reuse(server, tmp_path):
    path = fetch(server.url, tmp_path / "data.zip")
    path.write_bytes(BODY[:-1])
    with pytest.raises(InputError, match="checksum"):
        fetch(server.url, path)
    (tmp_path / "own.zip").write_bytes(b"placed here by hand")
    verified(tmp_path / "own.zip")
    assert (tmp_path / "own.zip.sha256").is_file()


def test_no_room(server, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"needs 3\.2 MB .*1\.0 kB free"):
        fetch(server.url, tmp_path / "data.zip")


def test_two_at_once_download_once(server, tmp_path):
    paths = []
    threads = [
        threading.Thread(target=lambda: paths.append(fetch(server.url, tmp_path / "data.zip")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.read_bytes() == BODY for p in paths] == [True] * 3
    assert len(server.requests) == 1
