"""Graph neural networks, and their layers, as Flax NNX modules that take `(batch, x)`. Their
dropout is `jgs.ops.dropout`."""

from jgs.models.cells import CellTransformer
from jgs.models.convolutions import (
    GCN,
    GIN,
    ConcatConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphSAGE,
    SAGEConv,
)
from jgs.models.decoders import (
    BilinearDecoder,
    ComplEx,
    CosineDecoder,
    Decoder,
    DistMult,
    DotDecoder,
    LinkScores,
    MLPDecoder,
    PairModel,
    binary_cross_entropy,
    bpr,
    link_scores,
    margin_ranking,
    sampled_softmax,
)
from jgs.models.dgcnn import DGCNN
from jgs.models.gat import GAT, GATConv
from jgs.models.gnn import GNN
from jgs.models.inputs import Inputs, Placed, TypedInputs, read_inputs
from jgs.models.layer import (
    AttentionLayer,
    EdgeLayer,
    Layer,
    Model,
    RelationAttentionLayer,
    RelationLayer,
)
from jgs.models.memory import Memory, MemoryState
from jgs.models.parts import TimeEncoding
from jgs.models.recommend import top_k
from jgs.models.relgt import RelGT
from jgs.models.temporal import TGAT, Mixer, MixerConv, TGATConv
from jgs.models.typed import (
    RGCN,
    RSAGE,
    RGCNConv,
    RSAGEConv,
    TemporalRSAGE,
    TemporalRSAGEConv,
    TypedGNN,
)
from jgs.models.typed_attention import HGT, RGAT, HGTConv, RGATConv
from jgs.tables import DECODERS, MODELS

__all__ = [
    "DECODERS",
    "DGCNN",
    "GAT",
    "GCN",
    "GIN",
    "GNN",
    "HGT",
    "MODELS",
    "RGAT",
    "RGCN",
    "RSAGE",
    "TGAT",
    "AttentionLayer",
    "BilinearDecoder",
    "CellTransformer",
    "ComplEx",
    "ConcatConv",
    "CosineDecoder",
    "Decoder",
    "DistMult",
    "DotDecoder",
    "EdgeLayer",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "GraphSAGE",
    "HGTConv",
    "Inputs",
    "Layer",
    "LinkScores",
    "MLPDecoder",
    "Memory",
    "MemoryState",
    "Mixer",
    "MixerConv",
    "Model",
    "PairModel",
    "Placed",
    "RGATConv",
    "RGCNConv",
    "RSAGEConv",
    "RelGT",
    "RelationAttentionLayer",
    "RelationLayer",
    "SAGEConv",
    "TGATConv",
    "TemporalRSAGE",
    "TemporalRSAGEConv",
    "TimeEncoding",
    "TypedGNN",
    "TypedInputs",
    "binary_cross_entropy",
    "bpr",
    "link_scores",
    "margin_ranking",
    "read_inputs",
    "sampled_softmax",
    "top_k",
]


def __dir__() -> list[str]:
    return __all__
