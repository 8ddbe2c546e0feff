"""A database as a data set: tables with keys and moments become a typed graph with times."""
