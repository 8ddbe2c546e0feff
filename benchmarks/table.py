"""The report: what `__main__.py` measured, as Markdown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.contenders import BENCHMARKS, SHADOW_ALL, UNIFORM, WEIGHTED, Benchmark

_TOLERANCE = 0.02  # how far nodes and edges may differ from a peer's
_VARIANTS = ((False, "as installed"), (True, "tuned"))
_DGL = ("DGL, not fused, int32", "DGL, fused, int64", "GraphBolt")


def render(results: dict) -> str:
    """Markdown of a run's JSON, which has the keys that `__main__.main` writes."""
    runs = _Runs(results["runs"])
    parts = [_header(results)]
    sections = (
        _sampling,
        *[_described] * 4,
        _walks,
        _described,
        _subgraphs,
        partial(_over_block, "Mean"),
        partial(_over_block, "Softmax over edges and the sum weighted by it"),
        _step,
    )
    for benchmark, section in zip(BENCHMARKS, sections, strict=True):
        if any(run["benchmark"] == benchmark.key for run in results["runs"]):
            parts.append(section(benchmark, runs, results))
    if results["failures"]:
        lines = [
            f"- {f['benchmark']}, {f['contender']}, {dict(_VARIANTS)[f['tuned']]}: {f['error']}"
            for f in results["failures"]
        ]
        parts.append("\n".join(["Failed:", "", *lines]))
    return "\n\n".join(parts)


class _Runs:
    """The runs of one contender at one setting, all rounds together."""

    def __init__(self, runs: list[dict]):
        self.all = runs

    def of(self, key: str, setting: str, contender: str, tuned: bool) -> list[dict]:
        wanted = (key, setting, contender, tuned)
        names = ("benchmark", "name", "contender", "tuned")
        return [run for run in self.all if tuple(run[n] for n in names) == wanted]

    def median(self, *which) -> float | None:
        """The median milliseconds of the iterations of all rounds; None if it did not run."""
        times = [ms for run in self.of(*which) for ms in run["ms"]]
        return median(times) if times else None

    def mean(self, field: str, key: str, setting: str, contender: str) -> float | None:
        both = (
            run for tuned in (False, True) for run in self.of(key, setting, contender, tuned)
        )
        values = [run[field] for run in both]
        return sum(values) / len(values) if values else None


def _header(results: dict) -> str:
    m, g = results["machine"], results["graph"]
    versions = ", ".join(f"{name} {v}" for name, v in m["versions"].items())
    lines = [
        f"- Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {m['system']}; "
        f"transparent huge pages {m['huge_pages']}; load {m['load_before']} at the start.",
        f"- {versions}. Peers: {results['peers']}. {results['threads']} threads each.",
        f"- Graph: RMAT, {g['nodes']:,} nodes, {g['edges']:,} directed edges, largest degree "
        f"{g['largest_degree']:,}, {g['without_edges']:.0%} of the nodes without edges.",
        "- Medians in milliseconds; every ratio is the contender's time over jgs's. Tuned: "
        "glibc's allocator told to keep its memory, for both sides.",
    ]
    if reads := _limit(results):
        lines.append(
            f"- Random 4-byte reads of the graph's edges, prefetched: {reads['mapped']:.1f} ns "
            f"each ({reads['huge_pages']:.1f} ns in huge pages)."
        )
    if results["quick"]:
        lines.append(
            "- **Quick run: a small graph and few iterations, for a first look only.**"
        )
    return "\n".join(lines)


def _limit(results: dict) -> dict | None:
    rounds = results["random_reads"]
    if not rounds:
        return None
    return {where: median(r[where] for r in rounds) for where in ("mapped", "huge_pages")}


def _table(benchmark: Benchmark, runs: _Runs, last: str, cell: Callable) -> list[str]:
    """A row for everything that ran, whose last cell is `cell(setting, contender)`."""
    lines = [
        f"| {benchmark.key} | | as installed | ratio | tuned | ratio | {last} |",
        "|---|---|---|---|---|---|---|",
    ]
    first = benchmark.contenders[0].name
    for setting in (s["name"] for s in benchmark.settings):
        label = setting
        for contender in (c.name for c in benchmark.contenders):
            cells = []
            for tuned, _ in _VARIANTS:
                mine = runs.median(benchmark.key, setting, contender, tuned)
                base = runs.median(benchmark.key, setting, first, tuned)
                cells += [_ms(mine), _ratio(mine, base)]
            if cells[0] or cells[2]:
                row = [label, contender, *cells, cell(setting, contender)]
                lines.append(f"| {' | '.join(row)} |")
                label = ""
    return lines


def _sampling(benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    key, first = benchmark.key, benchmark.contenders[0].name

    def size(setting: str, contender: str) -> str:
        mine = [runs.mean(f, key, setting, contender) for f in ("nodes", "edges")]
        base = [runs.mean(f, key, setting, first) for f in ("nodes", "edges")]
        text = " / ".join(f"{value:,.0f}" for value in mine)
        if None in base:
            return text
        same = all(abs(a - b) <= _TOLERANCE * b for a, b in zip(mine, base, strict=True))
        return text if same else f"{text} **not the same work**"

    lines = [*_table(benchmark, runs, "nodes / edges", size), ""]
    for setting in (s["name"] for s in UNIFORM):
        lines += _against_best(runs, key, setting, results)
    lines += _weighted(benchmark, runs)
    lines += _memory(runs, key, results)
    return "\n".join(lines)


def _drawn(benchmark: Benchmark, runs: _Runs, what: str = "distinct source nodes") -> list[str]:
    def size(setting: str, contender: str) -> str:
        both = (runs.mean(f, benchmark.key, setting, contender) for f in ("nodes", "edges"))
        return " / ".join(f"{value:,.0f}" for value in both if value is not None)

    return _table(benchmark, runs, f"{what} / edges", size)


_ABOUT = {
    "links": "Links with a uniform negative each; the links and their reverses are left out. "
    "DGL and GraphBolt drop them after drawing, so their fanouts fall short.",
    "labor": "LABOR-0. GraphBolt draws exactly the fanout for each node, jgs as many on "
    "average.",
    "layerwise": "DGL is its example of LADIES, written with its sparse matrices.",
    "learned": "The probabilities are learned: both sides compute them for every batch, of "
    "equal parameters and features. DGL has neither sampler: its side is written with its "
    "sparse matrices.",
    "visits": "The 10 nodes that 200 walks of at most 10 steps visit most, of each seed, in "
    "one hop; a walk ends with 0.5 before each later step. DGL counts visits of the seed too.",
}


def _described(benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    return "\n".join([_ABOUT[benchmark.key], "", *_drawn(benchmark, runs)])


def _walks(benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    """The last column has the steps, the time of a step, and its ratio to a random read."""
    key, reads = benchmark.key, _limit(results)

    def steps(setting: str, contender: str) -> str:
        count, ms = (
            runs.mean("steps", key, setting, contender),
            runs.median(key, setting, contender, False),
        )
        if not count or ms is None:
            return ""
        ns = 1e6 * ms / count
        over = f", {_ratio(ns, reads['mapped'])}" if reads else ""
        return f"{count:,.0f}, {ns:.1f} ns each{over}"

    intro = (
        "Walks of length 80. A step's time over that of a random read of the mapped edges, "
        "both of all threads: a step cannot do without one. Those that end with 0.1 may with "
        "DGL do so before their first step."
    )
    last = "steps, as installed: time, over a read"
    return "\n".join([intro, "", *_table(benchmark, runs, last, steps)])


def _subgraphs(benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    intro = (
        "A subgraph a call, with all edges among its nodes; drawing the nodes is included. DGL "
        "has its graph in all formats and keeps its weights of nodes and edges."
    )
    lines = [intro, "", *_drawn(benchmark, runs, "nodes")]
    everyone = (c.name for c in benchmark.contenders)
    name = SHADOW_ALL["name"]
    digests = [run["digest"] for c in everyone for run in runs.of("subgraphs", name, c, False)]
    if digests:
        same = "yes" if all(d == digests[0] for d in digests) else "**no**"
        lines += ["", f"- {name}: the same nodes and edges: {same}."]
    return "\n".join(lines)


def _against_best(runs: _Runs, key: str, setting: str, results: dict) -> list[str]:
    said = []
    for tuned, variant in _VARIANTS:
        times = [runs.median(key, setting, name, tuned) for name in _DGL]
        best = min((t for t in times if t is not None), default=None)
        for name in ("jgs", "jgs, 1 thread"):
            mine = runs.median(key, setting, name, tuned)
            if mine and best:
                said.append(f"{name} {variant} {_ratio(best, mine)}")
    lines = [f"- {setting}: DGL's best over {'; '.join(said)}."] if said else []
    reads, edges = _limit(results), runs.mean("edges", key, setting, "jgs")
    if reads and edges:
        limit = edges * reads["mapped"] / 1e6
        far = [
            f"{variant} {_ratio(runs.median(key, setting, 'jgs', tuned), limit)}"
            for tuned, variant in _VARIANTS
        ]
        lines.append(
            f"- {setting}: reading its edges alone takes {limit:.1f} ms; "
            f"jgs over that {', '.join(far)}."
        )
    return lines


def _weighted(benchmark: Benchmark, runs: _Runs) -> list[str]:
    said = []
    for contender in (c.name for c in benchmark.contenders):
        weighted = runs.median(benchmark.key, WEIGHTED["name"], contender, False)
        uniform = runs.median(benchmark.key, UNIFORM[0]["name"], contender, False)
        if weighted and uniform:
            said.append(f"{contender} {_ratio(weighted, uniform)}")
    return [f"- Weighted over uniform, as installed: {'; '.join(said)}."] if said else []


def _memory(runs: _Runs, key: str, results: dict) -> list[str]:
    """The peak memory of the uniform settings; later ones read more than the topology."""
    some = [run for s in UNIFORM for run in runs.of(key, s["name"], "jgs", False)]
    if not some:
        return []
    peak, before = (max(run[f] for run in some) for f in ("peak_bytes", "before_bytes"))
    graph, sample = results["graph"]["array_bytes"], max(run["sample_bytes"] for run in some)
    return [
        f"- Peak memory of jgs, as installed, mapped pages included: {_mb(peak)}, of which "
        f"{_mb(before)} before the graph was opened (Python and JAX); the graph's arrays and "
        f"the largest sample are {_mb(graph + sample)}. Growth over that: "
        f"{(peak - before) / (graph + sample):.2f}; peak over that: "
        f"{peak / (graph + sample):.2f}."
    ]


def _over_block(what: str, benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    first = benchmark.contenders[0].name

    def check(setting: str, contender: str) -> str:
        mine, base = (
            [run["check"] for run in runs.of(benchmark.key, setting, name, False)][:1]
            for name in (contender, first)
        )
        if not mine or not base:
            return ""
        same = all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(mine[0], base[0], strict=True))
        return "yes" if same else "**no**"

    b = results["block"]
    sizes = f"{b['targets']:,} targets, {b['sources']:,} sources, {b['edges']:,} edges"
    lines = [f"{what}, over a sampled block of {sizes}, float32.", ""]
    return "\n".join(lines + _table(benchmark, runs, "same result", check))


def _step(benchmark: Benchmark, runs: _Runs, results: dict) -> str:
    def parts(setting: str, contender: str) -> str:
        variants = []
        for tuned, variant in _VARIANTS:
            some = runs.of(benchmark.key, setting, contender, tuned)
            if some:
                medians = [
                    median(ms for run in some for ms in run["parts"][part])
                    for part in ("sampling", "features", "computing")
                ]
                variants.append(f"{variant} {' + '.join(map(_ms, medians))}")
        return "; ".join(variants)

    return "\n".join(_table(benchmark, runs, "sampling + features + computing", parts))


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float | None, base: float | None) -> str:
    return "" if value is None or not base else f"{value / base:.2f}×"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
