"""Rows and their owners: feature rows, which do not change, and tables, whose rows do."""
