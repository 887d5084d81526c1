"""What a network says, in numbers that JSON holds: what write.py recorded, and what the tests compare it with."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl

__all__ = ["FILES", "KIND", "agree", "closed_forms", "drawn", "numbers", "recorded"]

FILES = Path(__file__).with_name("files")
NOISE, NUM_DATA = 0.5, 100
KIND = {
    **{name: "tokens" for name in ("embedding", "own_tied")},
    **{name: "images" for name in ("conv2d", "compacted_conv2d")},
    **{name: "sequences" for name in ("own_recurrent", "own_attention", "own_encoder")},
    **{"conv1d": "signals", "conv3d": "volumes", "selection": "columns"},
}
"""Network -> its inputs; "vectors" where nothing is said."""


def closed_forms(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """All that needs no draws: the mean and, of a Bayesian network, moments, KL and lower bounds of the log evidence.

    The bounds are for targets of zero. A copy of the network is asked, in float64, so that processors agree.
    """
    model, x = copy.deepcopy(model).double(), x.double() if x.is_floating_point() else x
    likelihood = bl.likelihoods.Gaussian(NOISE).double()
    mean = bl.predict(model, x, method="mean", likelihood=likelihood).mean
    found: dict[str, Any] = {"mean": mean}
    if any(isinstance(module, bl.layers.BayesLayer) for module in model.modules()):
        for method in ("moments", "taylor"):
            prediction = bl.predict(model, x, method=method, likelihood=likelihood)
            found |= {method: prediction.mean, f"{method} variance": prediction.epistemic}
        found["kl"] = bl.kl(model).detach()
        for name, estimator in (("mean_only", bl.mean_only), ("moments", bl.moments)):
            with bl.using(model, estimator), torch.no_grad():
                bound = bl.nelbo(model, x, torch.zeros_like(mean), likelihood=likelihood, num_data=NUM_DATA)
            found[f"bound by {name}"] = -NUM_DATA * bound.loss
    return found


def drawn(model: nn.Module, x: Tensor, samples: int, seed: int) -> Tensor:
    """Outputs of as many networks from the posterior, (samples, examples, outputs), in float64."""
    likelihood = bl.likelihoods.Gaussian(NOISE).to(x.dtype if x.is_floating_point() else torch.float32)
    found = bl.predict(model, x, samples=samples, likelihood=likelihood, keep_samples=True, seed=seed).samples
    assert found is not None
    return found.double()


def agree(found: Tensor, expected: Any, error: float) -> bool:
    """Whether no number differs by more than this part of the largest."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    return found.shape == wanted.shape and bool(((found - wanted).abs() <= error * wanted.abs().max()).all())


def numbers(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors as lists of numbers with ten digits."""
    return {
        name: json.loads(json.dumps(tensor.double().tolist()), parse_float=_short) for name, tensor in tensors.items()
    }


def recorded() -> dict[str, Any]:
    """What write.py recorded."""
    return json.loads((FILES / "answers.json").read_text(encoding="utf-8"))


def _short(text: str) -> float:
    return float(f"{float(text):.10g}")
