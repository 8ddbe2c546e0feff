"""How tests say their tables of cases."""

import pytest


def rarely(rows, *which):
    """The rows of a table; those at the places `which` have the mark `slow`: they are products
    of what other rows try, and `make test-all` runs them."""
    marked = []
    for place, row in enumerate(rows):
        values = row if isinstance(row, tuple) else (row,)
        marked.append(pytest.param(*values, marks=pytest.mark.slow) if place in which else row)
    return marked


def cases(names, *rows, **options):
    """Runs a test with each row, whose values have these names."""
    return pytest.mark.parametrize(names, rows, **options)
