"""`setting`: a field of a configuration that describes its own command-line flag."""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a configuration with the default `default`. `help` and `metadata` (such as
    `choices` and `metavar`) describe its command-line flag."""
    return dataclasses.field(default=default, metadata={"help": help, **metadata})
