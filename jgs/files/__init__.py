"""Files: folders of arrays, atomic replacement, locks."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
