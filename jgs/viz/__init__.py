"""Pictures by matplotlib (the extra `viz`): `neighborhood` draws a batch or an explanation."""

from jgs.viz.neighborhood import neighborhood

__all__ = ["neighborhood"]


def __dir__() -> list[str]:
    return __all__
