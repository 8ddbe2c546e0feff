"""What every refusal is: an error of one line."""

import re

import pytest

from jgs import InputError


def refused(says, call, *args, **options):
    """`call` raises an `InputError` of one line that has the parts of `says`, with stars
    between, in this order."""
    with pytest.raises(InputError) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert re.search(".*".join(map(re.escape, says.split("*"))), message), message
    assert "\n" not in message
