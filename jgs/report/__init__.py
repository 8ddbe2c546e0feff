"""Reports: `write_report` makes one HTML page of a training run, and so does `jgs report`."""

from jgs.lazy import lazily

_PLACES = {"write_report": "jgs.report.page"}
__all__ = sorted(_PLACES)
__getattr__ = lazily(__name__, _PLACES)


def __dir__() -> list[str]:
    return __all__
