"""Which torch function has which moment rule."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bayeslim.gaussian import MOMENT_RULES
from bayeslim.moment_rules.activations import elementwise, leaky_relu, relu

__all__: list[str] = []

MOMENT_RULES.update(
    {
        F.relu: relu,
        torch.relu: relu,
        F.leaky_relu: leaky_relu,
        **{
            function: elementwise(function)
            for function in (
                torch.tanh,
                torch.sigmoid,
                torch.sin,
                F.gelu,
                F.silu,
                F.softplus,
                F.elu,
                F.selu,
            )
        },
    }
)
