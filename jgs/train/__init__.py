"""Training: the command `python -m jgs.train`, `run`, exact evaluation of any model, averages
of parameters, and metrics of numbers, of links and of recommended lists."""

from jgs.lazy import lazily

_RANKING = ("average_precision", "hits", "hits_of_all", "mrr", "ndcg", "ranks", "recall")
# Where each public name is. It is imported when first used, so the command starts without JAX.
_PLACES = dict.fromkeys(_RANKING, "jgs.train.evaluation.ranking") | {
    "Config": "jgs.train.config",
    "Interrupted": "jgs.train.loop.training",
    **dict.fromkeys(("auc", "mae", "r2", "rmse"), "jgs.train.evaluation.metrics"),
    "averaged": "jgs.train.loop.step",
    "exact_inference": "jgs.train.evaluation.exact",
    "run": "jgs.train.loop.start",
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)
