"""The report: what `distributed.py` measured, as Markdown."""

from __future__ import annotations

from statistics import mean, median

_PARTS = ("sampling", "features", "computing")


def render(results: dict) -> str:
    """Markdown of a run's JSON, which has the keys that `distributed.main` writes."""
    sections = {
        "distdgl": _distdgl,
        "figure6": _figure6,
        "figure10": _figure10,
        "cache": _cache,
    }
    parts = [_header(results)]
    for key, section in sections.items():
        if any(run["benchmark"] == key for run in results["runs"]):
            parts.append(section(_joined(results["runs"], key)))
    if results["failures"]:
        lines = [f"- {f['benchmark']}, {f['name']}: {f['error']}" for f in results["failures"]]
        parts.append("\n".join(["Failed:", "", *lines]))
    return "\n\n".join(parts)


def _header(results: dict) -> str:
    m, s = results["machine"], results["setting"]
    scale, edges = s["size"]
    versions = ", ".join(f"{name} {v}" for name, v in m["versions"].items())
    return "\n".join(
        [
            f"- Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {m['system']}; "
            f"transparent huge pages {m['huge_pages']}; load {m['load_before']} at the start.",
            f"- {versions}. Hosts: {results['hosts']}; a core and a thread for each rank.",
            f"- RMAT, {2**scale:,} nodes, {2 * edges:,} directed edges drawn, "
            f"{s['num_train']:,} to train on, {s['batch']} seeds a rank and iteration.",
            f"- Medians in milliseconds. The planned cache has {results['planned_mib']} MiB a "
            "rank. Tuned: glibc's allocator told to keep its memory, for both sides.",
        ]
    )


def _joined(runs: list[dict], key: str) -> dict[tuple, list[dict]]:
    """The results of all ranks and rounds, by contender."""
    found: dict[tuple, list[dict]] = {}
    for run in runs:
        if run["benchmark"] == key:
            which = tuple(run[name] for name in ("name", "num_ranks", "emulated", "tuned"))
            found.setdefault(which, []).extend(run["ranks"])
    return found


def _times(ranks: list[dict]) -> tuple[float, list[float]]:
    """The milliseconds of an iteration, and of each of its parts."""
    parts = [median(ms for rank in ranks for ms in rank["parts"][part]) for part in _PARTS]
    return median(ms for rank in ranks for ms in rank["ms"]), parts


def _distdgl(found: dict[tuple, list[dict]]) -> str:
    lines = [
        "| distdgl | an iteration | range | over DistDGL | sampling + features + computing "
        "and reducing | MB on the cable | nodes / edges |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, _, _, tuned), ranks in found.items():
        ms, parts = _times(ranks)
        base = found.get(("DistDGL", 2, False, tuned))
        ratio = f"{ms / _times(base)[0]:.2f}" if base else ""
        each = sorted(median(rank["ms"]) for rank in ranks)
        moved = [size for rank in ranks for size in rank.get("bytes", ())]
        cells = [
            f"{name}, {'tuned' if tuned else 'as installed'}",
            f"{ms:.1f}",
            f"{each[0]:.0f}-{each[-1]:.0f}",
            ratio,
            " + ".join(f"{part:.1f}" for part in parts),
            f"{mean(moved) / 1e6:.2f}" if any(moved) else "",
            _size(ranks),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _size(ranks: list[dict]) -> str:
    """Nodes and edges of a rank's last batch, which show that all do the same work."""
    if "nodes" not in ranks[0]:
        return ""
    return " / ".join(
        f"{mean(rank[name] for rank in ranks):,.0f}" for name in ("nodes", "edges")
    )


def _figure6(found: dict[tuple, list[dict]]) -> str:
    lines = [
        "| figure6 | ranks | network | epoch, s | over hybrid, fused | sampling | features "
        "| computing | communication | all but computing | rounds | MB sent |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, num_ranks, emulated, tuned), ranks in found.items():
        fused = found.get(("hybrid, fused", num_ranks, emulated, tuned))
        ratio = f"{_epoch(ranks) / _epoch(fused):.2f}" if fused else ""
        alone = [median(rank["communication"][part] for rank in ranks) for part in _PARTS]
        local = [ms - a for ms, a in zip(_times(ranks)[1], alone, strict=True)]
        cells = [
            name,
            str(num_ranks),
            "emulated" if emulated else "plain",
            f"{_epoch(ranks):.2f}",
            ratio,
            *(f"{ms:.1f}" for ms in (*local, sum(alone), sum(local[:2]) + sum(alone))),
            f"{median(n for rank in ranks for n in rank['rounds']):.0f}",
            f"{_sent(ranks):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Times are of an iteration, communication without waiting for the other ranks' work; "
        "bytes are those of a rank and an iteration.",
    ]
    return "\n".join(lines)


def _figure10(found: dict[tuple, list[dict]]) -> str:
    lines = [
        "| figure10 | ranks | network | edges cut | MB sent | an iteration | sampling + "
        "features + computing | over random parts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, num_ranks, emulated, tuned), ranks in found.items():
        ms, parts = _times(ranks)
        base = found.get((f"{name.split(',')[0]}, random", num_ranks, emulated, tuned))
        rows = [sum(rank["sent"]) - rank["gradient_bytes"] for rank in ranks]
        cells = [
            name,
            str(num_ranks),
            "emulated" if emulated else "plain",
            f"{ranks[0]['cut']:.1%}" if "cut" in ranks[0] else "",
            f"{mean(rows) / len(ranks[0]['sent']) / 1e6:.2f}",
            f"{ms:.1f}",
            " + ".join(f"{part:.1f}" for part in parts),
            f"{ms / _times(base)[0]:.2f}" if base else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "MB are those of a rank and an iteration, without gradients. The graph is one of "
        "planted communities.",
    ]
    return "\n".join(lines)


def _epoch(ranks: list[dict]) -> float:
    return median(sum(rank["ms"]) / 1e3 for rank in ranks)


def _sent(ranks: list[dict]) -> float:
    return mean(size for rank in ranks for size in rank["sent"]) / 1e6


def _cache(found: dict[tuple, list[dict]]) -> str:
    lines = [
        "| cache | MB of features sent by a rank in an epoch | none's over it | an iteration |",
        "|---|---|---|---|",
    ]
    none = None
    for (name, *_), ranks in found.items():
        rows = mean(sum(rank["sent"]) - rank["gradient_bytes"] for rank in ranks) / 1e6
        none = rows if name == "none" else none
        ratio = f"{none / rows:.2f}" if none else ""
        lines.append(f"| {name} | {rows:.1f} | {ratio} | {_times(ranks)[0]:.1f} |")
    lines += ["", "Requests, padding and the filling of the cache are counted."]
    return "\n".join(lines)
