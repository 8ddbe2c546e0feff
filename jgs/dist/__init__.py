"""Distributed training: communicators, partitions, and the exchange of feature rows."""
