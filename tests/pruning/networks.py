"""Small networks in the forms that users write."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.layers import Conv2d, Linear


class Residual(nn.Module):
    """A stream of channels with one block added to it."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.stem = Conv2d(channels, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.inner = Conv2d(width, 6, 3, padding=1)
        self.outer = Conv2d(6, width, 3, padding=1, bias=False)
        self.head = Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        stream = F.relu(self.norm(self.stem(x)))
        stream = stream + self.outer(F.relu(self.inner(stream), inplace=True))
        return self.head(stream.mean((2, 3)))


class BatchView(nn.Module):
    """Functional pooling, in-place activations and flattening by `view`."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Conv2d(2, 8, 3), Conv2d(8, 6, 1)
        self.three, self.four = Linear(6 * 9, 10), Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.tanh(self.one(x)), 2)
        x = F.dropout(self.two(x).sigmoid_(), 0.5, self.training)
        x = 1 - 0.5 * x.view(x.size(0), -1)
        return self.four(F.softplus(self.three(x)))


class Gated(nn.Module):
    """Squeeze and excitation: channels multiplied by gates computed from their means."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Conv2d(2, 9, 3), Conv2d(9, 7, 1)
        self.squeeze, self.excite = Conv2d(9, 4, 1), Conv2d(4, 9, 1)
        self.head = Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(x))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        x = F.avg_pool2d(self.two(x * gate), 2)
        return self.head(torch.amax(x, (2, 3)))


class Dense(nn.Module):
    """Concatenated channels, a reshape with its size written out and an operation nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = Conv2d(2, 5, 1), Conv2d(5, 4, 1), Conv2d(9, 6, 1)
        self.four, self.five, self.six = Linear(6 * 64, 12), Linear(12, 8), Linear(8, 3)
        self.norm = nn.LayerNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        one = torch.sigmoid(self.one(x))
        both = torch.cat([one, torch.tanh(self.two(one))], 1)
        x = self.four(torch.tanh(self.three(both)).reshape(-1, 6 * 64))
        x = self.five(torch.cumsum(self.norm(x), 1))
        return self.six(torch.tanh(x))
