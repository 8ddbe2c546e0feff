"""How the fields of a configuration say what they are as flags."""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a configuration, with what the command line says of it."""
    return dataclasses.field(default=default, metadata={"help": help, **metadata})
