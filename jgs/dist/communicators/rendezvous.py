"""How guards reach each other, by addresses and lines of JSON; and how ranks are called."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from jgs.errors import InputError

BEAT = 0.25  # seconds between two reports


def listen(port: int = 0) -> socket.socket:
    """A socket that listens at all addresses of this machine. Port 0 stands for a free one."""
    try:
        return socket.create_server(("", port), backlog=512)
    except OSError as error:
        raise InputError(
            f"rank 0 must be able to listen on port {port}", error, "Choose a free port."
        ) from error


def interfaces() -> dict[str, str]:
    """The IPv4 addresses of this machine's network interfaces by name, loopback last."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe, 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue  # an interface without an IPv4 address
            found[name] = socket.inet_ntoa(reply[20:24])
    return dict(sorted(found.items(), key=lambda item: item[1].startswith("127.")))


def names(ranks: Iterable[int]) -> str:
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


class Line:
    """A socket that carries JSON objects, one a line.

    Fields:
      heard: when something last came.
      said: what the rank at the other end has last said of itself.
      spoke: when it said that.
      behind: the seconds by which its clock is behind the clock here, or a little more.
    """

    def __init__(self, connection: socket.socket):
        self.connection, self._unread = connection, b""
        connection.settimeout(BEAT)  # for writing: a stopped process reads nothing
        self.heard = self.spoke = time.monotonic()
        self.said: dict[str, Any] = {}
        self.behind = float("inf")

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects that have come, and whether the other end is still there."""
        try:
            received = self.connection.recv(65536)
        except TimeoutError:
            return [], True
        except OSError:
            received = b""
        *lines, self._unread = (self._unread + received).split(b"\n")
        self.heard = time.monotonic()
        try:
            return [dict(json.loads(line)) for line in lines], bool(received)
        except (ValueError, TypeError):
            return [], False  # the other end is no guard

    def say(self, **message: Any) -> None:
        with suppress(OSError):  # the other end is gone or stopped: its silence tells that
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def part(self) -> None:
        """Waits until what was said has been read, for a second at most. A connection that is
        closed while it has unread data drops what it has not delivered."""
        end = time.monotonic() + 1
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1)
            while self.connection.recv(65536) and time.monotonic() < end:
                pass
        self.connection.close()
