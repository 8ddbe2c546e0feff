"""Processes meet at the first one's TCP port: who is missing is known, and said to all."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from jgs.errors import InputError

Address = tuple[str, int]


def listen(port: int = 0) -> socket.socket:
    """A socket at all addresses of this machine; port 0: one that is free."""
    try:
        return socket.create_server(("", port), backlog=512)
    except OSError as error:
        raise InputError(
            f"rank 0 must be able to listen on port {port}", error, "Choose a free port."
        ) from error


def interfaces() -> dict[str, str]:
    """This machine's network interfaces that have an IPv4 address, by name; loopback last."""
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


def addresses() -> list[str]:
    """The IPv4 addresses of this machine's network interfaces, loopback last."""
    return list(dict.fromkeys([*interfaces().values(), "127.0.0.1"]))


def gather(
    listener: socket.socket, ranks: Iterable[int], meeting: str, timeout: float
) -> dict[int, socket.socket]:
    """The first process's part: a connection to each of `ranks`, once all have joined.

    Raises:
      InputError: somebody has not come within `timeout` seconds; who has is told the same.
    """
    missing, joined = set(ranks), dict[int, socket.socket]()
    end = time.monotonic() + timeout
    while missing and (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            peer, _ = listener.accept()
            peer.settimeout(min(left, 5))
            hello = json.loads(_read_line(peer))
        except (OSError, ValueError):
            continue  # it has given up, or is somebody else
        if hello.get("meeting") != meeting or hello.get("rank") not in missing:
            _answer(peer, f"{meeting}, waiting for {names(missing)}; you are {hello}")
            peer.close()
            continue
        missing.remove(hello["rank"])
        joined[hello["rank"]] = peer
    problem = f"{names(missing)} did not connect within {timeout:g} s" if missing else ""
    for peer in joined.values():
        _answer(peer, problem)
    if missing:
        raise _refused(problem)
    return joined


def join(places: Sequence[Address], rank: int, meeting: str, timeout: float) -> socket.socket:
    """Another process's part: a connection to the first, at one of `places`.

    Raises:
      InputError: it is not found within `timeout` seconds, or says that another is missing.
    """
    end, problem = time.monotonic() + timeout, "nobody listens"
    while time.monotonic() < end:
        for place in places:
            try:
                peer = socket.create_connection(place, 2)
            except (
                OSError,
                UnicodeError,
            ) as error:  # the latter of names that no host can have
                problem = f"{place[0]}:{place[1]}: {error}"
                continue
            try:
                _answer(peer, json.dumps({"rank": rank, "meeting": meeting}))
                peer.settimeout(max(end - time.monotonic(), 0) + 5)  # it says why it fails
                if not (answer := _read_line(peer)):
                    return peer
                raise _refused(answer)
            except OSError as error:
                problem = f"{place[0]}:{place[1]}: {error}"
                peer.close()
        time.sleep(0.1)
    raise _refused(f"rank {rank} did not find rank 0 within {timeout:g} s ({problem})")


def names(ranks: Iterable[int]) -> str:
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _refused(problem: str) -> InputError:
    return InputError(
        "every rank must reach rank 0 by TCP",
        problem,
        "Start all ranks, each with its own number, the same number of ranks and rank 0's "
        "address; let firewalls pass connections between them.",
    )


def _answer(peer: socket.socket, text: str) -> None:
    with suppress(OSError):  # whoever has gone by now is noticed by its silence
        peer.sendall(text.encode() + b"\n")


def _read_line(peer: socket.socket) -> str:
    """Byte by byte: nothing of what follows the line may be taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = peer.recv(1)
        if not byte or len(line) > 4096:
            raise OSError("the other side hung up")
        line += byte
    return line[:-1].decode(errors="replace")
