"""`EmbedRun`: the embeddings that a run of `--task embed` has learned."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from jgs.data.plain import Plain, load_plain
from jgs.graph import NodeIds, Schema
from jgs.predict.saved import Opened, Saved
from jgs.predict.source import check_digests
from jgs.predict.types import ids_of
from jgs.train.loop.fingerprint import fingerprint_plain


class EmbedRun(Opened):
    """A run of `--task embed`, which `jgs.open_run` opens in one process. Its fields `config`,
    `epochs`, `metrics` and `run_dir` are as in `Run`."""

    flags = frozenset({"nodes", "node_type", "embed"})
    learned = "skip-gram"

    def __init__(self, saved: Saved):
        super().__init__(saved)
        self._named = saved.record.get("named", False)
        # Each node has two rows, as a center and as a context. The last column is no part of a
        # vector, see `jgs.models.skipgram`.
        self._rows = np.asarray(saved.params["rows"])[::2, :-1]

    def embed(self, nodes: Any = None, *, node_type: str | None = None) -> np.ndarray:
        """float32 `[n, dim]`: the embeddings of `nodes`, int `[n]`, by default all nodes, at
        the newest checkpoint. After the run's end they are those of `embeddings.npy`. With
        `node_type` they are nodes of this type, and count from 0 in it. Raises
        `InputError`."""
        schema = None if node_type is None else self.schema
        return self._rows[ids_of(schema, self.num_nodes(), nodes, node_type)]

    def predict(self, nodes: Any = None) -> np.ndarray:
        """As `embed`: its rows are what the run answers."""
        return self.embed(nodes)

    def num_nodes(self) -> int:
        """The number of nodes in the run's data."""
        return len(self._rows)

    @property
    def node_ids(self) -> NodeIds | None:
        """The data set's own ids, as in `Run`. The data are opened only if they have some."""
        return self._plain.node_ids if self._named else None

    @property
    def schema(self) -> Schema | None:
        """The node types and relations of the run's data, as in `Run`."""
        return self._plain.graph.schema

    @cached_property
    def _plain(self) -> Plain:
        config = self.config
        plain = load_plain(config.dataset, config.root, **config.data_arguments())
        check_digests(plain.name, self._digests, fingerprint_plain(plain))
        return plain
