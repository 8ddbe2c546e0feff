"""A generated graph that is larger than memory, from its edges to a trained model.

    python -m benchmarks.huge [--nodes 1e8] [--edges 3e9] [--features 128] [--steps 200]
                              [--feature-memory 4096] [--folder DIR] [--json FILE]

Each phase is a process of its own, whose private memory is watched:

- `build`: `jgs.data.build` makes the graph of skewed random edges, which come in chunks and
  never lie on the disk. It has more than 2^31 edges by default.
- `partition`: `python -m jgs.partition --method ldg` on the topology. The parts are removed.
- `features`: float16 rows are written in pieces.
- `train`: GraphSAGE (5, 10, 15) with batches of 1,024 and `--feature-memory` MiB of rows.
- `plan`: `python -m benchmarks.plan --this-machine` predicts the memory of `train`.

Private memory is that of anonymous pages. Mapped pages of files are shown beside it: the system
can take them back at any time. Bytes are those of the processes' reads and writes that reached
the disk, from /proc. Everything is removed at the end, also after Ctrl-C. If the disk has not
enough room, the program says so in one line, and its exit status is 2.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.huge_phases import BATCH, FANOUTS, HIDDEN, SKEW
from jgs import command
from jgs.errors import InputError

_REPOSITORY = Path(__file__).parents[1]
_BETWEEN = 0.2  # seconds from one look at the memory to the next
_SPARE = 1 << 30  # bytes of the disk that stay free
_WATCHED = ("private", "mapped", "read_bytes", "write_bytes")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(
        lambda: _huge(argv),
        stopped="; everything that was made is removed",
        disk=("the folder must be writable, with room", "Free space, or name another."),
        memory=("the benchmark must fit into memory", "Give less --memory."),
        kept=lambda _: "The table above says most of it.",
    )


def parser() -> command.Parser:
    found = command.Parser("python -m benchmarks.huge", "Build and train on a huge graph.")
    add = found.add_argument
    add("--nodes", type=_count, default=100_000_000)
    add("--edges", type=_count, default=3_000_000_000)
    add("--features", type=_count, default=128, help="width, float16")
    add("--steps", type=_count, default=200)
    add("--parts", type=_count, default=4)
    add("--memory", type=_count, default=2048, help="MiB for the build")
    add("--feature-memory", type=_count, default=4096, help="MiB of rows in training")
    add("--feature-block", type=int, default=32, help="as of python -m jgs.train")
    add("--batch-size", type=_count, default=BATCH)
    add("--fanouts", type=int, nargs="+", default=list(FANOUTS))
    add("--hidden", type=_count, default=HIDDEN)
    add("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add("--json", type=Path, help="where to write what was measured")
    return found


def _count(text: str) -> int:
    number = int(float(text))
    if number < 1:
        raise ValueError
    return number


def _huge(argv: Sequence[str] | None) -> dict[str, Any]:
    given = parser().parse_args(argv)
    if given.nodes < 100 * given.parts or given.nodes >= 2**31 - 1:
        raise InputError("--nodes must be from 100 a part to 2^31 - 2", given.nodes, "Correct.")
    given.folder.mkdir(parents=True, exist_ok=True)
    needed = disk_needed(given)
    free = shutil.disk_usage(given.folder).free - _SPARE
    if free < max(needed.values()):
        sizes = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in needed.items())
        raise InputError(
            f"{given.folder} must have room: {sizes}",
            f"{free / 1e9:.1f} GB",
            "Free space, name another --folder, or give fewer --edges or --features.",
        )
    with tempfile.TemporaryDirectory(prefix="jgs-huge-", dir=given.folder) as name:
        result = _phases(Path(name), given)
    result["disk_needed"] = needed
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return result


def disk_needed(given: Any) -> dict[str, int]:
    """The most bytes that the disk has in each phase.

    The build has 8 bytes an edge in its buckets, which it removes as the result of 4 bytes an
    edge grows. The parts have the edges twice. In training there are the rows of two blocks of
    steps, for which rows in memory are taken off, those that are drawn most.
    """
    nodes, edges, row = given.nodes, given.edges, 2 * given.features
    graph = 4 * edges + 12 * nodes
    drawn = given.batch_size * sum(
        math.prod(given.fanouts[:hops]) for hops in range(len(given.fanouts) + 1)
    )
    kept = min(1.0, (given.feature_memory << 20) / row / nodes)
    lacking = min(nodes, drawn) * (1 - kept ** (1 / SKEW))
    block = min(given.feature_block, given.steps)
    return {
        "build": 8 * edges + 12 * nodes + (1 << 28),
        "partition": graph + 8 * edges + 32 * nodes,
        "training": graph + row * nodes + int(2 * block * lacking * (row + 4) * 1.25),
    }


# -- the phases --------------------------------------------------------------------------------


def _phases(folder: Path, given: Any) -> dict[str, Any]:
    graph, parts = folder / "graph", folder / "parts"
    task = {
        **{name: getattr(given, name) for name in ("nodes", "edges", "features", "steps")},
        **{name: getattr(given, name) for name in ("memory", "feature_memory", "fanouts")},
        "hidden": given.hidden,
        "batch": given.batch_size,
        "block": given.feature_block,
        "graph": str(graph),
        "scratch": str(folder),
    }
    load = ["--dataset", str(graph), "--data-options", "verify=false"]

    def own(name: str) -> list[str]:
        return ["benchmarks.huge_phases", name, json.dumps(task)]

    split = [*load, "--method", "ldg", "--parts", str(given.parts), "--out", str(parts)]
    found = {"build": watched("build", own("build"))}
    found["partition"] = watched("partition", ["jgs.partition", *split])
    shutil.rmtree(parts)
    found["features"] = watched("features", own("features"))
    found["train"] = watched("train", own("train"))
    plan = ["benchmarks.plan", *load, "--this-machine"]
    for flag in ("feature_memory", "feature_block", "batch_size", "hidden"):
        plan += [f"--{flag.replace('_', '-')}", str(getattr(given, flag))]
    plan += ["--most-batches", str(given.steps), "--fanouts", *map(str, given.fanouts)]
    found["plan"] = watched("plan", plan)
    _show(found)
    return {"given": task, "phases": found}


def _show(found: dict[str, dict[str, Any]]) -> None:
    command.say(
        "| phase | seconds | private GB | mapped GB | read GB | written GB |\n"
        "|---|---|---|---|---|---|"
    )
    for name, phase in found.items():
        sizes = [f"{phase[key] / 1e9:.2f}" for key in _WATCHED]
        command.say(f"| {name} | {phase['seconds']:.0f} | {' | '.join(sizes)} |")
    train, plan = found["train"], found["plan"]["result"]
    train["over_plan"] = train["private"] / plan["memory_total"]
    result = train["result"]
    rows = result["disk_rows"] / result["steps"]
    command.say(
        f"training: {train['private'] / 1e9:.2f} GB of private memory, "
        f"{train['over_plan']:.2f} of the {plan['memory_total'] / 1e9:.2f} GB planned; "
        f"{rows:,.0f} rows a step from the disk, planned {plan['disk_rows']:,.0f}; "
        f"{result['steps_a_second']:.2f} steps a second, planned {plan['steps_a_second']:.2f}"
    )


def watched(name: str, module: Sequence[str]) -> dict[str, Any]:
    """Runs `python -m` in a process of its own. Returns its seconds, the largest private and
    mapped memory, the bytes it read from the disk and wrote, and its JSON line."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    seen = dict.fromkeys(_WATCHED, 0)
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            while process.poll() is None:
                now = _state(process.pid)
                seen = {key: max(most, now.get(key, 0)) for key, most in seen.items()}
                time.sleep(_BETWEEN)
        except BaseException:
            process.terminate()
            raise
        seconds = time.perf_counter() - began
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise InputError(
            f"the phase {name} must end well",
            f"exit status {process.returncode}",
            "The lines above say why.",
        )
    command.say(f"{name}: {seconds:.0f} s, {seen['private'] / 1e9:.2f} GB private; {said}")
    return {"seconds": seconds, **seen, "result": json.loads(said.splitlines()[-1])}


def _state(pid: int) -> dict[str, int]:
    """The bytes of memory of a process, and those that it read and wrote."""
    try:
        sizes = _fields(f"/proc/{pid}/smaps_rollup")
        io = _fields(f"/proc/{pid}/io")
    except (OSError, ValueError):  # the process has just ended
        return {}
    private = sum(size for name, size in sizes.items() if name.startswith("Private_"))
    anonymous = sizes.get("Anonymous", 0)
    return {
        "private": anonymous << 10,
        "mapped": max(0, private - anonymous) << 10,
        "read_bytes": io["read_bytes"],
        "write_bytes": io["write_bytes"],
    }


def _fields(path: str) -> dict[str, int]:
    lines = Path(path).read_text().splitlines()
    return {
        name: int(rest.split()[0])
        for name, colon, rest in (line.partition(":") for line in lines)
        if colon and rest.split()[0].isdigit()
    }


if __name__ == "__main__":
    sys.exit(main())
