"""The cost model: memory, bytes and time of training on many machines."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
