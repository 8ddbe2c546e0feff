"""`python -m jgs.launch` runs `python -m jgs.train` on several hosts, by ssh."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
