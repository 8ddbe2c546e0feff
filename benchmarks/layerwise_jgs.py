"""One process of the layer-wise benchmark: `Ladies` or `FastGCN`, jitted."""

import dataclasses
from collections.abc import Mapping
from functools import partial

import jgs
from benchmarks import draws, worker
from jgs.sampling import SAMPLERS


def measure(
    graph: jgs.Graph,
    setting: dict,
    prepared: bool = True,
    samplers: Mapping[str, type] = SAMPLERS,
) -> dict:
    sampler = samplers[setting["sampler"]](tuple(setting["sizes"]))
    sampler = dataclasses.replace(sampler, compact=setting.get("compact", False))
    sample, _ = draws.planned(graph, sampler, setting, None if prepared else ())
    return draws.measured(setting, sample)


def prepare(task: dict):
    graph = jgs.Graph.open(task["graph"], verify=False).unweighted()
    return partial(measure, graph, prepared=task.get("prepared", True))


if __name__ == "__main__":
    worker.main(prepare)
