"""What of the network's time in vanilla mode is hidden by drawing ahead.

    python -m benchmarks.overlap [--rounds 3] [--latency 0.0005] [--gbit 10]

DistDGL draws a hop's local part while it waits for the remote one. jgs draws the next batches
while it trains on this one, on ranks whose communicator lets two threads communicate (MPI). So
waiting may hide behind a whole step, where a core is free for it. Within one program XLA's CPU
runtime runs a kernel and a collective one after the other.

Two ranks, of one core each, train GraphSAGE (hidden 256) in vanilla mode on the `synthetic`
data set, in parts by ldg. Their network is emulated: every round takes `--latency` seconds
more, and bytes go at `--gbit` gigabits a second (`jgs.dist.Emulated`). The figures
are the medians of the seconds of an epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import command_line
from benchmarks.scaling import environment

RUNS = {  # whether there is that network, and the batches drawn ahead
    "no network, nothing ahead": (False, 0),
    "network, nothing ahead": (True, 0),
    "no network, 2 ahead": (False, 2),
    "network, 2 ahead": (True, 2),
}


def main() -> int:
    given = _arguments()
    if given.out:
        _rank(given)
        return 0
    if shutil.which("mpiexec") is None:
        sys.exit("mpiexec must be on the PATH: pip install 'jgs[mpi]'")
    with tempfile.TemporaryDirectory() as folder:
        parts, out = f"{folder}/parts", f"{folder}/epochs.json"
        made = ["--dataset", "synthetic", "--data-options", f"num_nodes={given.nodes}"]
        made += [f"num_edges={20 * given.nodes}", "--parts", "2", "--method", "ldg"]
        made = [sys.executable, "-m", "jgs.partition", *made, "--out", parts]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        ranks = ["mpiexec", "-n", "2", sys.executable, "-m", "benchmarks.overlap"]
        ranks += [*sys.argv[1:], "--parts", parts, "--out", out]
        subprocess.run(ranks, check=True, env=environment())
        print(table(json.loads(Path(out).read_text())))
    return 0


def table(seconds: dict[str, list[float]]) -> str:
    """The report of the seconds of each run's epochs."""
    medians = {name: statistics.median(some) for name, some in seconds.items()}
    rows = [f"| {name} | {value:.2f} |" for name, value in medians.items()]
    alone, waiting, ahead, hiding = (medians[name] for name in RUNS)
    end = f"The network adds {waiting - alone:.2f} s to an epoch."
    if waiting > alone:
        hidden = 1 - (hiding - ahead) / (waiting - alone)
        end += f" Drawing ahead hides {hidden:.0%} of it."
    return "\n".join(["| epoch | seconds |", "|---|---|", *rows, "", end])


def _arguments() -> argparse.Namespace:
    parser = command_line("overlap", __doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="epochs of each, after one to compile")
    add("--latency", type=float, default=5e-4, help="seconds a round (default: 0.0005)")
    add("--gbit", type=float, default=10.0, help="(default: 10)")
    add("--nodes", type=int, default=200_000, help="of the data set (default: 200000)")
    add("--parts", help="be a rank of these parts")
    add("--out", help="where a rank writes the seconds")
    return parser.parse_args()


def _rank(given: argparse.Namespace) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("PMI_RANK", 0)) % len(cores)]})
    import jax
    from flax import nnx

    from jgs.data.parts import open_parts
    from jgs.dist.batches.ranks import RankParts, rank_loader
    from jgs.dist.communicators.comm import Emulated
    from jgs.dist.communicators.launch import connect
    from jgs.graph import as_device
    from jgs.train.config import Config
    from jgs.train.loop.model import make_model
    from jgs.train.loop.step import init_state, make_optimizer, make_train_step

    config = Config(partition=given.parts, hidden=256)
    data, comm = open_parts(given.parts, verify=False), connect("mpi")
    slow = Emulated(comm, given.latency, given.gbit * 1e9 / 8)
    model_key, loader_key, dropout_key = jax.random.split(jax.random.key(0), 3)
    width = data.manifest["features"]["shape"][1]
    model = make_model(config, width, data.num_classes, False, model_key)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(config.lr)
    labels, ranks = comm.same(as_device(data.labels)), RankParts(comm, data)
    # The gradients' all_reduce has no emulated network: nothing could hide it.
    step = make_train_step(graphdef, optimizer, comm)
    key, stop = comm.same(jax.random.key_data(dropout_key)), comm.own([jax.numpy.float32(0)])
    seconds: dict[str, list[float]] = {name: [] for name in RUNS}
    loaders = {
        name: rank_loader(
            slow if network else comm,
            ranks,
            config.batch_size,
            config.fanouts,
            key=loader_key,
            mode="vanilla",
            prefetch=ahead,
        )
        for name, (network, ahead) in RUNS.items()
    }
    from mpi4py import MPI  # after `connect`: it starts MPI

    for number in range(1 + given.rounds):
        for name, loader in loaders.items():
            state = comm.same(init_state(params, optimizer))
            MPI.COMM_WORLD.Barrier()
            began = time.perf_counter()
            for batch, x in loader:
                state = jax.block_until_ready(step(state, key, batch, x, labels, stop))
            MPI.COMM_WORLD.Barrier()
            if number:
                seconds[name].append(time.perf_counter() - began)
    if comm.rank == 0:
        Path(given.out).write_text(json.dumps(seconds))


if __name__ == "__main__":
    sys.exit(main())
