"""A trained model as one artifact, to answer requests without training code: `jgs.export_run`,
`jgs.load_exported`, and the command `python -m jgs.export`."""

from jgs.lazy import lazily

# Where each public name is. It is imported when first used: serving imports no training code.
_PLACES = {
    "ExportedModel": "jgs.export.model",
    "NewNodes": "jgs.export.store",
    "Spec": "jgs.export.spec",
    "export_run": "jgs.export.write",
    "load_exported": "jgs.export.load",
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
