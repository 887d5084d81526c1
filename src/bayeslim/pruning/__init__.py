"""Removing what the posterior calls noise."""

from bayeslim.pruning.compact import compact as compact
from bayeslim.pruning.criteria import LOG_ALPHA as LOG_ALPHA
from bayeslim.pruning.criteria import MAGNITUDE as MAGNITUDE
from bayeslim.pruning.criteria import MEAN_SQUARE as MEAN_SQUARE
from bayeslim.pruning.criteria import RANGE as RANGE
from bayeslim.pruning.criteria import SIGNAL_TO_NOISE as SIGNAL_TO_NOISE
from bayeslim.pruning.criteria import Criterion as Criterion
from bayeslim.pruning.curve import PruneCurve as PruneCurve
from bayeslim.pruning.curve import prune_curve as prune_curve
from bayeslim.pruning.footprint import Footprint as Footprint
from bayeslim.pruning.footprint import compare as compare
from bayeslim.pruning.footprint import footprint as footprint
from bayeslim.pruning.prune import prune_ as prune_
from bayeslim.pruning.prune import random_like as random_like
from bayeslim.pruning.prune import unprune_ as unprune_
from bayeslim.pruning.sparse import SparseLinear as SparseLinear
from bayeslim.pruning.sparse import sparsify_ as sparsify_
from bayeslim.pruning.sparsity import named_sparsity as named_sparsity
from bayeslim.pruning.sparsity import sparsity as sparsity

__all__ = [
    "LOG_ALPHA",
    "MAGNITUDE",
    "MEAN_SQUARE",
    "RANGE",
    "SIGNAL_TO_NOISE",
    "Criterion",
    "Footprint",
    "PruneCurve",
    "SparseLinear",
    "compact",
    "compare",
    "footprint",
    "named_sparsity",
    "prune_",
    "prune_curve",
    "random_like",
    "sparsify_",
    "sparsity",
    "unprune_",
]
