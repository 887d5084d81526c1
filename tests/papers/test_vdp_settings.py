"""Settings and objectives of the VDP++ experiments are those of Epifano et al. and their code, or as the page says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim_papers.vdp import images as vision
from bayeslim_papers.vdp.cifar import VdpCifar
from bayeslim_papers.vdp.imagenet import VdpImagenet
from bayeslim_papers.vdp.images import Vdp
from bayeslim_papers.vdp.mnist import PAPER, Config, CovarianceNetwork, build, fitted
from bayeslim_papers.vdp.vit import VdpVit
from papers.spy import Spy, Stopped, values

PRIORS: dict[str, Any] = {
    "bbb": bl.priors.ScaleMixture(),
    "vdp-cov": bl.priors.Normal(0.0, 1.0),
    "vdp": bl.priors.Normal(0.0, 0.05),
    "vdp-ard": bl.priors.ARD(),
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            Config(),
            {
                "epochs": 25,
                "batch_size": 512,
                "lr": 1e-3,
                "seeds": (0, 1, 2, 3, 4),
                "prior_std": 0.05,
                "cov_kl_weight": 60.0,  # theirs on 60 000 images: KL / 1000 is 60 KL / 60 000
                "cov_images": 12_800,
            },
        ),
        (VdpVit(), {"epochs": 10, "batch_size": 512, "lr": 1e-3, "depth": 6, "kl_weight": 1.0, "prior_std": 0.05}),
        (VdpCifar(), {"batch_size": 128, "kl_weight": 0.1, "ramp": 10, "prior_std": 0.0}),
        (
            VdpImagenet(),
            {
                "epochs": 300,
                "batch_size": 1024,
                "lr": 1e-3,
                "kl_weight": 12.8,  # 0.01 KL beside 1000 times the mean loss of 1 281 167 images
                "prior_std": 1.0,
                "image": 224,
                "width": 384,
                "depth": 12,
                "heads": 6,
            },
        ),
    ],
    ids=["mnist", "vit", "cifar", "imagenet"],
)
def test_settings_are_those_of_the_paper(config: Any, expected: dict[str, Any]) -> None:
    assert {name: getattr(config, name) for name in expected} == expected


def test_weights_of_the_kl_follow_from_the_authors_code() -> None:
    """They add KL and a multiple of the mean loss; over the ELBO's `KL / N` that is `weight N / multiple`."""
    assert Config().cov_kl_weight == 1 * 60_000 / 1000
    assert VdpImagenet().kl_weight == pytest.approx(0.01 * 1_281_167 / 1000, rel=1e-3)
    assert PAPER["time of an epoch over det"] == {"vdp-cov": 10.0, "vdp": 2.5}


@pytest.mark.parametrize("method", PRIORS)
def test_priors_and_estimators_of_mnist(method: str) -> None:
    model = build(Config(), method)
    model = model.model if isinstance(model, CovarianceNetwork) else model
    layers = [layer for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert len(layers) == 5
    for layer in layers:
        assert type(layer.prior) is type(PRIORS[method]) and layer.prior.config() == PRIORS[method].config()
        assert layer.estimator is (bl.weight_sample if method == "bbb" else bl.moments)


@pytest.mark.parametrize("method", ["det", *PRIORS])
def test_what_networks_of_mnist_minimise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ELBO by Adam with amsgrad; vdp-cov on fewer images, with the authors' weight of the KL."""
    spy, slow = Spy(), method == "vdp-cov"
    monkeypatch.setattr(bl, "fit", spy)
    data = torch.zeros(12_801, 1), torch.zeros(12_801, dtype=torch.long)
    with pytest.raises(Stopped):
        fitted(Config(), method, nn.Linear(1, 1), data, 0)
    options = spy.calls[0]
    assert len(spy.arguments[1][0]) == (12_800 if slow else 12_801)
    assert (options["epochs"], options["batch_size"]) == ((2, 64) if slow else (25, 512))
    assert values(options["kl_schedule"], 25, (0, 24)) == [60.0 if slow else 1.0] * 2
    assert isinstance(options["likelihood"], bl.Categorical)
    optimizer = options["optimizer"]([nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam
    assert (optimizer.defaults["lr"], optimizer.defaults["amsgrad"]) == (1e-3, True)


@pytest.mark.parametrize("kind", [VdpCifar, VdpVit, VdpImagenet])
def test_what_networks_of_images_minimise(kind: type[Vdp], monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy()
    monkeypatch.setattr(vision, "train", spy)
    small, data = kind.quick("cpu")
    full = kind()
    with pytest.raises(Stopped):
        replace(small, kl_weight=full.kl_weight, ramp=full.ramp, lr=full.lr).measured("vdp", 0, data)
    options = spy.calls[0]
    group = options["optimizer"].param_groups[0]
    assert type(options["optimizer"]) is torch.optim.Adam and (group["lr"], group["amsgrad"]) == (1e-3, True)
    expected = [0.0, 0.05, 0.1] if kind is VdpCifar else [full.kl_weight] * 3
    assert values(options["kl_schedule"], 200, (0, 5, 199)) == pytest.approx(expected)
