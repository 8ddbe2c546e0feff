"""What benchmarks print of what they measured."""

import numpy as np

from benchmarks import contenders, table
from benchmarks.embeddings import summary
from benchmarks.embeddings_gensim import SHARES, cells

PARTS = ("sampling", "features", "computing")


def canned(runs: list[dict]) -> dict:
    return {
        "machine": {"cpu": "a CPU", "mhz": "1", "cores": 2, "memory_gib": 1, "system": "none"}
        | {"huge_pages": "never", "load_before": 0.0, "versions": {"jgs": "0"}},
        "graph": {"nodes": 8, "edges": 9, "largest_degree": 3, "without_edges": 0.25}
        | {"array_bytes": 10**7},
        "threads": 2,
        "quick": True,
        "block": {"targets": 1, "sources": 2, "edges": 3},
        "peers": "none",
        "random_reads": [{"mapped": 5.0, "huge_pages": 4.0}],
        "runs": runs,
        "failures": [
            {"benchmark": "step", "contender": "DGL", "tuned": True} | {"error": "oops"}
        ],
    }


def test_the_table():
    """jgs takes 2 ms and all others 8; DGL's fused sampler falls short."""
    runs = []
    for benchmark in contenders.BENCHMARKS:
        for contender in benchmark.contenders:
            for tuned in (False, True):
                for setting in benchmark.settings:
                    short = "fused, int64" in contender.name
                    ms = [2.0] * 3 if contender.name == "jgs" else [8.0] * 3
                    runs.append(
                        {"benchmark": benchmark.key, "contender": contender.name}
                        | {"tuned": tuned, "round": 0, "name": setting["name"], "ms": ms}
                        | {"nodes": 1000, "edges": 900 if short else 1000, "check": [1.0]}
                        | {"steps": 1000, "digest": [1, 2]}
                        | {"sample_bytes": 10**6, "peak_bytes": 10**8, "before_bytes": 10**7}
                        | {"parts": dict.fromkeys(PARTS, ms)}
                    )
    text = table.render(canned(runs))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {row.count("|") for row in rows} == {8}
    assert "| 2.0 | 1.00× | 2.0 | 1.00× |" in text
    assert "| 8.0 | 4.00× | 8.0 | 4.00× |" in text
    assert text.count("not the same work") == len(contenders.BENCHMARKS[0].settings)
    assert "- ShaDow (-1,), 64 seeds: the same nodes and edges: yes." in text
    assert "step, DGL, tuned: oops" in text


def test_means_have_their_standard_errors():
    assert summary([0.25]) == "0.250"
    # Squares from the mean add up to 14: the variance is 14 / 3, that of the mean 14 / 12.
    assert summary([1.0, 2.0, 3.0, 6.0], "+") == "+3.000 ± 1.080"
    seed = np.arange(2 * len(SHARES)).reshape(len(SHARES), 2) / 10
    found = cells(np.stack([seed, seed + 0.02]), "+")
    assert found.startswith("+0.010 ± 0.010 / +0.110 ± 0.010 | ")
