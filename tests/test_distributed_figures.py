"""The rows of Figures 6 and 10, and the partitions of Figure 10. Nothing is timed."""

import json

import pytest

from benchmarks import distributed_contenders, distributed_inputs, distributed_table
from benchmarks.distributed_inputs import Communities


def rows_of(figure: str, quick: bool) -> list[distributed_contenders.Contender]:
    return list(distributed_contenders.contenders((figure,), [2, 4], quick))


def test_figure_6_has_two_steps_between_vanilla_and_fused():
    quick = rows_of("figure6", True)
    drawn = {c.name: (c.task["config"]["mode"], c.task["unfused"]) for c in quick}
    assert drawn == {
        "vanilla": ("vanilla", None),
        "hybrid": ("hybrid", "two steps"),
        "hybrid, a call for each hop": ("hybrid", "hops"),
        "hybrid, fused": ("hybrid", None),
    }
    assert not any(c.emulated for c in quick)
    full = rows_of("figure6", False)
    assert len(full) == 2 * len(quick)
    assert sum(c.emulated for c in full) == len(full) / 2


def test_figure_10_compares_each_partition_with_random_parts(monkeypatch):
    monkeypatch.setattr(distributed_contenders, "_NEEDS", {"kaminpar": "no_such_package"})
    full = rows_of("figure10", False)
    names = [
        f"{mode}, {m}" for mode in ("vanilla", "hybrid") for m in ("metis", "ldg", "random")
    ]
    assert [c.name for c in full] == names * 4
    assert {c.num_ranks for c in full} == {2, 4}
    quick = rows_of("figure10", True)
    assert {c.task["method"] for c in quick} == {"metis", "random"}


def test_the_table_of_figure_10():
    runs = []
    for contender in rows_of("figure10", True):
        random = contender.task["method"] == "random"
        ms = [8.0 if random else 2.0] * 4
        rank = {"ms": ms, "parts": dict.fromkeys(("sampling", "features", "computing"), ms)}
        rank |= {"sent": [8_000_000] * 4, "gradient_bytes": 4_000_000}
        rank |= {"cut": 0.5 if random else 0.05}
        runs.append(contender.described() | {"round": 0, "ranks": [rank, rank]})
    text = distributed_table._figure10(distributed_table._joined(runs, "figure10"))
    assert "| vanilla, metis | 2 | plain | 5.0% | 7.00 | 2.0 | 2.0 + 2.0 + 2.0 | 0.25 |" in text
    assert (
        "| hybrid, random | 2 | plain | 50.0% | 7.00 | 8.0 | 8.0 + 8.0 + 8.0 | 1.00 |" in text
    )


def test_the_communities_can_be_cut(tmp_path):
    pytest.importorskip("pymetis")
    graph, cuts = Communities(1 << 11, 20 << 11, 16, 0.9), {}
    for method in ("metis", "random"):
        place = distributed_inputs.parts_of_communities(tmp_path, graph, method, 2)
        cuts[method] = json.loads((place / "manifest.json").read_text())["edge_cut"]
    assert abs(cuts["random"] - 0.5) < 0.02
    assert cuts["metis"] < 0.15
