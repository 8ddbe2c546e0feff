"""Which hosts, and how many ranks each has: `--hosts` and `--hostfile`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jgs.errors import InputError


@dataclass(frozen=True)
class Host:
    """A host and its ranks.

    Fields:
      name: the name by which ssh knows the host.
      first: the number of its first rank. Ranks are numbered host by host, in the given order.
      ranks: the number of its ranks, at least 1.
    """

    name: str
    first: int
    ranks: int


def from_list(text: str) -> list[Host]:
    """The hosts of `a,b:2,c`: one rank on `a`, two on `b`, one on `c`. Raises `InputError`."""
    return _numbered([word.strip() for word in text.split(",")], repr(text))


def from_file(path: str) -> list[Host]:
    """The hosts of a file with one host a line. A line is `name` or `name:2`, as MPICH reads
    it, or `name slots=2`, as Open MPI does. `#` begins a comment. Raises `InputError`."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--hostfile must be a text file", error, "Correct the path.") from None
    words = []
    for line in lines:
        name, *rest = line.partition("#")[0].split() or [""]
        if name:
            words.append(":".join([name, *(word.removeprefix("slots=") for word in rest)]))
    return _numbered(words, path)


def _numbered(words: list[str], where: str) -> list[Host]:
    hosts: list[Host] = []
    for word in words:
        name, _, ranks = word.partition(":")
        good = not ranks or (ranks.isascii() and ranks.isdigit() and int(ranks) > 0)
        if not name or name.startswith("-") or not good or word.endswith(":"):
            raise InputError(
                "a host must be NAME, or NAME:RANKS with at least one rank",
                f"{word!r} in {where}",
                "Give for example a,b or a:2,b:2.",
            )
        if any(name == host.name for host in hosts):
            raise InputError(
                "every host must be named once",
                f"{name} twice in {where}",
                f"Give it its number of ranks, as in {name}:2.",
            )
        first = hosts[-1].first + hosts[-1].ranks if hosts else 0
        hosts.append(Host(name, first, int(ranks or 1)))
    if not hosts:
        raise InputError("there must be a host", f"none in {where}", "Name the hosts.")
    return hosts
