"""Training mode, except for the parts that are to stay in evaluation mode."""

from __future__ import annotations

from torch import nn

__all__ = ["TrainingModes"]


class TrainingModes:
    """Puts networks in training mode, and knows which of their parts must not follow.

    A part in evaluation mode, inside a network that is itself in training mode, was put there on purpose (a frozen
    BatchNorm, a frozen backbone) and stays so. A network that is in evaluation mode as a whole was only evaluated
    before, and all of it is trained.

    Args:
        models: as the caller left them; their modes are noted now.

    Example:
        >>> net[1].eval()
        >>> modes = TrainingModes(net)
        >>> modes.train_()  # all but net[1]
    """

    def __init__(self, *models: nn.Module) -> None:
        self.models = models
        self.kept = [part for model in models if model.training for part in model.modules() if not part.training]

    def train_(self) -> None:
        """Put all in training mode but the parts that are kept."""
        for model in self.models:
            model.train()
        self.restore_()

    def restore_(self) -> None:
        """Put the parts that are kept back in evaluation mode, whatever became of them meanwhile."""
        for part in self.kept:
            part.training = False
