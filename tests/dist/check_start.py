"""`check_start.py HARM MOMENT FLAGS...`: `python -m jgs.train FLAGS...`, harmed at MOMENT."""

import os
import runpy
import signal
import sys
import time


def come_to_harm():
    time.sleep(1)  # the other ranks have begun by then
    if harm == "exit":
        sys.exit("no such library")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[harm])


class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name == "jax" and moment == "import":
            come_to_harm()
        if name == "jgs.train.loop.start" and moment == "connected":
            from jgs.dist.communicators import launch

            def connect(*args, connect=launch.connect, **kwargs):
                connect(*args, **kwargs)
                come_to_harm()

            launch.connect = connect


harm, moment, *flags = sys.argv[1:]
sys.argv[1:] = flags
sys.meta_path.insert(0, Finder)
runpy.run_module("jgs.train", run_name="__main__", alter_sys=True)
