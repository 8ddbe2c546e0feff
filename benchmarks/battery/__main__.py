"""What a sample promises, tried on jgs and on what is installed beside it.

    python -m benchmarks.battery [--peers dgl graphbolt kumo pyg rustler] [--quick]
        [--cache FOLDER] [--testu01 PREFIX] [--out docs/battery.md]

Each library is asked through its adapter (`benchmarks/battery/adapters/`), in processes with
its own pinned packages, which `benchmarks/peers.py` installs in the cache. Prints Markdown: a
row a promise, a column a library, then what was counted. `--quick` tries less of everything,
and no random numbers unless `--testu01` says where TestU01 is.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path

from benchmarks import machine, peers
from benchmarks.__main__ import CACHE, command_line, say
from benchmarks.__main__ import environment as environment_of
from benchmarks.battery import edges, laws, numbers, same, tests
from benchmarks.battery.graphs import Graphs
from benchmarks.battery.library import Direct, Library, Refused
from benchmarks.battery.ways import FULL, QUICK, Outcome, Size, Trial

PROMISES: dict[str, Callable[[Trial], dict[str, Outcome]]] = {
    **same.PROMISES,
    **edges.PROMISES,
    **laws.PROMISES,
}
# The adapter and the interpreter of each peer.
PEERS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "dgl": ("dgl_", peers.python),
    "graphbolt": ("graphbolt", peers.python),
    "kumo": ("kumo", peers.kumo_python),
    "pyg": ("pyg", peers.pyg_python),
    "rustler": ("rustler", peers.rustler_python),
}
_LEAST = "COMPILE_TIME_SECS", "ENTRY_SIZE_BYTES"
Found = dict[str, dict[str, Outcome]]  # by promise, then by way

INTRO = """# The invariance battery

A library of samplers promises more than that it draws neighbours: that the same key gives the
same sample, that no edge is drawn from after its cutoff, that each outcome is as likely as it
should be. `python -m benchmarks.battery --out docs/battery.md` tries such promises on jgs and
on libraries beside it, and wrote this page. `--quick` takes a few minutes.

A cell is *pass*, *fail* with what failed, *not offered* (–), or *not tried*: the library could
not be installed. A number in brackets counts the ways to draw that were tried, such as by
weight or before cutoffs; [the counts](#what-was-counted) are below. A promise that a library
does not make can fail here: most do not say that a sample is the same with other threads. For
samplers with a stream of random numbers, "the same" means that the stream begins at the same
seed.

Each law is tried by a chi-square test or an exact binomial one. Holm's procedure keeps the
chance that any test of the page fails without a reason below {chance:g}. Edges are told apart
by their positions. Where a library counts facts at the cutoff itself as past, it was asked for
the moment before.
"""


def main(argv: list[str] | None = None) -> int:
    parser = command_line("battery", __doc__)
    add = parser.add_argument
    add("--peers", nargs="*", choices=PEERS, default=list(PEERS), metavar="NAME")
    add("--quick", action="store_true", help="less of everything")
    add("--cache", type=Path, default=CACHE, help="of the peers' environments")
    add("--testu01", type=Path, help="where it was installed, if not by the system")
    add("--out", type=Path, help="the file to write; otherwise it is printed")
    given = parser.parse_args(argv)
    size, begun = QUICK if given.quick else FULL, time.monotonic()
    found: dict[str, Found] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="jgs-battery-") as folder:
        graphs = Graphs(Path(folder), size.copies)
        for name, library in started(["jgs", *given.peers], given.cache, Path(folder), size):
            if isinstance(library, str):
                missing[name] = library
                continue
            try:
                said, tried = tried_by(library, graphs, size)
            except Refused as error:
                missing[name] = str(error)
                library.close()
                continue
            found[said] = tried
            say(f"{said}: {time.monotonic() - begun:.0f} s")
            if given.out:  # so far
                given.out.write_text(render(judge(found), missing, ""))
    found = judge(found)
    random_numbers = ""
    if given.testu01 or not given.quick:
        random_numbers = numbers.crushed(32, given.testu01)
    page = render(found, missing, random_numbers, given.quick)
    say(f"{time.monotonic() - begun:.0f} s in all")
    if given.out:
        given.out.write_text(page)
    else:
        print(page, end="")
    return int(bool(failures(next(iter(found.values())))))


def started(
    names: list[str], cache: Path, folder: Path, size: Size
) -> Iterator[tuple[str, Library | str]]:
    """Each library by its name, as `opened` gives it. While one is tried, the processes of the
    next begin."""

    def begun(name: str) -> tuple[str, Library | str]:
        library = opened(name, cache.resolve(), folder)
        if isinstance(library, Library):
            library.start(size.threads)
        return name, library

    ahead = begun(names[0])
    for name in names[1:]:
        now, ahead = ahead, begun(name)
        yield now
    yield ahead


def opened(name: str, cache: Path, folder: Path) -> Library | str:
    """The library `name`, or why it cannot be tried. `folder` keeps what jgs's processes have
    compiled, for the next of them."""
    if name == "jgs":
        own = {"JAX_NUM_CPU_DEVICES": "3"}  # which are ranks
        own |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
        own |= {f"JAX_PERSISTENT_CACHE_MIN_{name}": "0" for name in _LEAST}
        return Library("jgs_", [sys.executable], environment_of(2, False) | own)
    adapter, interpreter = PEERS[name]
    try:
        python = interpreter(cache)
    except peers.Missing as reason:
        return str(reason)
    return Library(adapter, [str(python)], environment_of(2, False, True), quiet=True)


def tried_by(
    library: Library | Direct, graphs: Graphs, size: Size, names: Iterable[str] = PROMISES
) -> tuple[str, Found]:
    """The library with its version, and what was found of each promise."""
    trial, found = Trial(library, graphs, size), {}
    versions = library.versions()
    for name in names:
        begun = time.monotonic()
        found[name] = PROMISES[name](trial)
        say(f"  {name}: {time.monotonic() - begun:.1f} s")
        if name in ("the same law for renumbered nodes", "law at a hub of 5 million"):
            library.forget()
    library.close()
    return ", ".join(f"{each} {version}" for each, version in versions.items()), found


def judge(found: dict[str, Found]) -> dict[str, Found]:
    """The same with each law kept or not, all of them together."""
    every = [o.p for of in found.values() for ways in of.values() for o in ways.values()]
    least = tests.judged([p for p in every if p is not None])

    def one(outcome: Outcome) -> Outcome:
        if outcome.p is None:
            return outcome
        return Outcome("pass" if outcome.p >= least else "fail", outcome.figure, outcome.p)

    return {
        library: {name: {way: one(o) for way, o in ways.items()} for name, ways in of.items()}
        for library, of in found.items()
    }


def cell(ways: dict[str, Outcome]) -> str:
    """What a table says of a promise and a library."""
    if not ways:
        return "–"
    if said := [o.figure for o in ways.values() if o.kind == "said"]:
        return said[0].split(": ")[0]
    failed = {way: o for way, o in ways.items() if o.kind == "fail"}
    if not failed:
        return f"pass ({len(ways)})"
    each = "; ".join(f"{way} {_short(o.figure)}" for way, o in failed.items())
    whole = f"**fails** ({len(failed)} of {len(ways)})"
    return f"{whole}: {each}" if len(failed) < 4 else whole


def _short(figure: str) -> str:
    """A figure without the numbers that the counts below the table have."""
    return next((part for part in figure.split(", ") if part.startswith("p ")), figure)


def failures(found: Found) -> list[str]:
    return [
        f"{name}: {way}: {outcome.figure}"
        for name, ways in found.items()
        for way, outcome in ways.items()
        if outcome.kind == "fail"
    ]


def render(
    found: dict[str, Found], missing: dict[str, str], random_numbers: str, quick: bool = False
) -> str:
    about = machine.describe()
    parts = [INTRO.format(chance=tests.CHANCE)]
    parts.append(
        f"{date.today()}, {about['cpu']}, {about['cores']} cores, {about['system']}."
        + (" This is the quick form, with less of everything.\n" if quick else "\n")
    )
    columns = [library.partition(", ")[0] for library in found]
    head = ["promise", *columns, *missing]
    rows = [head, ["---"] * len(head)]
    for name in PROMISES:
        cells = [cell(of[name]) for of in found.values()] + ["not tried"] * len(missing)
        rows.append([name, *cells])
    parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    parts.append("With " + "; ".join(f"{library}" for library in found) + ".\n")
    for name, reason in missing.items():
        parts.append(f"{name} was not tried: {reason}\n")
    if random_numbers:
        parts.append(f"## The random numbers\n\n{random_numbers}\n")
    parts.append("## What was counted\n")
    for name, promise in PROMISES.items():
        lines = [f"### {name.capitalize()}\n"]
        if promise.__doc__:
            lines.append(" ".join(promise.__doc__.split()) + "\n")
        for column, of in zip(columns, found.values(), strict=True):
            each = [f"{way} {o.figure}".strip() for way, o in of[name].items()]
            lines += [f"- {column}: {'; '.join(each)}."] if each else []
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
