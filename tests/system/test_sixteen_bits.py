"""Networks of bfloat16 and float16: their scales are float32, are learned, and go with everything else."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.estimators import clipped_reparam
from bayeslim.layers import Linear
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative, Posterior
from bayeslim.pruning.cutting import Cut, cut_layer_
from contracts.cases import each
from contracts.members import FACTORISED, POSTERIORS
from system.matrix import example, layer
from training.problems import blobs

NARROW = [torch.bfloat16, torch.float16]
MEMBERS = ["MeanField", "MeanField-bounded", "Multiplicative-bounded", "KTied-2", "MatrixNormal"]
"""One of every kind, for the type of a scale does not depend on more."""
LEARNED: dict[str, Callable[..., Posterior]] = {
    "MeanField": MeanField,
    "Multiplicative": Multiplicative,
    "KTied": functools.partial(KTied, k=2, jitter=0.0),
    "MatrixNormal": MatrixNormal,
}
"""With the scales that they have by default, which is where steps of 1e-3 are lost in 16 bits."""


def scales(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter that states a spread."""
    return {
        f"{place}.{name}": module.get_parameter(name)
        for place, module in model.named_modules()
        if isinstance(module, Posterior)
        for name in module.scale_parameters
    }


def assert_types(model: nn.Module, dtype: torch.dtype) -> None:
    """Scales are float32 and all else is `dtype`."""
    wide = {id(scale) for scale in scales(model).values()}
    assert wide
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if id(parameter) in wide else dtype), name


def network(dtype: torch.dtype, **bayes: Any) -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3))
    return bl.bayesianize_(plain.to(dtype), **bayes)


def images(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 1, 4, 4, generator=generator).to(dtype), torch.arange(12) % 3


@contextmanager
def future(flag: str) -> Iterator[None]:
    """One of the ways in which torch will convert modules; "" is the present one."""
    switch = getattr(torch.__future__, f"set_{flag}_module_params_on_conversion") if flag else lambda on: None
    switch(True)
    try:
        yield
    finally:
        switch(False)


@pytest.mark.parametrize(("posterior", "autocast"), [*((name, None) for name in LEARNED), ("KTied", torch.bfloat16)])
def test_fit_moves_scales_as_far_as_in_float32(posterior: str, autocast: torch.dtype | None) -> None:
    """Within a tenth, which is more than rounding of the weights and of the loss makes; steps in 16 bits end as 0."""
    x, y = blobs(480)

    def moved(dtype: torch.dtype) -> dict[str, float]:
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)
        model = bl.bayesianize_(plain, posterior=LEARNED[posterior])
        before = {name: scale.detach().clone() for name, scale in scales(model).items()}
        options: dict[str, Any] = {"epochs": 4, "batch_size": 16, "lr": 1e-3, "seed": 0, "progress": False}
        bl.fit(model, (x.to(dtype), y), likelihood=bl.Categorical(), autocast=autocast, **options)
        return {name: (scale - before[name]).abs().mean().item() for name, scale in scales(model).items()}

    expected = moved(torch.float32)
    assert min(expected.values()) > 1e-3
    assert moved(torch.bfloat16) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("posterior", MEMBERS)
def test_conversions_keep_scales_and_their_gradients_exactly(posterior: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Linear(5, 4, posterior=POSTERIORS[posterior]))
    exact = {name: scale.detach().clone() for name, scale in scales(model).items()}
    for flag in ("", "overwrite", "swap"):
        for convert in (lambda m: m.to(dtype), lambda m: m.type(dtype), lambda m: m.to(torch.empty(0, dtype=dtype))):
            twin = copy.deepcopy(model)
            for parameter in twin.parameters():
                parameter.grad = torch.full_like(parameter, 1 + 2**-20)
            with future(flag):
                assert convert(twin) is twin
            assert_types(twin, dtype)
            for name, scale in scales(twin).items():
                assert torch.equal(scale, exact[name])
                assert scale.grad is not None and torch.equal(scale.grad, torch.full_like(scale, 1 + 2**-20))
    assert_types(copy.deepcopy(model).half(), torch.float16)
    assert_types(copy.deepcopy(model).bfloat16(), torch.bfloat16)
    assert_types(copy.deepcopy(model).double().to(dtype), dtype)
    assert_types(copy.deepcopy(model).to(dtype).float(), torch.float32)
    assert {parameter.dtype for parameter in copy.deepcopy(model).to(dtype).double().parameters()} == {torch.float64}
    moved = copy.deepcopy(model).to("meta", dtype)
    assert_types(moved, dtype)
    assert all(parameter.is_meta for parameter in moved.parameters())
    assert_types(moved.to_empty(device="cpu"), dtype)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("posterior", MEMBERS)
def test_new_posteriors_state_scales_with_all_digits(posterior: str, dtype: torch.dtype) -> None:
    weight = torch.linspace(-1, 1, 20).view(4, 5).to(dtype)
    torch.manual_seed(0)
    narrow = POSTERIORS[posterior](weight)
    torch.manual_seed(0)
    wide = POSTERIORS[posterior](weight.float())
    assert_types(narrow, dtype)
    assert narrow.variance().dtype == narrow.log_std().dtype == torch.float32
    assert narrow.rsample().dtype == narrow.dtype == dtype
    assert torch.equal(narrow.variance(), wide.variance()) and torch.equal(narrow.log_std(), wide.log_std())


@pytest.mark.parametrize("dtype", NARROW)
@each("posterior", MEMBERS)
@pytest.mark.parametrize("kind", ["Linear", "ConvTranspose2d"])
def test_outputs_have_the_type_of_the_weights_and_gradients_that_of_the_scales(
    kind: str, posterior: str, dtype: torch.dtype
) -> None:
    module, x = layer(kind, posterior=POSTERIORS[posterior]).to(dtype), example(kind).to(dtype)
    assert_types(module, dtype)
    estimators = [bl.mean_only, bl.weight_sample, bl.local_reparam, bl.moments, clipped_reparam]
    for estimator in estimators[: None if posterior in FACTORISED else -1]:
        with bl.using(module, estimator):
            output: Any = module(x)
        found = [output] if isinstance(output, Tensor) else [output.loc, output.variance]
        assert found[0].dtype == dtype
        if estimator is bl.moments:  # small variances underflow in float16
            assert found[1].dtype == (torch.float32 if dtype == torch.float16 else dtype)
        module.zero_grad()
        (torch.stack([part.float().sum() for part in found]).sum() + module.kl()).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("posterior", MEMBERS)
def test_files_of_now_and_of_before(posterior: str, tmp_path: Path) -> None:
    """A file holds scales in float32; where one holds them in 16 bits, as files did, they become float32."""
    dtype = torch.bfloat16
    options = {"posterior": POSTERIORS[posterior], "bias_posterior": MeanField}
    model = network(dtype, **options)
    bl.save(model, tmp_path / "now.safetensors")
    for target in (None, network(dtype, **options), network(dtype, posterior=Multiplicative)):
        found = bl.load(tmp_path / "now.safetensors", target)
        assert_types(found, dtype)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())
    old = {name: value.to(dtype) for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    bl.save(model, tmp_path / "before.safetensors")
    for target in (None, network(dtype, **options), network(dtype, posterior=Multiplicative)):
        found = bl.load(tmp_path / "before.safetensors", target)
        assert_types(found, dtype)
        assert all(torch.equal(value, old[name].to(value.dtype)) for name, value in found.state_dict().items())
    for flag in ("", "swap"):
        for assign in (False, True):
            fresh = network(dtype, **options)
            with future(flag):
                fresh.load_state_dict(old, assign=assign)
            assert_types(fresh, dtype)


def test_a_run_of_before_goes_on_with_scales_that_learn(tmp_path: Path) -> None:
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "batch_size": 4, "seed": 0, "progress": False}
    model, data = network(torch.bfloat16), images(torch.bfloat16)
    for scale in scales(model).values():
        scale.data = scale.data.bfloat16()
    bl.fit(model, data, epochs=1, checkpoint=tmp_path, **options)
    start = {name: scale.detach().float() for name, scale in scales(model).items()}
    resumed = network(torch.bfloat16)
    bl.fit(resumed, data, epochs=3, checkpoint=tmp_path, resume=True, **options)
    assert_types(resumed, torch.bfloat16)
    for name, scale in scales(resumed).items():
        assert 1e-4 < (scale - start[name]).abs().mean().item() < 0.01


@pytest.mark.parametrize(("posterior", "dtype"), [*((m, torch.bfloat16) for m in MEMBERS), ("KTied-2", torch.float16)])
def test_what_is_done_to_networks_works(posterior: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, (x, y) = network(dtype, posterior=POSTERIORS[posterior]), images(dtype)
    remember_likelihood_(model, bl.Categorical())
    result = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=12)
    assert result.kl.dtype == torch.float32 and bool(result.loss.isfinite())
    snapshots = bl.Snapshots(model, tmp_path)
    snapshots.take_(0)
    for predicted in (model, snapshots):
        found = [bl.predict(predicted, x, samples=3, method="sample", seed=0)]
        found += [bl.predict(model, x, method=method) for method in ("moments", "mean")]
        assert all(bool((part.mean.isfinite() & part.total.isfinite()).all()) for part in found)
    plain = bl.collapse_(copy.deepcopy(model))
    assert {parameter.dtype for parameter in plain.parameters()} == {dtype}
    assert torch.allclose(plain(x).softmax(-1).float(), found[-1].mean, atol=0.01, rtol=0)
    if posterior not in FACTORISED:
        return
    bl.prune_(model, bl.pruning.MAGNITUDE, amount=0.5, structure="output", where=lambda name, part: name != "5")
    small = bl.compact(model, x[:1])
    for pruned in (model, small):
        assert_types(pruned, dtype)
        assert bool(bl.kl(pruned).isfinite()) and bool(bl.predict(pruned, x, samples=3).mean.isfinite().all())
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("posterior", ["MeanField", "KTied-2"])
def test_what_stays_of_a_cut_layer_keeps_all_digits(posterior: str) -> None:
    """Also where a rank of 2 no longer fits, and the posterior becomes a mean-field one."""
    model = network(torch.bfloat16, posterior=POSTERIORS[posterior])
    last: Any = model.get_submodule("5")
    exact = last.weight.variance().detach()
    nothing = torch.zeros(8)
    cut_layer_(last, Cut(torch.arange(3), torch.tensor([2]), 1, nothing[:3], nothing[:3].bool(), nothing.bool()))
    torch.testing.assert_close(last.weight.variance(), exact[:, 2:3], rtol=1e-5, atol=0)
    assert_types(last, torch.bfloat16)


def test_scales_of_moped_and_of_a_low_rank_have_all_digits() -> None:
    model = network(torch.bfloat16, **bl.moped(delta=0.1))
    assert_types(model, torch.bfloat16)
    weight: Any = model.get_submodule("5").weight
    magnitude = weight.loc.detach().float().abs()
    expected = 0.1 * magnitude.clamp_min(1e-3 * magnitude.mean())
    torch.testing.assert_close(weight.log_scale.detach().exp(), expected, rtol=1e-5, atol=0)
    bl.analysis.tie_scales_(model, k=8)
    assert_types(model, torch.bfloat16)
    assert bool(model(images(torch.bfloat16)[0]).isfinite().all()) and bool(bl.kl(model).isfinite())
