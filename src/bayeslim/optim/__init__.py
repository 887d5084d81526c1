"""Optimisers and how to hand parameters to them."""

from bayeslim.optim.param_groups import param_groups as param_groups

__all__ = ["param_groups"]
