"""Posterior samples frozen into plain networks, and the moments over them as one module."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from bayeslim.checks.counts import check_counts
from bayeslim.checks.networks import check_network
from bayeslim.collapse import collapse_
from bayeslim.estimators import kind_of
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood
from bayeslim.posteriors.base import Posterior
from bayeslim.runtime.seeds import seeded
from bayeslim.surgery import copied

__all__ = ["BatchedSamples", "LoopedSamples", "MomentsOfOutputs", "batchable", "sample_networks"]


class _Drawn(Posterior):
    """One draw, which is all its own mean."""

    scale_parameters = ()

    def __init__(self, draw: Tensor) -> None:
        super().__init__()
        self.draw = nn.Parameter(draw)

    def mean(self) -> Tensor:
        """The draw."""
        return self.draw

    def variance(self) -> Tensor:
        """Nothing is uncertain any more."""
        return torch.zeros_like(self.draw)

    def rsample(self) -> Tensor:
        """The draw."""
        return self.draw

    def config(self) -> dict[str, object]:
        """Nothing to configure."""
        return {}


@torch.no_grad()
def sample_networks(model: nn.Module, samples: int, seed: int = 0) -> list[nn.Module]:
    """Draw whole plain networks from the posterior: every weight of network `s` is one draw `W_s ~ q`.

    Layers set to `mean_only` stay at their means, as in `predict`; parts that are the same in all networks are shared
    between them.

    Args:
        model: network with Bayesian layers; left as it is.
        samples: how many.
        seed: of the draws; torch's own random state is left alone.

    Returns:
        `samples` plain torch networks on the CPU, in evaluation mode.

    Raises:
        ValueError: if `samples` is not positive or there is nothing to sample.

    Example:
        >>> outputs = torch.stack([network(x) for network in sample_networks(model, 20)])
    """
    check_network(model, "sample")
    (samples,) = check_counts(samples=samples)
    if not any(isinstance(module, BayesLayer) for module in model.modules()):
        raise ValueError("`model` has no Bayesian layer to sample: leave `samples` out to export the network itself")
    model = copied(model).cpu()
    with seeded(seed):
        networks = [collapse_(_drawn(model)).eval() for _ in range(samples)]
    for network in networks[1:]:
        _share(network, networks[0])
    return networks


def _drawn(model: nn.Module) -> nn.Module:
    """A copy whose posteriors hold one draw each; a posterior that layers share is drawn once."""
    model = copied(model)
    draws: dict[int, _Drawn] = {}
    for layer in model.modules():
        if not isinstance(layer, BayesLayer):
            continue
        for name in ("weight", "bias"):
            part = getattr(layer, name)
            if isinstance(part, _Drawn) or not isinstance(part, Posterior):
                continue
            if id(part) not in draws:
                draws[id(part)] = _Drawn(part.mean() if kind_of(layer.estimator) == "mean" else part.rsample())
            setattr(layer, name, draws[id(part)])
    return model


def _share(network: nn.Module, first: nn.Module) -> None:
    """Let `network` hold the very tensors of `first` where they are equal, so that they are stored once."""
    for own, other in zip(network.modules(), first.modules(), strict=True):
        if isinstance(own, nn.RNNBase):
            continue  # keeps its weights in a second list as well
        for table, theirs in ((own._parameters, other._parameters), (own._buffers, other._buffers)):
            for name, tensor in table.items():
                twin = theirs[name]
                if tensor is not None and twin is not None and torch.equal(tensor, twin):
                    table[name] = twin  # pyright: ignore[reportArgumentType]


def batchable(network: nn.Module) -> bool:
    """Whether the samples of such a network can run as one batched product that keeps the batch size open.

    Not with convolutions (torch's batching rule fixes the batch size while tracing) nor recurrent layers (it has none).
    """
    return not any(isinstance(module, _ConvNd | nn.RNNBase) for module in network.modules())


class _Moments(nn.Module, ABC):
    """`mean = E_s[m_s]`, `epistemic = Var_s[m_s]`, `aleatoric = E_s[v_s]` of the conditionals `(m_s, v_s)`."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = copy.deepcopy(likelihood).cpu()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `predict` computes them: variances divide by the number of samples."""
        return self.moments(self.outputs(x))

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, epistemic and aleatoric of the outputs of all samples, samples first."""
        half = outputs.dtype in (torch.float16, torch.bfloat16)
        conditional = self.likelihood.conditional(outputs.float() if half else outputs)
        mean = conditional.mean.mean(0)
        return mean, (conditional.mean - mean).square().mean(0), conditional.variance.mean(0)

    @abstractmethod
    def outputs(self, x: Tensor) -> Tensor:
        """The outputs of all samples, samples first."""


class MomentsOfOutputs(_Moments):
    """The moments alone, of outputs that are there already.

    Args:
        likelihood: turns outputs into conditionals.

    Shape:
        (samples, batch, ...) -> mean, epistemic and aleatoric, each (batch, outputs)
    """

    def outputs(self, x: Tensor) -> Tensor:
        """See `_Moments.outputs`: what is given."""
        return x


class LoopedSamples(_Moments):
    """Moments over networks that run one after the other.

    Args:
        networks: of `sample_networks`.
        likelihood: turns outputs into conditionals.

    Shape:
        (batch, ...) -> mean, epistemic and aleatoric, each (batch, outputs)
    """

    def __init__(self, networks: list[nn.Module], likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        self.networks = nn.ModuleList(networks)

    def outputs(self, x: Tensor) -> Tensor:
        """See `_Moments.outputs`."""
        return torch.stack([network(x) for network in self.networks])


class BatchedSamples(_Moments):
    """Moments over networks whose weights are stacked and run as one batched product per layer.

    Args:
        networks: of `sample_networks`, all of one structure.
        likelihood: turns outputs into conditionals.

    Shape:
        (batch, ...) -> mean, epistemic and aleatoric, each (batch, outputs)
    """

    def __init__(self, networks: list[nn.Module], likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        states = [dict([*network.named_parameters(), *network.named_buffers()]) for network in networks]
        self._axes: dict[str, int | None] = {}
        for index, (name, first) in enumerate(states[0].items()):
            shared = all(state[name] is first for state in states)
            tensor = first.detach() if shared else torch.stack([state[name].detach() for state in states])
            self.register_buffer(f"tensor{index}", tensor)
            self._axes[name] = None if shared else 0
        # In a list, which hides it from parameters(): a skeleton whose tensors are all put in from outside.
        self._skeleton = [copy.deepcopy(networks[0]).to("meta")]
        self._count = len(networks)

    def outputs(self, x: Tensor) -> Tensor:
        """See `_Moments.outputs`."""
        state = {name: getattr(self, f"tensor{index}") for index, name in enumerate(self._axes)}
        if not any(axis == 0 for axis in self._axes.values()):
            output = functional_call(self._skeleton[0], state, (x,))
            return output.expand(self._count, *output.shape)

        def one(tensors: dict[str, Tensor]) -> Tensor:
            return functional_call(self._skeleton[0], tensors, (x,))

        return torch.vmap(one, in_dims=(self._axes,))(state)
