"""jgs beside its peers, in one run on one machine: `python -m benchmarks`.

Files: `graph.py` makes the graph. `peers.py` makes the peers' environment. `random_reads.py`
measures what the memory can deliver. `contenders.py` lists who is measured at what.
`__main__.py` runs each contender in a process of its own, in turn. `table.py` prints the
report. Each `sampling_*.py`, `aggregate_*.py` and `step_*.py` is the program of such a process.
It takes a JSON task as its argument, and prints a JSON result. `worker.py` has what these
programs share. The peers' programs import no jgs.
"""
