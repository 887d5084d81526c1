"""Laplace's approximation around a trained network, through laplace-torch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeslim.checks.networks import check_network
from bayeslim.likelihoods import Categorical, Gaussian
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.predictive.snapshots import Snapshots
from bayeslim.runtime.seeds import seeded
from bayeslim.surgery import copied

__all__ = ["laplace"]


def laplace(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    likelihood: Categorical | Gaussian,
    prior_std: float = 1.0,
    structure: str = "kron",
    samples: int = 100,
    batch_size: int = 256,
    seed: int = 0,
) -> Snapshots:
    r"""Draw from the Gaussian `N(W*, H^-1)` around trained weights W* (Daxberger et al. 2021).

    `H = sum_i G_i + I / prior_std^2`, where G_i is the generalised Gauss-Newton matrix of `-ln p(y_i | f_W(x_i))` at
    W*: exact for a linear model with Gaussian noise.

    Args:
        model: a plain network, trained to its maximum a posteriori; its weights stay as they are.
        x: training inputs.
        y: training targets.
        likelihood: `p(y | f)`: classes, or Gaussian noise of a stated size.
        prior_std: standard deviation of the prior.
        structure: of H: "full", "kron" or "diag".
        samples: draws to keep.
        batch_size: examples per pass.
        seed: of the draws.

    Returns:
        The draws as snapshots, for `bl.predict` and `bl.evaluate`.

    Raises:
        ImportError: without laplace-torch.

    Example:
        >>> draws = laplace(model, x, y, likelihood=bl.Categorical(), prior_std=0.1)
        >>> bl.predict(draws, x).entropy
    """
    check_network(model, "sample")
    try:
        from laplace import Laplace  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "Laplace's approximation needs laplace-torch, which brings torchvision and with it another torch: "
            "run `pip install laplace-torch` in an environment of its own"
        ) from error
    own = copied(model)  # its hooks stay on the copy
    classes = isinstance(likelihood, Categorical)
    noise = {} if classes else {"sigma_noise": likelihood.log_noise.exp().item()}
    task = "classification" if classes else "regression"
    posterior = Laplace(own, task, "all", structure, prior_precision=prior_std**-2, **noise)
    posterior.fit(DataLoader(TensorDataset(x, y), batch_size))
    with seeded(seed):
        draws = posterior.sample(samples).detach()
    remember_likelihood_(model, likelihood)
    names, sizes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)
    parts = zip(names, sizes, draws.split([size.numel() for size in sizes], 1), strict=True)
    drawn = {name: part.unflatten(1, size) for name, size, part in parts}
    fixed = dict(model.named_buffers())
    return Snapshots(model, [fixed | {name: drawn[name][i] for name in names} for i in range(samples)])
