"""The settings of a run: the flags of the command that no sampler, model or task owns.

Each class is a page of the command's help. `jgs.train.config.Config` has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from jgs.dist.communicators.start import START_TIMEOUT
from jgs.options import INT32, Option
from jgs.tables import DTYPES

# Of what can be learned (`Task.kind`), what takes a setting.
PAIRS = ("links", "edges")
BLOCKS = ("nodes", *PAIRS)
JUDGED = (*BLOCKS, "seal")


# fmt: off
@dataclass(frozen=True)
class Data:
    """What is trained on."""

    dataset: Annotated[str, Option(
        "a name (jgs data list), or a path: an edge list, an archive, a folder with a data set "
        "or with tables edges and nodes", metavar="NAME|PATH"
    )] = "synthetic"
    root: Annotated[str, Option("folder of public data sets", metavar="FOLDER")] = "data"
    data_options: Annotated[tuple[str, ...], Option(
        "the data set's own, e.g. num_nodes=10000", metavar="NAME=VALUE"
    )] = ()
    partition: Annotated[str | None, Option(
        "in place of --dataset: parts of jgs partition",
        metavar="FOLDER", tasks=BLOCKS, identity=False
    )] = None


@dataclass(frozen=True)
class Learned:
    """What is learned, and by what."""

    task: Annotated[str, Option("what is learned, see below", metavar="NAME")] = "nodes"
    sampler: Annotated[str, Option(
        "what a batch has: a name below, or your own package.module:Class", metavar="NAME"
    )] = "neighbors"
    model: Annotated[str, Option(
        "the layers: a name below, or package.module:Class", metavar="NAME", tasks=BLOCKS
    )] = "sage"
    decoder: Annotated[str, Option(
        "the score of pairs: a name below", metavar="NAME", tasks=PAIRS
    )] = "dot"


@dataclass(frozen=True)
class Layers:
    """The model, whichever it is."""

    hidden: Annotated[int, Option(
        "width of the hidden layers", least=1, most=1 << 16, tasks=JUDGED
    )] = 64
    layers: Annotated[int | None, Option(
        "for subgraphs (default: 2; seal: 3); other samplers have a layer a fanout",
        least=1, most=100, tasks=JUDGED
    )] = None
    edge_features: Annotated[tuple[str, ...], Option(
        "the edge columns that the model reads, each less its mean and divided by its "
        "deviation: auto (all that have no gaps, but label, split and weight, where the model "
        "reads any), none, or names", metavar="NAME", tasks=BLOCKS, first=False
    )] = ("auto",)
    norm: Annotated[str | None, Option(
        "normalisation after every hidden layer", choices=("layer", "l2"), tasks=BLOCKS
    )] = None
    dropout: Annotated[float, Option(
        "dropout rate after every hidden layer", least=0, below=1, tasks=JUDGED
    )] = 0.5
    input_dropout: Annotated[float | None, Option(
        "dropout rate of the input features (default: --dropout's if sparse, 0 if dense)",
        least=0, below=1, tasks=BLOCKS, first=False
    )] = None


@dataclass(frozen=True)
class Run:
    """One run."""

    run_dir: Annotated[str | None, Option(
        "folder of the run (default: runs/DATASET-TIME)",
        metavar="FOLDER", identity=False, saved=False
    )] = None
    resume: Annotated[bool, Option(
        "go on with the run in --run-dir", identity=False, saved=False
    )] = False
    epochs: Annotated[int, Option(
        "passes over the data; may grow on --resume", least=1, most=INT32
    )] = 5
    batch_size: Annotated[int, Option(
        "seeds in a batch of each rank", least=1, most=INT32
    )] = 1000
    ranks: Annotated[int, Option(flag=False, least=1, most=1 << 20)] = 1
    keys: Annotated[int, Option(flag=False, least=0, most=1)] = 1  # see jgs.train.loop.keys
    lr: Annotated[float, Option("the learning rate", above=0)] = 0.01
    seed: Annotated[int, Option("seed of all random draws", least=0, below=2**32)] = 0
    patience: Annotated[int, Option(
        "end after so many epochs without progress; 0: never",
        metavar="EPOCHS", least=0, most=INT32, tasks=JUDGED
    )] = 0
    progress: Annotated[bool, Option(
        "show a progress bar on a terminal", identity=False, first=False
    )] = True


@dataclass(frozen=True)
class Learning:
    """How it is learned and judged."""

    weight_decay: Annotated[float, Option(
        "L2 penalty, added to the gradient before Adam", least=0, tasks=JUDGED
    )] = 0.0
    lr_schedule: Annotated[str, Option(
        "Optax's schedule of Adam's learning rate over the steps of all --epochs: constant; "
        "cosine or exponential, from --lr down to --lr-end of it; or warmup_cosine, which "
        "first rises from 0 to --lr. After --resume with more --epochs it is the longer run's",
        choices=("constant", "cosine", "exponential", "warmup_cosine"), tasks=JUDGED
    )] = "constant"
    lr_end: Annotated[float, Option(
        "for a schedule that falls: the last learning rate, as a fraction of --lr",
        above=0, most=1, tasks=JUDGED, only=("lr_schedule=cosine,exponential,warmup_cosine",)
    )] = 0.01
    warmup_steps: Annotated[int | None, Option(
        "for warmup_cosine: the steps in which the rate rises (default: a tenth of all)",
        least=1, tasks=JUDGED, only=("lr_schedule=warmup_cosine",)
    )] = None
    metric: Annotated[str | None, Option(
        "the metric of validation and test; its validation value chooses the best epoch. Of "
        "classes: accuracy; auc (mean over classes of each against the others, without classes "
        "that nothing or everything has); f1_micro; f1_macro (over classes that are labels or "
        "predictions) (default: accuracy, for multi-label data f1_micro). Of numbers: rmse "
        "(default), mae, nmae (over the deviation of the training labels), r2. Of links: auc "
        "(default), ap, hits, mrr, recall, ndcg, map (default of a table of links). Your own, "
        "package.module:function, of classes and numbers gets (outputs [n, C], labels)",
        choices=("accuracy", "auc", "f1_macro", "f1_micro", "rmse", "mae", "nmae", "r2", "ap",
                 "hits", "mrr", "recall", "ndcg", "map"), own=True, metavar="NAME", tasks=BLOCKS
    )] = None
    precision: Annotated[str, Option(
        "the dtype in which a training step computes; parameters, optimiser and losses are "
        "float32, and so is what is judged and predicted",
        choices=("float32", "bfloat16"), tasks=JUDGED
    )] = "float32"
    accumulate: Annotated[int, Option(
        "Adam takes the mean gradient of so many batches, as if a batch were as many times as "
        "large", metavar="BATCHES", least=1, most=1 << 20, tasks=JUDGED
    )] = 1
    clip_norm: Annotated[float | None, Option(
        "scale down a gradient whose norm, over all parameters, is larger", above=0,
        tasks=JUDGED
    )] = None
    average: Annotated[str, Option(
        "judge, keep and predict with an average of the parameters: ema, exponential over the "
        "steps (at first their mean); or swa, the mean of those at the ends of epochs",
        choices=("none", "ema", "swa"), tasks=JUDGED
    )] = "none"
    average_decay: Annotated[float, Option(
        "for ema: what the average keeps in a step", above=0, below=1, tasks=JUDGED,
        only=("average=ema",)
    )] = 0.999
    average_from: Annotated[int, Option(
        "for ema and swa: after so many epochs the average begins",
        metavar="EPOCHS", least=0, most=INT32, tasks=JUDGED, only=("average=ema,swa",)
    )] = 0
    fanout_schedule: Annotated[tuple[str, ...], Option(
        "other fanouts (or sizes) for later epochs: 10:15,15 after 10 epochs; plateau:15,15 "
        "once the training loss no longer falls", metavar="WHEN:FANOUTS", tasks=BLOCKS
    )] = ()
    plateau_fraction: Annotated[float, Option(
        "for plateau: the loss has fallen where it is below the least by this fraction",
        least=0, below=1, tasks=BLOCKS, only=("fanout_schedule=plateau",)
    )] = 0.01
    plateau_epochs: Annotated[int, Option(
        "for plateau: so many epochs without a fall are one", least=1, most=INT32, tasks=BLOCKS,
        only=("fanout_schedule=plateau",)
    )] = 3
    state_age: Annotated[int, Option(
        "for samplers that learn: a batch is drawn with the sampler's state of so many steps "
        "before; at most so many batches are drawn ahead", least=0, most=1 << 10, tasks=BLOCKS
    )] = 0


@dataclass(frozen=True)
class Machine:
    """What a run writes, keeps and may use."""

    eval_memory: Annotated[int, Option(
        "working memory of evaluation", metavar="MIB", least=1, most=1 << 24, tasks=BLOCKS
    )] = 256
    scratch: Annotated[str | None, Option(
        "folder, on each rank's machine, for what evaluation cannot keep in --eval-memory and "
        "training not in --feature-memory "
        "(default: on rank 0 --run-dir, on others the system's temporary folder, TMPDIR)",
        metavar="FOLDER", tasks=BLOCKS, identity=False
    )] = None
    checkpoint_every: Annotated[int, Option(
        "steps between checkpoints in an epoch; 0: only at its end",
        least=0, most=INT32, identity=False
    )] = 0
    keep: Annotated[int, Option(
        "how many checkpoints to keep, the newest", least=1, most=INT32, identity=False
    )] = 3
    device: Annotated[str, Option(
        "where training steps run: auto (JAX's first device), cpu, gpu, tpu, gpu:1, or several "
        "of this host that share each batch, gpu:0,1 or gpu:all. Batches are drawn, and models "
        "judged, on the CPU", metavar="NAME", tasks=JUDGED, identity=False
    )] = "auto"
    features: Annotated[str, Option(
        "where feature rows lie: host, from where they are sent with each batch; or sharded: "
        "each --device has the graph and a share of the rows. It draws, asks the others for "
        "rows and trains, several steps in one program; rows that are learned lie there too. "
        "--cache and --cache-memory are of what a device keeps of others' rows",
        choices=("host", "sharded"), tasks=BLOCKS, identity=False
    )] = "host"
    device_memory: Annotated[int, Option(
        "most MiB of feature rows that each --device keeps, those that the first batches read "
        "most; the others are sent with their batches",
        metavar="MIB", least=0, most=1 << 24, tasks=BLOCKS, identity=False
    )] = 0
    feature_dtype: Annotated[str, Option(
        "how feature rows are kept: stored, as the data have them; float32; float16; or int8, "
        "codes of a byte with a scale and an offset for each column. Rows are read, sent and "
        "cached as they are kept, and are float32 where they are summed. Parts have the dtype "
        "that jgs partition --feature-dtype wrote",
        choices=DTYPES, tasks=BLOCKS
    )] = "stored"
    feature_memory: Annotated[int, Option(
        "MiB of feature rows that stay in memory, where features lie in files: those that the "
        "next batches need; the others are read from disk ahead. 0: files are memory-mapped",
        metavar="MIB", least=0, most=1 << 24, tasks=BLOCKS, identity=False
    )] = 0
    feature_block: Annotated[int, Option(
        "with --feature-memory: for so many steps at a time the rows that are not in memory "
        "are read in one pass over the files, and packed by step in --scratch; 0: each step's "
        "rows are read where they lie, for disks that are as fast at random",
        metavar="STEPS", least=0, most=1 << 12, tasks=BLOCKS, identity=False,
        only=("feature_memory",)
    )] = 256
    prefetch: Annotated[int, Option(
        "batches to sample ahead in the background; 0: none",
        least=0, most=1 << 10, identity=False
    )] = 2
    keep_memory: Annotated[bool, Option(
        "let the allocator keep freed memory, for faster steps", identity=False
    )] = True
    log: Annotated[str, Option(
        "where the rows of metrics.jsonl go too: tensorboard (files in the run folder) or "
        "wandb; the package must be installed",
        choices=("none", "tensorboard", "wandb"), identity=False
    )] = "none"


@dataclass(frozen=True)
class Ranks:
    """Several ranks: how they meet, what they keep, and what they send each other."""

    comm: Annotated[str, Option(
        "how ranks communicate: mpi (mpi4jax), jax (jax.distributed), none (one process), or "
        "auto: as the launcher's environment variables say",
        choices=("auto", "mpi", "jax", "none"), identity=False, saved=False
    )] = "auto"
    coordinator: Annotated[str | None, Option(
        "HOST:PORT of rank 0, for --comm jax where the launcher does not set it",
        metavar="ADDRESS", identity=False, saved=False
    )] = None
    num_processes: Annotated[int | None, Option(
        "the number of processes, in the same case", identity=False, saved=False
    )] = None
    process_id: Annotated[int | None, Option(
        "this process's number, from 0, in the same case", identity=False, saved=False
    )] = None
    interface: Annotated[str | None, Option(
        "network interface, or address of this host, that other ranks connect to with --comm "
        "jax on CPUs (default: the one that leads to the coordinator)",
        metavar="NAME|ADDRESS", identity=False, saved=False
    )] = None
    mode: Annotated[str, Option(
        "hybrid: every rank has the whole topology; vanilla: it is split like the features",
        choices=("hybrid", "vanilla"), tasks=BLOCKS, identity=False, only=("partition",)
    )] = "hybrid"
    cache: Annotated[str, Option(
        "which feature rows of other ranks to keep: those that trial samples read most, at "
        "most as many as one of them reads (trial); those of nodes of high degree (degree); or "
        "those that the epoch's samples, drawn in advance, read most (planned)",
        choices=("none", "trial", "degree", "planned"), tasks=BLOCKS, identity=False,
        only=("partition", "features=sharded")
    )] = "trial"
    cache_memory: Annotated[int, Option(
        "most MiB of other ranks' rows that a rank keeps",
        metavar="MIB", least=1, most=1 << 24, tasks=BLOCKS, identity=False,
        only=("cache=trial,degree,planned",)
    )] = 64
    wire: Annotated[str, Option(
        "dtype to which feature rows are rounded, and in which ranks send them",
        choices=("float32", "float16", "bfloat16"), tasks=BLOCKS,
        only=("partition", "features=sharded")
    )] = "float32"
    start_timeout: Annotated[float, Option(
        "seconds in which all ranks must start and connect; a rank that does not ends the run",
        least=1, identity=False, saved=False
    )] = START_TIMEOUT
    watchdog: Annotated[float, Option(
        "seconds after which a rank that is silent, or hangs in a step, ends the run",
        least=1, identity=False
    )] = 60.0
    phase_timeout: Annotated[float, Option(
        "seconds after which a rank that hangs elsewhere ends the run: while it opens its "
        "parts, compiles, evaluates, or writes a checkpoint or the result",
        least=1, identity=False
    )] = 1800.0
    verify: Annotated[str, Option(
        "whether a partition's files are compared with their checksums: at each start, once "
        "(until a file changes), or never (sizes and manifests always are)",
        choices=("always", "once", "never"), tasks=BLOCKS, identity=False, saved=False,
        only=("partition",)
    )] = "once"
