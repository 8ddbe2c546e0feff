"""`Live`: a graph that grows in place, and the log of its changes."""
