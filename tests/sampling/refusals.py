"""What tests say of refusals."""

import contextlib

import pytest

from jgs import InputError


@contextlib.contextmanager
def refused(says):
    """The block is refused in one line that has these words."""
    with pytest.raises(InputError) as error:
        yield
    assert says in str(error.value)
    assert "\n" not in str(error.value)
