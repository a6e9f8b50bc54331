"""Benchmarks: every figure is a ratio, in one run, to a physical limit or a peer. Run with `python -m bench`."""
