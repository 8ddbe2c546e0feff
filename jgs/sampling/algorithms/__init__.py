"""The sampling algorithms, one file each."""
