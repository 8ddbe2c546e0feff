"""What every refusal is: an error of one line."""

import contextlib
import re

import pytest

from jgs import InputError


@contextlib.contextmanager
def refusal(says):
    """The block raises an `InputError` of one line that has the parts of `says`, with stars
    between, in this order."""
    with pytest.raises(InputError) as caught:
        yield
    message = str(caught.value)
    assert re.search(".*".join(map(re.escape, says.split("*"))), message), message
    assert "\n" not in message


def refused(says, call, *args, **options):
    """`call` is refused with `says`."""
    with refusal(says):
        call(*args, **options)
