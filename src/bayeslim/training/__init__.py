"""The objective, the training loop and its state on disk."""

from bayeslim.training.elbo import Nelbo as Nelbo
from bayeslim.training.elbo import nelbo as nelbo
from bayeslim.training.history import History as History
from bayeslim.training.loop import fit as fit

__all__ = ["History", "Nelbo", "fit", "nelbo"]
