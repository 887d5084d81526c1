"""The networks that write.py saves: every posterior, prior, estimator, likelihood and kind of layer in one of them.

Only write.py uses these: the tests read the files, so that nothing here has to work for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim import estimators, pruning
from bayeslim.feature_selection import Recipe
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from bayeslim.sklearn import BayesianMLPRegressor
from frozen.own_networks import OWN

__all__ = ["LIKELIHOODS", "designs"]

WIDE = partial(MeanField, scale=0.3)
CHOICES: dict[str, dict[str, Any]] = {
    "normal": {"posterior": WIDE, "prior": bl.priors.Normal(0.1, 0.7), "estimator": bl.weight_sample},
    "he_normal": {
        "posterior": partial(MatrixNormal, scale=0.3),
        "prior": bl.priors.HeNormal(),
        "estimator": bl.moments,
    },
    "scale_mixture": {"posterior": WIDE, "prior": bl.priors.ScaleMixture(0.25), "estimator": bl.flipout},
    "student_t": {
        **{"posterior": partial(KTied, k=2, scale=0.3), "prior": bl.priors.StudentT(3.0, 0.5)},
        "estimator": estimators.independent_draws,
    },
    "log_uniform": {
        **{"posterior": partial(Multiplicative, alpha=0.2), "prior": bl.priors.LogUniform()},
        "estimator": bl.taylor_moments,
    },
    "kingma": {
        "posterior": partial(Multiplicative, alpha=0.2, max_alpha=1.0),
        "prior": bl.priors.LogUniform("kingma"),
    },
    "ard": {"posterior": WIDE, "prior": bl.priors.ARD(), "estimator": estimators.clipped_reparam},
    "gamma_ard": {"posterior": partial(MeanField, scale=0.2, max_scale=0.5), "prior": bl.priors.GammaARD(0.6, 1e-4)},
}
"""Every posterior, prior and estimator in one of them."""
LIKELIHOODS = {
    "normal": bl.Categorical(),
    "he_normal": bl.Bernoulli(),
    "scale_mixture": bl.likelihoods.Gaussian(0.3, learn_noise=True, outputs=2),
    "student_t": bl.likelihoods.HeteroscedasticGaussian(1e-3),
}
"""What some of them were trained with."""


@torch.no_grad()
def shaken(model: nn.Module, by: float = 0.1) -> nn.Module:
    """The network with every parameter moved a little, so that no two are equal."""
    for parameter in model.parameters():
        parameter.add_(by * torch.randn_like(parameter))
    return model.eval()


def perceptron(activation: type[nn.Module] = nn.Tanh, **options: Any) -> nn.Module:
    """Vectors through two layers, with a posterior over the biases."""
    plain = nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 2))
    return bl.bayesianize_(
        plain, **{"posterior": WIDE, "bias_posterior": WIDE, "bias_prior": bl.priors.Normal()} | options
    )


def mixed() -> nn.Module:
    """Layers that differ: one plain, one by its mean, one with a point estimate of the bias."""
    plain = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 2))
    options = {"2": {"estimator": bl.mean_only}}
    return bl.bayesianize_(plain, posterior=WIDE, where=lambda name, _: name != "0", overrides=options)


def moped() -> nn.Module:
    """Priors and posteriors around a plain network."""
    return bl.bayesianize_(bl.models.mlp([3, 6, 2]), **bl.moped(delta=0.3))


def embedding() -> nn.Module:
    """Tokens through a table with a padding row."""
    plain = nn.Sequential(nn.Embedding(7, 3, padding_idx=0), nn.Flatten(), nn.Linear(15, 2))
    return bl.bayesianize_(plain, posterior=WIDE)


def conv2d() -> nn.Module:
    """Images through convolutions, a transposed one with groups, and statistics of a batch."""
    plain = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(16, 2)),
    )
    plain(torch.randn(32, 1, 6, 6))
    return bl.bayesianize_(plain, posterior=partial(MeanField, scale=0.1), prior=bl.priors.ARD())


def conv1d() -> nn.Module:
    """Signals through a convolution with gaps, and back."""
    plain = nn.Sequential(
        *(nn.Conv1d(2, 4, 3, dilation=2, padding=2, padding_mode="circular"), nn.SiLU()),
        *(nn.ConvTranspose1d(4, 2, 3, output_padding=1, stride=2), nn.Flatten(), nn.Linear(28, 2)),
    )
    return bl.bayesianize_(plain, posterior=partial(KTied, k=1, scale=0.2))


def conv3d() -> nn.Module:
    """Volumes through a convolution and back."""
    plain = nn.Sequential(
        *(nn.Conv3d(1, 2, 2), nn.Softplus(), nn.ConvTranspose3d(2, 1, 2), nn.Flatten(), nn.Linear(27, 2)),
    )
    return bl.bayesianize_(plain, posterior=partial(Multiplicative, alpha=0.2))


def own(name: str) -> nn.Module:
    """A network of a class of one's own."""
    return bl.bayesianize_(OWN[name](), posterior=WIDE, prior=bl.priors.Normal(0, 0.5))


def cut(model: nn.Module, x: Tensor, structure: Any = "output") -> nn.Module:
    """The network without the units of least magnitude."""
    bl.prune_(shaken(model), pruning.MAGNITUDE, amount=0.4, structure=structure)
    return bl.compact(model, x)


def pruned(model: nn.Module, structure: Any = "weight") -> nn.Module:
    """The network with half of its weights at zero."""
    bl.prune_(shaken(model), amount=0.5, structure=structure)
    return model


def selection() -> nn.Module:
    """What variable selection finds: columns are picked by their numbers."""
    data = bl.data.sparse_regression(1, 400, seed=0)
    recipe = Recipe(epochs=20, batch_size=100, hard_threshold=3e-2, soft_threshold=0.1)
    return bl.select_features(data.x[:, :8], data.y, restarts=1, recipe=recipe, progress=False).network


def estimator() -> nn.Module:
    """The network of a scikit-learn estimator, in float64."""
    x = torch.randn(60, 3, dtype=torch.float64).numpy()
    fitted = BayesianMLPRegressor(hidden_layer_sizes=(4,), max_iter=3, random_state=0).fit(x, x[:, :2])
    assert isinstance(fitted.model_, nn.Module)
    return fitted.model_


def designs(inputs: Mapping[str, Tensor]) -> dict[str, Callable[[], nn.Module]]:
    """How each is built, by the name of its file."""
    vectors, images = inputs["vectors"], inputs["images"]
    activations = [nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU, nn.ELU, nn.Hardtanh, nn.LeakyReLU, nn.SiLU]
    kinds = zip(CHOICES.items(), activations, strict=True)
    plain_classes: list[Callable[[], nn.Module]] = [mixed, moped, embedding, conv1d, conv2d, conv3d]
    own_classes = [name for name in OWN if name not in ("own_pruned", "own_compacted")]
    return {
        **{name: lambda a=a, options=options: shaken(perceptron(a, **options)) for (name, options), a in kinds},
        **{build.__name__: lambda build=build: shaken(build()) for build in plain_classes},
        **{name: lambda name=name: shaken(own(name)) for name in own_classes},
        "pruned": lambda: pruned(perceptron(prior=bl.priors.ARD())),
        "own_pruned": lambda: pruned(own("own_pruned")),
        "compacted": lambda: cut(perceptron(nn.ReLU), vectors),
        "compacted_conv2d": lambda: cut(conv2d(), images),
        "own_compacted": lambda: cut(own("own_compacted"), vectors),
        "bfloat16": lambda: shaken(perceptron(nn.ReLU)).bfloat16(),
        "float64": lambda: shaken(perceptron(nn.ReLU).double()),
        "estimator": estimator,
        "selection": selection,
    }
