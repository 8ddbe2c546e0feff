"""The formats of data sets, one file each."""
