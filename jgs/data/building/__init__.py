"""Data sets larger than memory, built from shards by an external counting sort (`build`)."""
