"""One file a library: what `benchmarks/battery/library.py` says of adapters."""
