"""`open_data`: the data of a configuration."""

from __future__ import annotations

from jgs.command import loading
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError
from jgs.train.config import Config
from jgs.train.loop.parted_data import PartedData
from jgs.train.loop.whole_data import WholeData


def open_data(
    config: Config, comm: Communicator | None = None, pairs: bool = False
) -> WholeData | PartedData:
    """Opens the data of a configuration, for the ranks of `comm` or, with None, for one
    process. With `pairs` they need no features, labels and splits of nodes, and their owner
    must call `ask`. Raises `InputError`."""
    with loading():
        if config.partition is not None:
            return PartedData(config, comm or Alone())
        if comm is None or comm.size == 1:
            return WholeData(config, pairs)
    raise InputError(
        "several ranks must have a partitioned data set",
        f"{comm.size} ranks and no --partition",
        "Write one with python -m jgs.partition, and give its folder.",
    )
