"""What a sample promises, tried on jgs and on what is installed beside it:
`python -m benchmarks.battery`.

Files: `library.py` has the question and answer between this process and a library's, and the
contract of adapters. `adapters/` has one file a library. `graphs.py` makes the graphs,
`ways.py` lists the ways to draw, `tests.py` has the tests of laws. The promises are in
`same.py` (the same bits wherever a sample is drawn), `edges.py` (which edges a sample may
have) and `laws.py` (how often). `numbers.py` has the random numbers themselves tried by
TestU01. `__main__.py` runs all and writes `docs/battery.md`."""
