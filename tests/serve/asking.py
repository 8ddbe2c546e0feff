"""Requests to an application without a socket."""

import asyncio
import json
from typing import NamedTuple

from jgs.replay import main as replay


def replayed(capsys, artifact, folder, record):
    argv = ["--artifact", artifact, "--log", folder, "--answers", record]
    assert replay([*map(str, argv)]) == 0
    number = len(record.read_text().splitlines())
    assert json.loads(capsys.readouterr().out) == {"answers": number, "same": number}


class Answer(NamedTuple):
    status: int
    headers: dict
    text: str

    @property
    def json(self):
        return json.loads(self.text)


class Client:
    """A client of an application: `pieces` of a body, with a pause before each; after them it
    stays, or leaves."""

    def __init__(self, pieces=(b"",), pause=0.0, leaves=False, stays=True):
        self._pieces, self._pause, self._leaves, self._stays = [*pieces], pause, leaves, stays
        self.sent, self.gone = [], asyncio.Event()

    async def receive(self):
        if self._pieces:
            await asyncio.sleep(self._pause)
            body, more = self._pieces.pop(0), bool(self._pieces) or not self._stays
            return {"type": "http.request", "body": body, "more_body": more}
        if not self._leaves:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    @property
    def answer(self):
        start, body = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert int(headers["content-length"]) == len(body["body"])
        return Answer(start["status"], headers, body["body"].decode())


async def asked(app, path, body=None, method=None, client=None, **headers):
    """What an application answers; None to a client that has left."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    client = client or Client([text])
    scope = {"type": "http", "path": path, "method": method or ("POST" if body else "GET")}
    pairs = [(name.replace("_", "-").encode(), str(v).encode()) for name, v in headers.items()]
    await app(scope | {"headers": pairs}, client.receive, client.send)
    return client.answer if client.sent else None


def ask(app, path, body=None, **options):
    return asyncio.run(asked(app, path, body, **options))


def good(app, path, body=None, **options):
    answer = ask(app, path, body, **options)
    assert answer.status == 200, answer.text
    assert answer.text.find("\n") == len(answer.text) - 1
    return answer.json
