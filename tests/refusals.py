"""What every refusal is: an error of one line, of a call or of a command."""

import contextlib
import re

import pytest

from jgs import InputError


@contextlib.contextmanager
def refusal(says):
    """An `InputError` of one line that has the parts of `says`, with stars between."""
    with pytest.raises(InputError) as caught:
        yield
    message = str(caught.value)
    assert re.search(".*".join(map(re.escape, says.split("*"))), message), message
    assert "\n" not in message


def refused(says, call, *args, **options):
    """`call` is refused with `says`."""
    with refusal(says):
        call(*args, **options)


def command_refused(capsys, says, call, *arguments):
    """What a command says, which ends with status 2 and a line with all "piece ... piece"."""
    capsys.readouterr()
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert (out, err.count("error: "), "Traceback" in err) == ("", 1, False), err
    assert last.startswith("error: ")
    for piece in says.split(" ... "):
        assert piece in last
    return err
