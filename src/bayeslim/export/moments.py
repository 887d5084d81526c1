"""The network that states its own mean and variance, as a plain module of tensors."""

from __future__ import annotations

from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.estimators import moments
from bayeslim.gaussian import Gaussian
from bayeslim.layers.base import BayesLayer
from bayeslim.surgery import copied

__all__ = ["MomentsNetwork"]


class MomentsNetwork(nn.Module):
    """A copy of `model` that answers with two tensors, mean and variance of its output, in one pass.

    Compilers and exporters know tensors, not `Gaussian`: this is the form in which a moments pass leaves Python.

    Args:
        model: network with Bayesian layers; copied to the CPU, in evaluation mode.

    Raises:
        ValueError: if it has no Bayesian layer, and so no variance to state.

    Example:
        >>> mean, variance = torch.compile(MomentsNetwork(model), fullgraph=True)(x)
    """

    def __init__(self, model: nn.Module) -> None:
        check_network(model, "export")
        super().__init__()
        self.model = copied(model).cpu().eval()
        layers = [module for module in self.model.modules() if isinstance(module, BayesLayer)]
        if not layers:
            raise ValueError("`model` has no Bayesian layer, so its output has no variance: convert it by bayesianize_")
        for layer in layers:
            layer.estimator = moments

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the network's output."""
        output = self.model(x)
        assert isinstance(output, Gaussian)
        return output.loc, output.variance
