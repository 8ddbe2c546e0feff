"""The cost model: memory, bytes and time of training on many machines."""
