"""One process of the visits' benchmark: `PinSage`, jitted, with a planned capacity."""

from functools import partial

import jgs
from benchmarks import draws, worker
from jgs.sampling import PinSage


def measure(graph: jgs.Graph, setting: dict) -> dict:
    options = {name: setting[name] for name in ("num_walks", "length", "restart")}
    sampler = PinSage((setting["neighbors"],), **options)
    return draws.measured(setting, draws.planned(graph, sampler, setting)[0])


if __name__ == "__main__":
    worker.main(
        lambda task: partial(measure, jgs.Graph.open(task["graph"], verify=False).unweighted())
    )
