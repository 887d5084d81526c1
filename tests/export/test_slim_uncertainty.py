"""What each way to keep a network keeps of its doubts, as docs/pruning.md states it."""

from pathlib import Path

import pytest
import torch

import bayeslim as bl
from bayeslim.export import load_slim, save_slim
from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import remembered_likelihood

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] + 0.3


def trained() -> torch.nn.Module:
    torch.manual_seed(0)
    model = bl.mlp([3, 8, 1])
    bl.fit(model, (X, Y), likelihood=Gaussian(0.5, learn_noise=True), epochs=2, seed=0)
    return model


def test_a_slim_network_says_what_it_lacks(tmp_path: Path) -> None:
    save_slim(trained(), tmp_path / "net.slim.safetensors")
    slim = load_slim(tmp_path / "net.slim.safetensors")
    lost = (
        "not known: a slim network is mean weights alone, without uncertainty or learned noise; keep these by bl.save"
    )
    with pytest.raises(ValueError, match=rf"{lost}, or pass e.g. likelihood=bl.Categorical\(\)"):
        bl.predict(slim, X)
    prediction = bl.predict(slim, X, samples=5, likelihood=Gaussian(0.5))
    assert not prediction.epistemic.any()
    bl.fit(slim, (X, Y), likelihood=Gaussian(0.5), epochs=1)
    bl.predict(slim, X)


def test_compacted_saved_and_collapsed_networks_know_their_noise(tmp_path: Path) -> None:
    model = trained()
    noise = remembered_likelihood(model)
    assert isinstance(noise, Gaussian) and noise.log_noise.mul(2).exp().item() != pytest.approx(0.25, rel=1e-6)
    bl.save(model, tmp_path / "net.safetensors")
    for kept in (bl.compact(model, X[:4]), bl.load(tmp_path / "net.safetensors")):
        assert bool((bl.predict(kept, X, samples=20, seed=0).epistemic > 0).all())
        assert bl.predict(kept, X, samples=2).aleatoric[0].item() == pytest.approx(noise.log_noise.mul(2).exp().item())
    plain = bl.collapse_(bl.load(tmp_path / "net.safetensors"))
    prediction = bl.predict(plain, X, samples=5)
    assert not prediction.epistemic.any()
    assert prediction.aleatoric[0].item() == pytest.approx(noise.log_noise.mul(2).exp().item())
