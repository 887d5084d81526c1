"""The objective, the training loop and its state on disk."""

from bayeslim.training.elbo import Nelbo as Nelbo
from bayeslim.training.elbo import nelbo as nelbo
from bayeslim.training.history import History as History
from bayeslim.training.loop import fit as fit
from bayeslim.training.many import fit_many as fit_many
from bayeslim.training.sharding import full_state as full_state
from bayeslim.training.sharding import shard_ as shard_
from bayeslim.training.sharding import unsharded as unsharded

__all__ = ["History", "Nelbo", "fit", "fit_many", "full_state", "nelbo", "shard_", "unsharded"]
