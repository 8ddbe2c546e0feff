"""`Place`: where a run's training steps are computed, beside where its batches are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jgs.devices import find_devices, host_device, shown
from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.communicators.mesh import Mesh
from jgs.errors import InputError
from jgs.sampling.loading.sending import Destination, RowsTogether


@dataclass(frozen=True)
class Place:
    """Where steps are computed."""

    host: Communicator  # of the ranks, which draw on their hosts
    comm: Communicator  # of the steps: `host`, or a `Mesh` in which each device is a rank
    destination: Destination | None = None  # this process's devices; None: the host
    together: RowsTogether = field(default_factory=RowsTogether)  # makes small what is sent

    @classmethod
    def of(cls, text: str, host: Communicator) -> Place:
        """The place that `--device` names. All ranks call it. Raises `InputError`, on all
        alike."""
        own = everywhere(host, lambda: _checked(text, host))
        if host.size == 1:
            if own == [host_device()]:
                return cls(host, host)
            mesh = Mesh(own)
            return cls(host, mesh, Destination.of(mesh.sharding))
        platform = own[0].platform
        kinds = ("cpu", "gpu", "tpu")
        kind = kinds.index(platform) if platform in kinds else len(kinds)
        on_host = own == [host_device()]
        said = np.array([kind, on_host, len(own)], np.int32)
        every = all_gather_rows(host, [said] * host.num_local)

        def agree() -> None:
            if len(np.unique(every, axis=0)) > 1:
                raise InputError(
                    "all ranks must train on as many devices, of one kind, or all where they "
                    "draw",
                    f"{shown(own)} on rank {host.rank} and others elsewhere",
                    "Give every rank the same --device.",
                )

        everywhere(host, agree)
        if on_host:
            return cls(host, host)
        local = list(jax.local_devices(backend=platform))
        mine = np.array([local.index(each) for each in own], np.int32)
        devices: list[Any] = []
        for process, numbers in enumerate(all_gather_rows(host, [mine] * host.num_local)):
            there = [d for d in jax.devices(platform) if d.process_index == process]
            devices += [there[number] for number in numbers]
        mesh = Mesh(devices)
        return cls(host, mesh, Destination.of(mesh.sharding, every_process=True))

    def send(self, value: Any) -> Any:
        """An `OWN` value of `host`, of one device a process, as one of `comm`."""
        if self.destination is None:
            return value
        (own,) = self.host.local(value)
        # Processes must send equal shapes. Rows that came from other ranks lie together.
        return self.destination.send([self.together(own) if self.host.size == 1 else own])

    def back(self, value: Any) -> Any:
        """An `OWN` value of `comm`, of one device a process, as one of `host`."""
        if self.destination is None:
            return value
        return self.host.own([jax.tree.map(np.asarray, own) for own in self.comm.local(value)])

    def __str__(self) -> str:
        if self.destination is None:
            return shown([host_device()])
        return shown(self.destination.devices)


def _checked(text: str, host: Communicator) -> Sequence[Any]:
    by_jax = host.size == 1 or jax.process_count() == host.size
    if text == "auto" and (host.num_local > 1 or not by_jax):
        return [host_device()]  # its ranks draw and train where they are
    own = find_devices(text)
    if host.size == 1 or own == [host_device()]:
        return own
    if host.num_local > 1 or not by_jax:
        raise InputError(
            "ranks on devices must meet by --comm jax, a process each",
            f"--device {text}",
            "Choose --comm jax, or --device cpu.",
        )
    return own
