"""`PairModel`: a graph network with a decoder, the scores of a batch's pairs of nodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.graph import MiniBatch
from jgs.models.decoders import Decoder, LinkScores, link_scores
from jgs.models.gnn import GNN


class PairModel(nnx.Module):
    """A graph network, whose rows a decoder scores in pairs.

    Args:
      encoder: its output is a row `[F]` for each seed.
      decoder: scores pairs of these rows.
      num_nodes: `N`.
      learned: the width of a row that is learned for each node; 0: none. It stands behind the
        node's features. The table takes `12 N learned` bytes with Adam's moments, and a step
        updates all of it.
      rngs: its `params` stream makes that table.

    `model(batch, x, key=None)` returns the `LinkScores` of a batch from the stage
    `jgs.sampling.Links`; `x` is as for a `GNN`.
    """

    def __init__(
        self,
        encoder: GNN,
        decoder: Decoder,
        num_nodes: int = 0,
        learned: int = 0,
        *,
        rngs: nnx.Rngs,
    ):
        self.encoder, self.decoder, self.learned = encoder, decoder, learned
        if learned:
            drawn = jax.random.normal(rngs.params(), (num_nodes, learned))
            self.table = nnx.Param(drawn / jnp.sqrt(learned))

    @property
    def input_reduce(self) -> str | None:
        """As of a `GNN`; None where rows are learned, which the features do not hold."""
        return None if self.learned else self.encoder.input_reduce

    @property
    def uses_degrees(self) -> bool:
        return self.encoder.uses_degrees

    @property
    def message_widths(self) -> tuple[int, ...]:
        return self.encoder.message_widths

    def __call__(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> LinkScores:
        rows = self.encoder(batch, self._inputs(batch, x), key=key)
        return link_scores(self.decoder, rows, batch.items)

    def observed(
        self, batch: MiniBatch, x: Any, probes: Any, *, key: jax.Array | None = None
    ) -> tuple[LinkScores, Any]:
        x = self._inputs(batch, x)
        rows, messages = self.encoder.observed(batch, x, probes, key=key)
        return link_scores(self.decoder, rows, batch.items), messages

    def _inputs(self, batch: MiniBatch, x: Any) -> Any:
        if not self.learned:
            return x
        own = jnp.take(self.table[...], batch.nodes, axis=0, mode="fill", fill_value=0)
        return jnp.concatenate([x, own], axis=1)
