"""`python -m jgs.serve`: answers over HTTP of what `jgs export --with-graph` wrote.

Standard output gets one JSON line when the server takes requests: its address, the artifact's
digest, and the position of the graph. SIGTERM ends it with status 0, after the requests that
have come are answered.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import contextlib
import json
import logging
import mmap
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

from jgs import command
from jgs.errors import InputError, refuse, refusing
from jgs.options import Option, add_options, options_of

log = logging.getLogger("jgs")
_TOKEN = "JGS_SERVE_TOKEN"
_BEGIN = b'{"artifact": "'  # of an answer


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(lambda: _serve(argv))


def _serve(argv: Sequence[str] | None) -> int:
    known = options_of(_Asked)
    given = {name: one.default for name, one in known.items()}
    given |= vars(parser().parse_args(argv))
    given = {name: known[name].checked(name, value) for name, value in given.items()}
    writes = given["log"] is not None and not given["follow"]
    refuse(
        (given["follow"] and given["log"] is None,
         "--follow must be beside --log", "no log", "Name the folder, or leave it out."),
        (given["merge_at"] is not None and not writes,
         "--merge-at must be of a process that writes a log",
         "--follow" if given["follow"] else "no --log", "Leave it out."),
    )  # fmt: skip
    token = os.environ.get(_TOKEN, "").strip()
    if given["token"] is not None:
        rule = "--token must be a file of text that can be read"
        with refusing((OSError, ValueError), rule, "Correct it."):
            token = Path(given["token"]).read_text().strip()
        if not token:
            raise InputError(
                "--token must be a file with a token", "an empty one", "Write one."
            )
    with (
        interrupts.starting(),
        refusing(
            ImportError,
            "jgs serve needs uvicorn and prometheus-client",
            "pip install 'jgs[serve]'.",
        ),
    ):
        # Slow imports, of JAX too.
        import prometheus_client  # noqa: F401
        import uvicorn

        from jgs.allocator import keep_freed_memory
        from jgs.serve.application import Application
        from jgs.serve.engine import Engine
    command.configure_jax()
    keep_freed_memory()
    own = {name: given[name] for name in ("follow", "ahead", "merge_at")}
    if own["merge_at"] is None:  # answers from before a merge cannot be computed again
        own["merge_at"] = 0.2 if given["record"] is None else 0.0
    engine = Engine(given["artifact"], given["log"], **own)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listener(given["host"], given["port"]))
        host, port = listener.getsockname()[:2]
        if not (token or host.startswith("127.") or host == "::1"):
            log.warning(
                "anyone who reaches %s may ask and change this server: see --token", host
            )
        record = None
        if given["record"] is not None:
            record = _record(Path(given["record"]))
            stack.callback(_close, record)
        application = Application(
            engine,
            token=token,
            body=given["max_body"],
            places=given["queue"],
            delay=given["max_delay"] / 1000,
            patience=given["timeout"],
            record=record,
        )
        config = uvicorn.Config(
            application,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=int(given["timeout"]) + 1,
            timeout_notify=0,
        )
        said: dict[str, Any] = {"address": f"http://{host}:{port}", "artifact": engine.digest}
        server = uvicorn.Server(config)
        said |= {"position": engine.position, "writes": engine.writes}
        config.callback_notify = partial(_end_idle, given["timeout"], server, {})
        server.capture_signals = partial(_handling, server, json.dumps(said))  # type: ignore
        server.run([listener])
    log.info("ended at position %d", engine.position)
    return 0


async def _end_idle(patience: float, server: Any, seen: dict[Any, tuple[Any, float]]) -> None:
    """Ends connections on which no request has come for so many seconds, or no whole header.
    uvicorn calls it once a second. `seen` has the last request of each, and since when it is
    answered."""
    now, known = time.monotonic(), dict(seen)
    seen.clear()
    for connection in list(server.server_state.connections):
        last = getattr(connection, "cycle", None)  # none of a websocket
        if last is None or last.response_complete:
            before = known.get(connection)
            seen[connection] = before if before and before[0] is last else (last, now)
            if now - seen[connection][1] >= patience:
                connection.transport.abort()


@contextlib.contextmanager
def _handling(server: Any, said: str) -> Iterator[None]:
    """Ends the server at a signal. uvicorn's own context raises the signal again at the end, so
    that the status is not 0."""
    before = {n: signal.signal(n, server.handle_exit) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        command.print_out(said, "the address", "Open it.")
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _record(path: Path) -> IO[str]:
    """The file that answers are appended to, without a last one that is not whole: a server
    that was killed while it wrote it left it there. Raises `InputError`."""
    rule = "--record must be a file of answers that can be written"
    with refusing(OSError, rule, "Correct it."):
        if path.is_file() and (size := path.stat().st_size):
            with open(path, "r+b") as file:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as every:
                    end = every.rfind(b"\n") + 1
                    begins = [every[at : at + len(_BEGIN)] for at in (0, end)]
                if not all(_BEGIN.startswith(begin) for begin in begins):
                    raise InputError(rule, f"{path} with other lines", "Choose another.")
                if end < size:
                    file.truncate(end)
                    text = "%s: dropped the last %d bytes, an answer that was not written whole"
                    log.warning(text, path, size - end)
        return open(path, "a", buffering=1)


def _close(record: IO[str]) -> None:
    rule = "every answer must be recorded (--record)"
    with refusing(OSError, rule, "Free space there: those that got the status 503 are not."):
        record.close()


def _listener(host: str, port: int) -> Any:
    with refusing(
        (OSError, OverflowError),
        f"{host}:{port} must be an address that is free",
        "Choose another --host or --port; 0 takes a free port.",
    ):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)


# fmt: off
@dataclass
class _Asked:
    artifact: Annotated[str, Option(
        "folder that jgs export --with-graph wrote; with --live for --log"
    )]
    port: Annotated[int, Option("0 takes a free one, which standard output says", least=0,
                                most=65535, metavar="P")] = 8000
    host: Annotated[str, Option("the address to listen at")] = "127.0.0.1"
    log: Annotated[str | None, Option(
        "folder of the changes of the graph, made where there is none: takes /append and "
        "/delete. One process writes it", metavar="FOLDER"
    )] = None
    follow: Annotated[bool, Option(
        "another process writes the log: answer with its changes, and take none"
    )] = False
    token: Annotated[str | None, Option(
        "file of a token that requests must bring, as Authorization: Bearer TOKEN; or set "
        f"{_TOKEN}", metavar="FILE"
    )] = None
    max_body: Annotated[int, Option("bytes of a request", least=1, metavar="BYTES")] = 1 << 20
    queue: Annotated[int, Option(
        "requests that may wait; others get the status 503", least=1, metavar="N"
    )] = 1024
    max_delay: Annotated[float, Option(
        "wait so long for more requests, to answer them together", least=0, most=60_000,
        metavar="MS"
    )] = 0.0
    timeout: Annotated[float, Option(
        "seconds that a request may take to come, and to be answered", above=0, most=86_400,
        metavar="S"
    )] = 10.0
    ahead: Annotated[int, Option(
        "how much later than the latest time of the graph a moment may be, beyond 1, in the "
        "unit of its times", least=0, metavar="TIME"
    )] = 0
    merge_at: Annotated[float | None, Option(
        "write the folder of the log anew once this share of the edges has come or gone, so "
        "that it stays small and has nothing that was deleted; 0: never. jgs replay cannot "
        "compute answers from before (default: 0.2, with --record 0)", least=0, metavar="SHARE"
    )] = None
    record: Annotated[str | None, Option(
        "append each answer to this file, for jgs replay", metavar="FILE"
    )] = None
# fmt: on


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.serve",
        "Answer over HTTP: POST /predict, /recommend, /append, /nodes, /rows and /delete, GET "
        "/health and /metrics. See docs/guides/server.md.",
    )
    add_options(found, _Asked)
    return found


if __name__ == "__main__":
    interrupts.leave(main())
