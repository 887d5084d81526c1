"""Optimisers, samplers among them, and how to hand parameters to them."""

from bayeslim.optim.cv_adam import CVAdam as CVAdam
from bayeslim.optim.langevin import SGHMC as SGHMC
from bayeslim.optim.langevin import SGLD as SGLD
from bayeslim.optim.param_groups import param_groups as param_groups

__all__ = ["SGHMC", "SGLD", "CVAdam", "param_groups"]
