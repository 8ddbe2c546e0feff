"""How tests say their tables of cases."""

import pytest


def cases(names, *rows, **options):
    """Runs a test with each row, whose values have these names."""
    return pytest.mark.parametrize(names, rows, **options)
