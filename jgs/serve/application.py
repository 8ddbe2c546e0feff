"""`Application`: the ASGI application of `jgs serve`. `Batcher`: one thread that computes, for
all requests that wait together."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import IO, Any

import prometheus_client as prometheus

from jgs.errors import InputError, one_line
from jgs.graph.live import Change
from jgs.graph.live.log import Unwritten
from jgs.serve.engine import Engine, NotHere
from jgs.serve.questions import Question, change, parsed, question

log = logging.getLogger("jgs")
_POLL = 0.02  # seconds between two looks at a log that another process writes


class Full(Exception):
    """There is no place in the queue, or the server is ending."""


class Batcher(threading.Thread):
    """A thread that answers questions and makes changes with an engine.

    It takes all that wait at once: first the changes, in the order in which they came, then the
    questions, of the graph as it is after these.

    Args:
      places: how many may wait.
      delay: seconds to wait for more, from the moment when the first one came.
      batch: called with the number of those that are taken at once.
    """

    def __init__(self, engine: Engine, places: int, delay: float, batch: Callable[[int], Any]):
        super().__init__(name="jgs-serve", daemon=True)
        self.engine, self._places, self._delay, self._batch = engine, places, delay, batch
        self._waiting: deque[tuple[Question | Change, Future]] = deque()
        self._turn, self._ending = threading.Condition(), False
        self.failure: InputError | None = None  # of following the log

    @property
    def _follows(self) -> bool:
        return self.engine.live is not None and not self.engine.writes

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def submit(self, asked: Question | Change) -> Future:
        """The future of the answer, a dict or an `InputError`. A cancelled one leaves its place
        at once. Raises `Full`."""
        future: Future = Future()
        with self._turn:
            if self._ending or len(self._waiting) >= self._places:
                raise Full
            self._waiting.append((asked, future))
            self._turn.notify()
        future.add_done_callback(self._leave)
        return future

    def close(self) -> None:
        """Ends the thread after what waits is done."""
        with self._turn:
            self._ending = True
            self._turn.notify()
        self.join()

    def run(self) -> None:
        while (entries := self._taken()) is not None:
            taken = [(a, f) for a, f in entries if f.set_running_or_notify_cancel()]
            try:
                self._follow()
                self._compute(taken)
            except Exception as error:  # a fault of jgs: those who wait are told
                log.exception("jgs serve failed to answer")
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)

    def _compute(self, taken: list[tuple[Any, Future]]) -> None:
        if not taken:
            return
        self._batch(len(taken))
        methods: Any = (Change, self.engine.changed), (Question, self.engine.answers)
        for kind, method in methods:
            some = [(asked, future) for asked, future in taken if isinstance(asked, kind)]
            if some:
                answers = method([asked for asked, _ in some])
                for (_, future), answer in zip(some, answers, strict=True):
                    future.set_result(answer)

    def _follow(self) -> None:
        if not self._follows or self.failure is not None:
            return
        try:
            if self.engine.lag >= _POLL:
                self.engine.follow()
        except InputError as error:
            log.error("the log cannot be followed any more: %s", error)
            self.failure = error

    def _taken(self) -> list[tuple[Any, Future]] | None:
        """Those that wait, once there are some, or none after a while; None at the end."""
        with self._turn:
            if not self._waiting and not self._ending:
                self._turn.wait(_POLL if self._follows else None)
            elif not self._waiting:
                return None
            if self._waiting and self._delay and not self._ending:
                self._turn.wait_for(lambda: self._ending, self._delay)
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def _leave(self, future: Future) -> None:
        if future.cancelled():
            with self._turn:
                self._waiting = deque(each for each in self._waiting if each[1] is not future)


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_ROUTES = {"/predict": "POST", "/recommend": "POST", "/append": "POST", "/delete": "POST"}
_ROUTES |= {"/nodes": "POST", "/rows": "POST", "/health": "GET", "/metrics": "GET"}
_CHANGES = ("/append", "/nodes", "/rows", "/delete")
_LONGEST = 200  # letters of a value in an error
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


class _Refused(Exception):
    """An answer that says what is wrong."""

    def __init__(self, status: int, rule: str, value: Any, remedy: str, **headers: str):
        super().__init__(rule)
        self.status, self.headers = status, {n.replace("_", "-"): v for n, v in headers.items()}
        self.said = {"error": rule, "value": str(value)[:_LONGEST], "remedy": remedy}


class _Left(Exception):
    """The client has left."""


class Application:
    """The ASGI application that answers with an engine.

    Args:
      engine: the `Engine`; the application's thread alone calls it from now on.
      token: what requests must bring, but those to /health: `Authorization: Bearer TOKEN`.
      body: bytes that a request may have.
      places: how many requests may wait.
      delay: seconds to wait for more requests, to answer them together.
      patience: seconds that a request may take to come, and then to be answered.
      record: a text file that gets each answer to a question, a line each, for `jgs replay`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        token: str = "",
        body: int = 1 << 20,
        places: int = 1024,
        delay: float = 0,
        patience: float = 10,
        record: IO[str] | None = None,
    ):
        self.engine, self._token, self._body, self._patience = engine, token, body, patience
        self._record = record
        self._metrics = _Metrics(engine, lambda: self.batcher.waiting)
        self.batcher = Batcher(engine, places, delay, self._metrics.batch.observe)
        self.batcher.start()

    def close(self) -> None:
        """Answers what waits, and ends the thread."""
        self.batcher.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        began, path = time.perf_counter(), scope["path"]
        route = path if path in _ROUTES else "other"
        try:
            headers, said = {}, await self._answer(scope, receive)
            status = 200
        except _Left:
            return self._metrics.requests.labels(route, 499).inc()
        except _Refused as error:
            status, headers, said = error.status, error.headers, error.said
        except Exception as error:
            log.exception("jgs serve failed to answer %s", path)
            status, headers = 500, {}
            said = {"error": "the server must not fail", "value": one_line(error)}
            said |= {"remedy": "Report it, with the log of the server."}
        self._metrics.requests.labels(route, status).inc()
        self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
        kind = "application/json" if isinstance(said, dict) else "text/plain; version=0.0.4"
        text = json.dumps(said, allow_nan=False) + "\n" if isinstance(said, dict) else said
        headers |= {"content-type": kind, "content-length": str(len(text.encode()))}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.shutdown":
                await asyncio.to_thread(self.close)
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def _answer(self, scope: Message, receive: Receive) -> Any:
        path, headers = scope["path"], dict(scope["headers"])
        if path not in _ROUTES:
            raise _Refused(
                404, f"a path must be one of {', '.join(_ROUTES)}", path, "Correct it."
            )
        method = _ROUTES[path]
        if scope["method"] != method:
            remedy = f"Send {method}."
            raise _Refused(405, f"{path} takes {method}", scope["method"], remedy, Allow=method)
        if path == "/health":
            return self._health()
        if self._token:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, os.fsencode(f"Bearer {self._token}")):
                value = "another" if given else "none"
                remedy = "Send the header Authorization: Bearer TOKEN."
                more = {"WWW_Authenticate": "Bearer"}
                raise _Refused(401, "a request must have the token", value, remedy, **more)
        if path == "/metrics":
            return prometheus.generate_latest(self._metrics.registry).decode()
        kind = path[1:]
        body = await self._read(headers, receive)
        try:
            fields, ids = parsed(body), self.engine.model.node_ids
            if path in _CHANGES:
                schema, unit = self.engine.schema, self.engine.model.spec.time_unit
                asked: Any = change(kind, fields, ids, schema, unit)
            else:
                asked = question(kind, fields, ids, self.engine.key)
        except InputError as error:
            raise _Refused(400, error.rule, error.value, error.remedy) from None
        except RecursionError:
            raise _Refused(400, "JSON must not be so deep", "more", "Flatten it.") from None
        answer = await self._computed(asked, receive)
        if self._record is not None and path not in _CHANGES:
            try:
                self._record.write(json.dumps(answer, allow_nan=False) + "\n")
            except OSError as error:  # what was written of it stays in the file's buffer
                rule, value = "an answer must be recorded (--record)", one_line(error)
                raise _Refused(503, rule, value, "Free space there.") from None
        return answer

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        body, more, length = bytearray(), True, headers.get(b"content-length", b"0")
        try:
            async with asyncio.timeout(self._patience):
                while more and max(len(body), int(length)) <= self._body:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            rule = f"a request must come within {self._patience:g} s"
            value = f"{len(body)} bytes"
            raise _Refused(408, rule, value, "Send it faster.", Connection="close") from None
        if (size := max(len(body), int(length))) > self._body:
            rule = f"a body must have at most {self._body} bytes"
            raise _Refused(413, rule, size, "Ask for less at once.", Connection="close")
        return bytes(body)

    async def _computed(self, asked: Any, receive: Receive) -> Message:
        try:
            future: Future = self.batcher.submit(asked)
        except Full:
            rule = "the server must have a place for a request"
            value = f"{self.batcher.waiting} that wait"
            raise _Refused(503, rule, value, "Try it again.", Retry_After="1") from None
        waiting = asyncio.wrap_future(future)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait(
                {waiting, gone}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED
            )
            if waiting.done():
                answer = waiting.result()
            elif gone.done():
                raise _Left
            else:
                rule = f"an answer must be computed within {self._patience:g} s"
                value = f"{self.batcher.waiting} that wait"
                remedy = "Ask for less at once; a change may have been made."
                raise _Refused(504, rule, value, remedy)
        finally:
            gone.cancel()
            waiting.cancel()
        if isinstance(answer, InputError):
            status = {Unwritten: 503, NotHere: 409}.get(type(answer), 400)
            raise _Refused(status, answer.rule, answer.value, answer.remedy)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _health(self) -> Message:
        engine, failure = self.engine, self.batcher.failure
        found = {
            "status": "ok",
            "artifact": engine.digest,
            "position": engine.position,
            "writes": engine.writes,
            "lag_seconds": engine.lag,
            "latest": engine.latest,
            "time_unit": engine.model.spec.time_unit,
            "readable_until": engine.model.spec.readable_until,
            "num_nodes": engine.num_nodes,
            "waiting": self.batcher.waiting,
        }
        if failure is not None or not self.batcher.is_alive():
            reason = failure or InputError(
                "the server must compute", "it ended", "Start it again."
            )
            raise _Refused(503, reason.rule, reason.value, reason.remedy)
        return found


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Metrics:
    """What /metrics shows, in the form of Prometheus."""

    def __init__(self, engine: Engine, waiting: Callable[[], int]):
        self.registry = registry = prometheus.CollectorRegistry()
        count, histogram = prometheus.Counter, prometheus.Histogram
        about = ["route", "code"]
        self.requests = count("jgs_requests", "Requests answered", about, registry=registry)
        self.seconds = histogram(
            "jgs_request_seconds",
            "Seconds from a request to its answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        text = "Requests that were computed together"
        self.batch = histogram("jgs_batch_requests", text, buckets=_SIZES, registry=registry)
        for name, text, value in (
            ("jgs_waiting_requests", "Requests in the queue", waiting),
            ("jgs_position", "Changes of the graph so far", lambda: engine.position),
            ("jgs_edges_appended", "Edges appended by this process", lambda: engine.edges),
            ("jgs_unmerged_changes", "Changed since the last merge", lambda: engine.unmerged),
            ("jgs_log_lag_seconds", "Seconds since the log was read", lambda: engine.lag),
        ):
            gauge = prometheus.Gauge(name, text, registry=registry)
            gauge.set_function(value)
