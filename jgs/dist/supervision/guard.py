"""The guard: a small process beside each rank. It watches all ranks, and speaks for its own.

A rank cannot do that by itself: MPI_Init and long imports hold Python's lock, a stopped process
says nothing, and mpiexec kills all ranks as soon as one is killed, before they can say why. The
guard has a session of its own, needs the standard library alone, and ends with its rank.

The guard hears from its rank over a socket; `jgs.dist.supervision.watchdog.Watch` has the other
end. Four times a second and at each new phase the rank tells the phase and the step that it is
in, and how far it has counted (`jgs.dist.supervision.phases`).

All guards are connected to the guard of process 0, the *hub*, by TCP, or within one host by a
Unix socket. The hub alone decides that a rank is lost. A rank is lost where:

- it has not come `start_timeout` seconds after the hub's own start;
- its process ended without a word, or its guard's connection broke, or it said that an error
  ended it. Where several ranks end, the first counts, because mpiexec kills the others once one
  is killed;
- nothing was heard of it for as long as it said that its silence may last;
- no rank's count has moved for as long as the most patient of their phases may last. The ranks
  that have counted least are then lost.

Every other guard then prints one line on standard error, and ends its own rank. The line names
the lost rank, where it was last seen, and the last checkpoint. Guards that lose the hub do the
same by themselves.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from jgs.dist.communicators.start import BEAT, Line, names
from jgs.dist.supervision import lost
from jgs.dist.supervision.lost import CONNECTING

LOST = 3
"""The exit status of a process that ends because another one was lost."""

GRACE = 0.3  # seconds in which the rank that died is told from those that mpiexec then kills
LINGER = 3.0  # the most seconds for which a guard outlives its rank


class Guard:
    """See the module.

    Args:
      rank: the socket to the rank.
      listeners: the sockets at which the other guards find the hub; the hub alone has some.
      setup: the fields of a `jgs.dist.communicators.start.Meeting`; `pid`, the rank's;
        `start_timeout`; `begun`, when the guard was asked for; `by_signal`, whether the rank
        must end by SIGKILL.
    """

    def __init__(
        self, rank: socket.socket, listeners: Iterable[socket.socket], setup: dict[str, Any]
    ):
        self._pid, self._number = setup["pid"], setup["number"]
        self._meetings, self._places = [setup["name"]], setup["places"]
        self._certain, self._limit = setup["certain"], setup["start_timeout"]
        self._by_signal = setup["by_signal"]
        self._names = [[n] for n in range(setup["size"])]
        self._rank, self._rank_lives, self._rank_spoke_up = Line(rank), True, False
        self._peers: dict[int, Line] = {}
        self._missing = set(range(setup["size"])) - {self._number} if self._hub else {0}
        self._met = self._over = False
        self._begun = self._moved = self._joined = time.monotonic()
        self._awake = setup["begun"]  # when this process was last seen to run
        self._far: dict[int, list[int]] = {}
        self._asked = False  # whether the rank waits for `met`
        self._problem = "nobody listens"
        self._loss: dict[str, Any] = {}  # what to tell the hub of this rank's end
        self._lost: list[tuple[float, int, str, int]] = []
        self._deadline = float("inf")  # when it decides, or no longer outlives its rank
        self._selector = selectors.DefaultSelector()
        self._listeners = list(listeners)
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(rank, selectors.EVENT_READ, self._hear_rank)

    @property
    def _hub(self) -> bool:
        return self._number == 0

    def run(self) -> None:
        beaten = 0.0
        while not self._over:
            if (now := time.monotonic()) - beaten >= BEAT:
                beaten = now
                self._report()
                self._join()
            for key, _ in self._selector.select(BEAT / 2):
                if not self._over and key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                    key.data(key.fileobj)
            self._awake = time.monotonic()
            # All that had arrived has been read, so a pause of this guard makes no rank silent.
            if not self._over:
                self._check(self._awake)
        for peer in self._peers.values():
            peer.part()

    # -- the rank ------------------------------------------------------------------------------

    def _hear_rank(self, _: socket.socket) -> None:
        messages, lives = self._rank.read()
        for message in messages:
            if "seen" in message:
                self._rank.said |= message["seen"]
                self._rank.spoke = time.monotonic()
            elif "join" in message:
                self._meetings.append(message["join"])
                self._places, self._certain = message["places"], True
                self._names = message["names"]
            elif "wait" in message:
                self._asked = True
                if message["wait"] is not None:
                    self._begun, self._limit = time.monotonic(), message["wait"]
                self._tell_met()
            elif "bye" in message:
                self._tell(bye=True)
                self._over = True
                return
            elif "failed" in message and not self._rank_spoke_up:
                self._rank_spoke_up = True
                self._report_lost(message["failed"], message["status"])
        if not lives:
            self._selector.unregister(self._rank.connection)
            self._rank_lives = False
            if not self._rank_spoke_up:
                text = f"{self._name([self._number])} is gone (killed, or crashed)"
                self._report_lost(f"{text} {lost.where(self._rank.said)}", LOST)
            if self._hub or self._peers or not self._certain:
                self._deadline = min(self._deadline, time.monotonic() + LINGER)

    def _report_lost(self, text: str, status: int) -> None:
        now = min(time.monotonic(), self._awake + BEAT)  # the guard may have had no processor
        if self._hub:
            self._take_loss(now, self._number, text, status)
        else:
            self._loss = {"lost": text, "status": status, "at": now}
            self._tell(**self._loss)
            self._deadline = now + LINGER
            if self._certain and not self._peers:  # rank 0 may come later, and is told then
                self._deadline = max(self._deadline, self._begun + self._limit)
                if not self._rank_spoke_up:
                    self._write(text)
                # Whoever reads standard error would wait for this guard to close it.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def _tell_met(self) -> None:
        if self._met and self._asked:
            self._rank.say(met=True)
            self._asked = False

    # -- meeting -------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            guest = Line(listener.accept()[0])
            self._selector.register(
                guest.connection, selectors.EVENT_READ, lambda _: self._greet(guest)
            )

    def _greet(self, guest: Line) -> None:
        messages, lives = guest.read()
        if lives and not messages:
            return
        self._selector.unregister(guest.connection)
        hello = messages[0] if messages else {}
        number = hello.get("number")
        if hello.get("meeting") not in self._meetings or number not in self._missing:
            waiting = f"{self._meetings[-1]}, waiting for {self._name(self._missing)}"
            guest.say(refused=f"{waiting}; you are {hello}")
            guest.connection.close()
            return
        self._missing.remove(number)
        self._joined = guest.heard = guest.spoke = time.monotonic()
        guest.say(welcome=True)
        self._welcome(number, guest, messages[1:])
        if not self._missing:
            if self._lost:
                self._deadline = min(self._deadline, self._joined + self._grace())
            for listener in self._listeners:
                self._selector.unregister(listener)
                listener.close()
            self._met = True
            self._tell(met=True)
            self._tell_met()

    def _join(self) -> None:
        if self._hub or not self._missing:
            return
        for place in self._places:
            unix = isinstance(place, str)
            try:
                if unix:
                    connection = socket.socket(socket.AF_UNIX)
                    connection.connect(place)
                else:
                    connection = socket.create_connection(tuple(place), 1)
            except (OSError, UnicodeError) as error:  # UnicodeError: no host has such a name
                where = "this host" if unix else f"{place[0]}:{place[1]}"
                self._problem = f"{where}: {error}"
                continue
            line = Line(connection)
            line.say(number=self._number, meeting=self._meetings[-1])
            connection.settimeout(2)
            try:
                messages, lives = line.read()
            except OSError:
                messages, lives = [], False
            connection.settimeout(BEAT)
            if not (lives and messages and "welcome" in messages[0]):
                self._problem = messages[0].get("refused", "") if messages else "no answer"
                connection.close()
                continue
            self._missing.clear()
            self._welcome(0, line, messages[1:])
            self._report()
            if self._loss:
                line.say(**self._loss)
            return

    def _welcome(self, number: int, peer: Line, messages: list[dict[str, Any]]) -> None:
        self._peers[number] = peer
        self._selector.register(
            peer.connection, selectors.EVENT_READ, lambda _: self._hear(number, peer)
        )
        for message in messages:
            self._take(number, peer, message)

    # -- other guards --------------------------------------------------------------------------

    def _hear(self, number: int, peer: Line) -> None:
        messages, lives = peer.read()
        for message in messages:
            if not self._over and number in self._peers:
                self._take(number, peer, message)
        if not lives and number in self._peers and not self._over:
            self._selector.unregister(peer.connection)
            text = f"{self._name([number])} is gone (its connection broke)"
            if self._hub:
                del self._peers[number]
                self._take_loss(time.monotonic(), number, text, LOST)
            else:
                self._end(text, LOST, number)

    def _take(self, number: int, peer: Line, message: dict[str, Any]) -> None:
        now = time.monotonic()
        if "at" in message:
            peer.behind = min(peer.behind, now - message["at"])
        if "lost" in message:
            happened = message["at"] + peer.behind
            self._take_loss(happened, number, message["lost"], message["status"])
        elif "bye" in message:
            self._selector.unregister(peer.connection)
            self._peers.pop(number).connection.close()
        elif "end" in message:
            self._end(message["end"], message["status"], message["who"])
        elif "met" in message:
            self._met = True
            self._tell_met()
        elif "seen" in message:
            peer.said, peer.spoke = message["seen"], now - message["age"]

    def _report(self) -> None:
        now = time.monotonic()
        self._tell(seen=self._rank.said, age=now - self._rank.spoke, at=now)

    def _tell(self, **message: Any) -> None:
        for peer in list(self._peers.values()):
            peer.say(**message)

    # -- deciding ------------------------------------------------------------------------------

    def _take_loss(self, happened: float, number: int, text: str, status: int) -> None:
        self._lost.append((happened, number, text, status))
        self._deadline = min(self._deadline, time.monotonic() + self._grace())

    def _grace(self) -> float:
        if self._missing and self._by_signal:
            return LINGER
        return GRACE if self._by_signal else GRACE / 6

    def _check(self, now: float) -> None:
        if now > self._deadline:
            if self._lost:
                _, number, text, status = min(self._lost)
                self._decide(text, status, [number])
            elif self._loss:
                self._end(self._loss["lost"], LOST, self._number)
            self._over = True
        elif self._missing:
            self._check_missing(now)
        elif not self._hub and self._peers:
            quiet = now - self._peers[0].heard
            if quiet > self._rank.said.get("silence", self._limit):
                self._end(f"nothing heard of {self._name([0])} for {quiet:.0f} s", LOST, 0)
        elif self._hub and self._peers:
            self._check_ranks(now)

    def _check_missing(self, now: float) -> None:
        waits = self._certain or self._rank.said.get("phase", "starting") in _BEFORE
        if not waits or now - self._begun <= self._limit:
            return
        limit = f"within {self._limit:g} s"
        if self._hub:
            problem = f"{self._name(self._missing)} did not connect {limit}"
        else:
            problem = f"{self._name([self._number])} did not find rank 0 {limit}"
            problem += f" ({self._problem})"
        self._decide(problem, LOST, [])

    def _check_ranks(self, now: float) -> None:
        everyone = {0: self._rank} | self._peers
        said = {n: line.said for n, line in everyone.items()}
        quiet = {n: now - max(line.spoke, self._joined) for n, line in everyone.items()}
        far = {n: lost.counts(each) for n, each in said.items()}
        if far != self._far:
            self._far, self._moved = far, now
        found = lost.silent(said, quiet, self._limit, self._name)
        found = found or lost.stuck(said, quiet, now - self._moved, self._limit, self._name)
        if found:
            self._decide(found[0], LOST, found[1])

    def _decide(self, text: str, status: int, who: list[int]) -> None:
        self._over, cause = True, who[0] if len(who) == 1 else -1
        self._tell(end=text, status=status, who=cause)
        self._end(text, status, cause)

    # -- the end -------------------------------------------------------------------------------

    def _end(self, problem: str, status: int, cause: int) -> None:
        """Says why its rank ends, and ends it. Nothing is said of a rank that has said why
        itself. Nothing is said either of a rank whose end is the cause, if another guard is
        there to say it."""
        self._over = True
        if self._asked:  # the rank waits for the others, and says itself why in vain
            self._rank.say(unmet=problem)
            return
        own = cause == self._number and not self._rank_lives
        if not self._rank_spoke_up and not (own and self._peers):
            line = problem if own else f"{self._name([self._number])} ends: {problem}"
            if checkpoint := self._rank.said.get("checkpoint"):
                line += f"; last checkpoint: {checkpoint}"
            self._write(line)
        if not self._rank_lives or self._rank_spoke_up:
            return
        if self._by_signal and status == LOST:
            self._kill()
            return
        self._rank.say(end=status)
        self._rank.connection.settimeout(LINGER / 2)
        with suppress(OSError):
            while self._rank.connection.recv(65536):
                pass
            return
        self._kill()  # the rank is stopped, or stuck

    def _write(self, line: str) -> None:
        with suppress(OSError):
            os.write(2, line.encode() + b"\n")

    def _kill(self) -> None:
        with suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)

    def _name(self, processes: Iterable[int]) -> str:
        return names(rank for p in processes for rank in self._names[p])


_BEFORE = ("starting", CONNECTING)  # the phases of a rank that MPI has not connected yet


def main(argv: list[str]) -> None:
    """Runs a guard. `argv` is `JSON FD [FD...]`: the setup, the socket to the rank, and the
    hub's listeners."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank, *listeners = (socket.socket(fileno=int(fd)) for fd in argv[1:])
    Guard(rank, listeners, json.loads(argv[0])).run()
