"""Reports: `write_report` makes one HTML page of a training run, and so does `jgs report`."""

from jgs.lazy import lazily

_PLACES = {"write_report": "jgs.report.page"}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
