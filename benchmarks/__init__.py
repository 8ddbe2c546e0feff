"""jgs beside its peers, in one run on one machine: `python -m benchmarks`.

Files: `graph.py` makes the graph. `peers.py` makes the peers' environment. `random_reads.py`
measures what the memory can deliver. `contenders.py` lists who is measured at what.
`__main__.py` runs each contender in a process of its own, in turn. `table.py` prints the
report. Each `sampling_*.py`, `aggregate_*.py` and `step_*.py` is such a process: it takes a
JSON task as its argument and prints a JSON result. `worker.py` has what they share. The peers'
processes import no jgs.
"""
