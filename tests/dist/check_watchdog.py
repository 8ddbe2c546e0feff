"""`check_watchdog.py HARM RANK`: 40 steps by every rank (see ranks.py), in which one fails."""

import os
import signal
import sys
import time

import jax
import numpy as np
from ranks import barrier, connect_here

from jgs.dist.communicators.comm import OWN, SAME
from jgs.dist.supervision.watchdog import Watchdog

harm, harmed = sys.argv[1], int(sys.argv[2])
comm = connect_here()
reduce = comm.program(comm.all_reduce, (OWN,), SAME)
with Watchdog(comm, timeout=2, last_checkpoint=lambda: "checkpoints/7") as watchdog:
    for n in range(40):
        watchdog.step = n
        if n == 20 and comm.rank == harmed:
            time.sleep(0.5)  # the others see it at this step by then
            if harm == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if harm == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            if harm == "raise":
                raise ValueError("no such\nfeature")
            if harm == "hang":
                time.sleep(1000)
            watchdog.request_stop()
        watchdog.step = n + 0.5
        stop = jax.block_until_ready(
            reduce(comm.own([np.float32([watchdog.stop_requested()])]))
        )
        if stop[0]:
            break
        if n == 10 and harm == "none":  # longer than the timeout, as an evaluation may take
            watchdog.step = None
            time.sleep(2.5 * (comm.rank == harmed))
print(f"stopped after {n}")
barrier(comm)
