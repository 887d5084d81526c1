"""Optimisers, samplers among them, pruning beside them, and how to hand parameters to them."""

from bayeslim.optim.cv_adam import CVAdam as CVAdam
from bayeslim.optim.groups import em_threshold as em_threshold
from bayeslim.optim.langevin import SGHMC as SGHMC
from bayeslim.optim.langevin import SGLD as SGLD
from bayeslim.optim.param_groups import param_groups as param_groups
from bayeslim.optim.sparsity_target import SparsityTarget as SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab as SpikeAndSlab

__all__ = ["SGHMC", "SGLD", "CVAdam", "SparsityTarget", "SpikeAndSlab", "em_threshold", "param_groups"]
