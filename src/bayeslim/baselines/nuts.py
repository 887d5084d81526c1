"""NUTS: the posterior of a small network without approximation, to compare others with."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from bayeslim.checks.counts import check_counts
from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.likelihoods.base import Likelihood, remember_likelihood_
from bayeslim.predictive.snapshots import Snapshots
from bayeslim.runtime.seeds import seeded

__all__ = ["nuts"]


def nuts(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    likelihood: Likelihood,
    prior_std: float = 1.0,
    samples: int = 1000,
    warmup: int = 500,
    seed: int = 0,
) -> Snapshots:
    r"""Draw from `p(W | x, y)` by the No-U-Turn sampler of pyro (Hoffman and Gelman 2014).

    `p(W | x, y) ~ exp(-sum_i nll(f_W(x_i), y_i)) prod_j N(w_j; 0, prior_std^2)` over all parameters w_j of the network,
    biases among them. Every step passes over all data several times: for tens of examples and hundreds of weights.

    Args:
        model: a plain network; the chain begins at its weights, which stay as they are.
        x: inputs.
        y: targets.
        likelihood: `p(y | f)`, without parameters of its own to learn.
        prior_std: standard deviation of the prior.
        samples: draws to keep.
        warmup: steps before them, in which step size and mass matrix are adapted.
        seed: of the chain.

    Returns:
        The draws as snapshots, for `bl.predict` and `bl.evaluate`.

    Raises:
        ImportError: without pyro.
        ValueError: for a prior, counts or a likelihood that make no sense here.

    Example:
        >>> model, noise = bl.models.mlp([1, 20, 1], "tanh"), bl.likelihoods.Gaussian(0.1)
        >>> draws = nuts(model, x, y, likelihood=noise, samples=500)
        >>> bl.predict(draws, x).interval(0.9)
    """
    check_network(model, "sample")
    check_number("prior_std", prior_std, "(0, inf)", "pass e.g. 1.0")
    samples, warmup = check_counts(samples=samples, warmup=warmup)
    if any(parameter.requires_grad for parameter in likelihood.parameters()):
        raise ValueError("`likelihood` has parameters to learn, which NUTS does not draw: state the noise instead")
    try:
        from pyro.infer import MCMC, NUTS
    except ImportError as error:
        raise ImportError("NUTS needs pyro: pip install 'bayeslim[baselines]'") from error

    def energy(weights: dict[str, Tensor]) -> Tensor:
        squares = sum((value.square().sum() for value in weights.values()), start=x.new_zeros(()))
        return likelihood.nll(functional_call(model, weights, (x,)), y).sum() + squares / (2 * prior_std**2)

    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    kernel = NUTS(potential_fn=energy)
    chain = MCMC(kernel, samples, warmup_steps=warmup, initial_params=start, disable_progbar=True)
    with seeded(seed):
        chain.run()
    draws = chain.get_samples()
    remember_likelihood_(model, likelihood)
    fixed = dict(model.named_buffers())
    return Snapshots(model, [fixed | {name: draws[name][i] for name in start} for i in range(samples)])
