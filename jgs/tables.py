"""The samplers, walkers, models, decoders, tasks and row tables by name, for the command.

This is the one place to which a new one is added. Each is imported when it is first used.
"""

from jgs.options import Table

_SAMPLING = "jgs.sampling.algorithms"
# Arguments of a user's class that are no options: the command gives them, or none.
_OF_SAMPLERS = ("edge_ids", "edge_weights", "edges", "relabel_inputs", "widths", "compact")
_OF_MODELS = (
    *("in_features", "hidden_features", "out_features", "num_layers", "schema", "rngs"),
    *("dropout", "input_dropout", "norm", "embedding"),
    *("edge_columns", "edge_width", "edge_scales", "columns"),
)
_OF_DECODERS = ("width", "num_relations", "out_features", "rngs")

SAMPLERS = Table(
    "sampler",
    {
        "neighbors": f"{_SAMPLING}.neighbors:Neighbors",
        "labor": f"{_SAMPLING}.labor:Labor",
        "subgraph": f"{_SAMPLING}.saint:Subgraph",
        "fastgcn": f"{_SAMPLING}.layers:FastGCN",
        "ladies": f"{_SAMPLING}.layers:Ladies",
        "vrgcn": f"{_SAMPLING}.stateful:VRGCN",
        "gcnbs": f"{_SAMPLING}.stateful:GCNBS",
        "thanos": f"{_SAMPLING}.stateful:Thanos",
        "pass": f"{_SAMPLING}.by_features:PASS",
        "asgcn": f"{_SAMPLING}.by_features:ASGCN",
        "pinsage": f"{_SAMPLING}.visits:PinSage",
        "hetgnn": f"{_SAMPLING}.visits:HetGNN",
        "saint": f"{_SAMPLING}.saint:Saint",
        "shadow": f"{_SAMPLING}.enclosing:Shadow",
        "context": f"{_SAMPLING}.context:Context",
        "frontier": f"{_SAMPLING}.frontier:Frontier",
        "seal": f"{_SAMPLING}.enclosing:Seal",
    },
    has=("init", "sample"),
    given=_OF_SAMPLERS,
)
WALKERS = Table(
    "sampler",
    {
        "walk": f"{_SAMPLING}.walk:Walk",
        "node2vec": f"{_SAMPLING}.node2vec:Node2Vec",
        "metapath": f"{_SAMPLING}.walk:Metapath",
    },
    has=("init", "sample"),
)
SAMPLERS_AND_WALKERS = Table(
    "sampler", SAMPLERS.places | WALKERS.places, has=("init", "sample"), given=_OF_SAMPLERS
)
MODELS = Table(
    "model",
    {
        "sage": "jgs.models.convolutions:GraphSAGE",
        "gcn": "jgs.models.convolutions:GCN",
        "gat": "jgs.models.gat:GAT",
        "gatv2": "jgs.models.gat:GATv2",
        "gin": "jgs.models.convolutions:GIN",
        "tgat": "jgs.models.temporal:TGAT",
        "mixer": "jgs.models.temporal:Mixer",
        "rgcn": "jgs.models.typed:RGCN",
        "rsage": "jgs.models.typed:RSAGE",
        "trsage": "jgs.models.typed:TemporalRSAGE",
        "rgat": "jgs.models.typed_attention:RGAT",
        "hgt": "jgs.models.typed_attention:HGT",
        "relgt": "jgs.models.relgt:RelGT",
        "cells": "jgs.models.cells:CellTransformer",
    },
    has=("uses_degrees", "message_widths"),
    given=_OF_MODELS,
)
DECODERS = Table(
    "decoder",
    {
        "dot": "jgs.models.decoders:DotDecoder",
        "cosine": "jgs.models.decoders:CosineDecoder",
        "bilinear": "jgs.models.decoders:BilinearDecoder",
        "mlp": "jgs.models.decoders:MLPDecoder",
        "distmult": "jgs.models.decoders:DistMult",
        "complex": "jgs.models.decoders:ComplEx",
    },
    has=("against",),
    given=_OF_DECODERS,
)
TASKS = Table(
    "task",
    {
        "nodes": "jgs.train.tasks.nodes:Nodes",
        "embed": "jgs.train.tasks.embed:Embed",
        "links": "jgs.train.tasks.links:Links",
        "edges": "jgs.train.tasks.edges:Edges",
    },
    has=("check", "open", "learner"),
)
ROW_TABLES = Table(
    "row table",
    {
        "dense": "jgs.graph.row_tables.dense:Matrices",
        "sparse": "jgs.graph.row_tables.sparse:SparseFeatures",
        "int8": "jgs.graph.row_tables.coded:QuantizedFeatures",
    },
    has=("opened", "numbers"),
)
# How a command can be told to keep rows: as they are, or in a row table made of dense ones.
DTYPES = ("stored", "float32", "float16", *tuple(ROW_TABLES.places)[2:])
