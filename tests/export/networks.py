"""Networks to export, with weights that are neither zero nor special."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.masks import Masked


def bayesian(plain: nn.Module, scale: float = 0.05) -> nn.Module:
    """A Bayesian network around `plain` with a spread worth measuring, and biases that are not zero."""
    model = bl.bayesianize_(plain, posterior=lambda init: bl.posteriors.MeanField(init, scale=scale))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, bl.layers.BayesLayer) and isinstance(module.bias, nn.Parameter):
                module.bias.normal_()
    return model


def pruned(model: nn.Module, amount: float, seed: int = 0) -> nn.Module:
    """The same part of every layer's weights pruned, at random places."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, bl.layers.BayesLayer):
            mean = module.weight.mean()
            order = torch.randperm(mean.numel(), generator=generator)
            mask = (order >= round(amount * mean.numel())).view_as(mean).float()
            module.weight = Masked(module.weight, mask)
    return model


def convolutional() -> nn.Sequential:
    """A small network with most of what `describe` knows."""
    network = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, groups=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 4, 3, bias=False),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(16),
        nn.Linear(16, 3),
    )
    with torch.no_grad():
        network(torch.randn(64, 2, 8, 8))  # running statistics of the norm
    return network


class ByHand(nn.Module):
    """A network as people write them: pooled by `mean`, normalised by hand, gated as in squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 16)
        self.hidden, self.head = nn.Linear(16, 64), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.conv(x))
        x = x * torch.sigmoid(self.gate(x.mean([2, 3])))[:, :, None, None]
        x = self.hidden(x.mean(dim=(2, 3)))
        return self.head((x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5))


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model.eval()(x)
