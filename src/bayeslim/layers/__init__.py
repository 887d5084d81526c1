"""Bayesian layers: each only chooses the op of a `BayesLayer`, or composes several."""

from bayeslim.layers.attention import MultiheadAttention as MultiheadAttention
from bayeslim.layers.attention import TransformerEncoderLayer as TransformerEncoderLayer
from bayeslim.layers.base import BayesLayer as BayesLayer
from bayeslim.layers.conv import Conv1d as Conv1d
from bayeslim.layers.conv import Conv2d as Conv2d
from bayeslim.layers.conv import Conv3d as Conv3d
from bayeslim.layers.conv import ConvTranspose1d as ConvTranspose1d
from bayeslim.layers.conv import ConvTranspose2d as ConvTranspose2d
from bayeslim.layers.conv import ConvTranspose3d as ConvTranspose3d
from bayeslim.layers.embedding import Embedding as Embedding
from bayeslim.layers.linear import Linear as Linear
from bayeslim.layers.recurrent import GRU as GRU
from bayeslim.layers.recurrent import LSTM as LSTM

__all__ = [
    "GRU",
    "LSTM",
    "BayesLayer",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "Linear",
    "MultiheadAttention",
    "TransformerEncoderLayer",
]
