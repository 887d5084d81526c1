"""Removing what the posterior calls noise."""

from bayeslim.pruning.sparsity import named_sparsity as named_sparsity
from bayeslim.pruning.sparsity import sparsity as sparsity

__all__ = ["named_sparsity", "sparsity"]
