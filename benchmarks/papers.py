"""The four papers' figures beside ours, by one command.

    python -m benchmarks.papers [--quick] [--paper gsampler] [--figure 10] [--list]

jgs reimplements FastSample, gSampler, DistDGL and gcn-ipdps19. For each of their figures and
tables that jgs has a benchmark for, this prints what the paper measured and claims, runs the
benchmark, and prints its table below. Where the two cannot be compared it says why. `--quick`
runs the smaller form of each, without the peers' environments. `docs/papers.md` says where each
algorithm is.

What the papers claim is quoted from their abstracts and texts, not read off their plots.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.__main__ import command_line, say


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper, and the benchmark beside it.

    Fields:
      paper, figure: as `--paper` and `--figure` name them.
      theirs: what the paper measured, on what, and what it claims.
      ours: what the benchmark measures, and how far the two can be compared.
      command: the benchmark's module and arguments.
      quick: the arguments of its smaller form.
    """

    paper: str
    figure: str
    theirs: str
    ours: str
    command: tuple[str, ...]
    quick: tuple[str, ...]


SUBGRAPHS = "/tmp/jgs-papers"
FIGURES = (
    Figure(
        "fastsample",
        "5",
        "The fused sampling kernel against DGL's two steps (sample, then compact), over ten "
        "batch sizes, on papers100M.",
        "jgs's kernel beside the same sample in two steps by way of COO, DGL, not fused and "
        "fused, and GraphBolt, in one run, over ten batch sizes, on a graph of as many edges a "
        "node as papers100M. Sizes and fanouts are ours. --quick: a small graph, jgs alone.",
        ("benchmarks.batch_sizes",),
        ("benchmarks.batch_sizes", "--quick"),
    ),
    Figure(
        "fastsample",
        "6",
        "Epochs in vanilla mode, hybrid mode, and hybrid mode with the fused kernel, on "
        "machines of their own. Training becomes up to 2 times faster.",
        "The same three modes of jgs on 2 and 4 ranks of one machine, also with an emulated "
        "network. Hybrid mode that is not fused samples in two steps by way of COO.",
        ("benchmarks.distributed", "--only", "figure6"),
        ("benchmarks.distributed", "--quick", "--only", "figure6", "--no-peers"),
    ),
    Figure(
        "gsampler",
        "7",
        "Sampling time of 7 algorithms on 4 graphs, on GPUs, against systems such as DGL: 1.14 "
        "to 32.7 times faster, 6.54 on average.",
        "Not comparable in seconds: theirs are GPUs. Ours are ratios to DGL on a CPU: walks, "
        "visits, LADIES, FastGCN, AS-GCN, PASS, subgraphs. --quick: jgs alone.",
        ("benchmarks", "--only", "layerwise", "learned", "walks", "visits", "subgraphs"),
        (
            *("benchmarks", "--quick", "--no-peers", "--only"),
            *("layerwise", "learned", "walks", "visits", "subgraphs"),
        ),
    ),
    Figure(
        "gsampler",
        "10",
        "Each optimisation left out, on a GPU: fusion of extract and select, pre-processing, "
        "layout, super-batches.",
        "The same on a CPU. There a single batch keeps all threads busy, so super-batches gain "
        "little.",
        ("benchmarks.ablation", "--rounds", "13", "--seconds", "25"),
        ("benchmarks.ablation", "--rounds", "5", "--seconds", "10", "--only", "Ladies"),
    ),
    Figure(
        "gsampler",
        "pre-processing",
        "Products of the whole graph, such as A ** 2, are computed once and sliced later "
        "(section 4.2).",
        "Such values stored, or computed by each slice, and what `choose_stored` takes.",
        ("benchmarks.ablation", "--stored"),
        ("benchmarks.ablation", "--stored", "--rounds", "3", "--seconds", "3"),
    ),
    Figure(
        "gsampler",
        "super-batch",
        "Batches are sampled together (section 4.3).",
        "Batches a second through a loader, by the number of batches in a call.",
        ("benchmarks.superbatch",),
        ("benchmarks.superbatch", "--quick", "--only", "layerwise", "--rounds", "3"),
    ),
    Figure(
        "distdgl",
        "partition",
        "METIS with several balance constraints, in memory that the paper's extensions save.",
        "KaMinPar, METIS and ldg: cut, balance, seconds, memory. --quick: jgs alone, 2 parts.",
        ("benchmarks.partition",),
        ("benchmarks.partition", "--no-peers", "--parts", "2"),
    ),
    Figure(
        "distdgl",
        "two-levels",
        "The graph is split over machines, and a machine's part over its trainers; ranges of "
        "seeds are dealt (section III-E).",
        "Edges between machines and seeds that leave theirs, by how parts are grouped.",
        ("benchmarks.two_levels", "--ranks-per-machine", "2"),
        ("benchmarks.two_levels", "--ranks-per-machine", "2", "--only", "synthetic"),
    ),
    Figure(
        "distdgl",
        "10",
        "Training over partitions of smaller and of larger cut.",
        "Steps over METIS's, KaMinPar's, ldg's and random parts of a graph with communities, "
        "on 2 and 4 ranks of one machine, also with an emulated network.",
        ("benchmarks.distributed", "--only", "figure10"),
        ("benchmarks.distributed", "--quick", "--only", "figure10", "--no-peers"),
    ),
    Figure(
        "distdgl",
        "overlap",
        "A hop's local part is drawn while its remote part is on its way.",
        "Not comparable: here the next batches are drawn while this one is trained on. How "
        "much of the network's time that hides. --quick: not run.",
        ("benchmarks.overlap",),
        (),
    ),
    Figure(
        "distdgl",
        "embeddings",
        "Sparse updates of learned embeddings against dense ones: 70 times faster.",
        "The same on one machine: the ratio depends on the rows of the table over those of a "
        "batch.",
        ("benchmarks.sparse_updates",),
        ("benchmarks.sparse_updates", "--nodes", "200000"),
    ),
    Figure(
        "gcn-ipdps19",
        "2",
        "F1 by time of training on subgraphs and by other methods: PPI, Reddit, Yelp, Amazon.",
        "F1 by CPU seconds on Facebook's pages and on a planted multi-label graph, 5 seeds; "
        "and depth to 6 layers. The paper's data can be read (docs/guides/data.md) but is not "
        "here. --quick: a small planted graph, one seed, two epochs: F1 means nothing there.",
        (
            *("benchmarks.subgraph_training", "--folder", SUBGRAPHS),
            *("--only", "facebook", "planted", "simple", "depth", "deeper"),
        ),
        ("benchmarks.subgraph_training", "--folder", SUBGRAPHS, "--quick"),
    ),
    Figure(
        "gcn-ipdps19",
        "sampling",
        "Frontier sampling by cores: with AVX 64 times faster on 40 than on one.",
        "Beside GraphSAINT's sampler, on one and two threads. --quick: not run, it builds it.",
        ("benchmarks.frontier",),
        (),
    ),
    Figure(
        "gcn-ipdps19",
        "4B",
        "The gain of AVX in the Dashboard.",
        "The same on one thread, by vectors of 8 and of 16.",
        ("benchmarks.frontier_lanes", "--full"),
        ("benchmarks.frontier_lanes", "--rounds", "2"),
    ),
    Figure(
        "gcn-ipdps19",
        "theorem-2",
        "Feature propagation with the features in parts (Algorithm 6): 25 times faster on 40 "
        "cores than on one.",
        "Time by the number of parts on one and two threads. Not comparable: 40 cores have 40 "
        "second-level caches.",
        ("benchmarks.feature_parts", "--rounds", "5"),
        ("benchmarks.feature_parts", "--quick", "--rounds", "3", "--no-peers"),
    ),
)


def main() -> int:
    parser = command_line("papers", __doc__)
    parser.add_argument("--quick", action="store_true", help="the smaller form of each")
    parser.add_argument("--paper", choices=sorted({each.paper for each in FIGURES}))
    parser.add_argument("--figure", choices=sorted({each.figure for each in FIGURES}))
    parser.add_argument("--list", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in FIGURES
        if arguments.paper in (None, each.paper) and arguments.figure in (None, each.figure)
    ]
    if not chosen:
        say(f"{arguments.paper} has no figure {arguments.figure} here: see --list")
        return 2
    failed = False
    for each in chosen:
        command = each.quick if arguments.quick else each.command
        print(
            f"\n## {each.paper}, {each.figure}\n\nPaper: {each.theirs}\n\nHere: {each.ours}\n"
        )
        print(f"`python -m {' '.join(command or each.command)}`\n", flush=True)
        if command and not arguments.list:
            failed |= not _ran(command)
    return int(failed)


def _ran(command: tuple[str, ...]) -> bool:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=Path(__file__).parents[1],
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        print(f"It failed with status {done.returncode}: {lines[-1]}")
    print(f"\n({time.perf_counter() - began:.0f} s)", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
