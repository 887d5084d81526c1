import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeslim.optim import CVAdam, injection
from optim.recursions import CENTRE, CURVATURE, FirstForm, check_moments, momentum_covariance, run_chains

CHAINS = 20_000


def chains(start: Tensor = CENTRE) -> nn.Parameter:
    return nn.Parameter(start.expand(CHAINS, 3).clone())


def recorded_run(steps: int, **options: Any) -> list[dict[str, Tensor]]:
    """Weights, gradient, rho and velocity before every step of a run in float64."""
    weights = nn.Parameter(torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    optimizer = CVAdam([weights], **options)
    records: list[dict[str, Tensor]] = []
    for _ in range(steps):
        gradient = (3 * weights).sin().detach()
        state = optimizer.state[weights]
        records.append(
            {
                "weights": weights.detach().clone(),
                "gradient": gradient,
                "rho": state["rho"].clone() if state else torch.zeros_like(gradient),
                "velocity": state["velocity"].clone() if state else torch.zeros_like(gradient),
            }
        )
        weights.grad = gradient
        optimizer.step()
    return records


OPTIONS: dict[str, Any] = {"num_data": 50, "lr": 0.3, "temperature": 0.4, "weight_decay": 0.2, "eta": 0.5}


def injected(before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
    """The noise of a step, from the velocities around it."""
    pull = before["gradient"] + OPTIONS["weight_decay"] * before["weights"]
    rest = after["velocity"] - 0.1 * before["velocity"] + OPTIONS["lr"] * pull
    return rest / (math.sqrt(2 + 2 * 0.1**2) * OPTIONS["temperature"] * OPTIONS["lr"] ** 0.75)


@pytest.mark.parametrize("block", [injection.BLOCK, 16], ids=["one piece", "three pieces"])
def test_rho_follows_the_first_form_with_the_noise_injected_in_the_step_before(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the same weights, gradients and eps, Algorithms 1 and 2 have the same rho and tau."""
    monkeypatch.setattr(injection, "BLOCK", block)
    records = recorded_run(12, **OPTIONS)
    first = FirstForm(records[0]["weights"], 50, 0.3, 0.4, eta=0.5, weight_decay=0.2)
    first.rho = records[1]["rho"]
    for before, now, after in zip(records, records[1:], records[2:], strict=False):
        first.step(now["weights"], now["gradient"], injected(before, now))
        torch.testing.assert_close(after["rho"], first.rho, rtol=0, atol=1e-12)
        moved = torch.sigmoid(after["rho"]) * after["velocity"]
        torch.testing.assert_close(after["weights"] - now["weights"], moved, rtol=0, atol=1e-12)


def test_without_noise_both_forms_are_one() -> None:
    options = OPTIONS | {"temperature": 0.0}
    records = recorded_run(12, **options)
    first = FirstForm(records[0]["weights"], 50, 0.3, 0.0, eta=0.5, weight_decay=0.2)
    for now, after in itertools.pairwise(records):
        first.step(now["weights"], now["gradient"], torch.zeros(()))
        torch.testing.assert_close(after["weights"], first.mean, rtol=0, atol=1e-12)


def test_new_noise_is_standard_and_fresh() -> None:
    records = recorded_run(400, **OPTIONS)
    noise = torch.stack([injected(a, b) for a, b in itertools.pairwise(records)])
    count = noise.numel()
    assert abs(noise.mean()) < 5 / math.sqrt(count)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / count)
    assert abs((noise[1:] * noise[:-1]).mean()) < 5 / math.sqrt(count - 40)


def test_zero_temperature_is_heavy_ball_descent_with_step_tau_lr() -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 9)) for _ in range(2))
    sampler = CVAdam([ours], num_data=100, lr=0.2, temperature=0.0, eta=0.0, beta1=0.8, weight_decay=0.1)
    descent = torch.optim.SGD([theirs], 0.5 * 0.2, momentum=0.8, weight_decay=0.1)
    for _ in range(30):
        for weights, optimizer in ((ours, sampler), (theirs, descent)):
            optimizer.zero_grad()
            (weights.sin() * torch.arange(9)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_without_a_gradient_signal_rho_grows_by_eta_over_n_tau() -> None:
    weights = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = CVAdam([weights], num_data=20, lr=0.1, eta=0.3)
    expected = 0.0
    for _ in range(50):
        weights.grad = torch.zeros_like(weights)
        optimizer.step()
        expected += 0.3 / 20 * (1 + math.exp(-expected))
    torch.testing.assert_close(optimizer.state[weights]["rho"], torch.full_like(weights, expected), rtol=1e-12, atol=0)


@pytest.mark.parametrize("taus", [(0.5, 0.5, 0.5), (0.2, 0.5, 0.9)], ids=["even", "uneven"])
def test_moments_with_frozen_tau_are_those_of_the_recursion(taus: tuple[float, ...]) -> None:
    lr, knob, beta1, decay = 0.4, 0.3, 0.3, 0.2
    weights, tau = chains(), torch.tensor(taus, dtype=torch.float64)
    optimizer = CVAdam(
        [weights], num_data=30, lr=lr, temperature=knob, eta=0.0, beta1=beta1, beta2=0.8, weight_decay=decay
    )
    optimizer.state[weights]["rho"] = torch.logit(tau).expand(CHAINS, 3).clone()
    states = run_chains(optimizer, weights, 150)
    total = CURVATURE + decay * torch.eye(3, dtype=torch.float64)
    noise = math.sqrt(2 + 2 * beta1**2) * knob * lr**0.75
    covariance = momentum_covariance(total, tau, beta1, 0.8 * lr, noise)
    check_moments(states, torch.linalg.solve(total, CURVATURE @ CENTRE), covariance)


def test_the_knob_that_the_docstring_gives_samples_the_posterior() -> None:
    lr, count, beta1 = 0.02, 40, 0.1
    knob = math.sqrt((1 - beta1) / ((1 + beta1**2) * count * 0.5 * math.sqrt(lr)))
    posterior = torch.linalg.inv(count * CURVATURE)
    weights = chains()
    start = torch.linalg.cholesky(posterior) @ torch.randn(
        3, CHAINS, dtype=torch.float64, generator=torch.Generator().manual_seed(5)
    )
    weights.data.add_(start.T)
    optimizer = CVAdam([weights], num_data=count, lr=lr, temperature=knob, eta=0.0, beta1=beta1)
    states = run_chains(optimizer, weights, 600)
    # Bias tau lr a / (2 + 2 beta1) with the largest curvature a = 2.3: at most 1.1 %.
    check_moments(states, CENTRE, posterior, slack=0.011)


def test_variance_formula_of_the_docstring() -> None:
    curvature, tau, lr, knob, beta1, beta2, count = 1.7, 0.3, 0.5, 0.2, 0.4, 0.9, 25
    noise = math.sqrt(2 + 2 * beta1**2) * knob * lr**0.75
    args = torch.tensor([[curvature]], dtype=torch.float64), torch.tensor([tau], dtype=torch.float64)
    exact = momentum_covariance(*args, beta1, beta2 * lr, noise).item()
    temperature = count * knob**2 * tau * math.sqrt(lr) * (1 + beta1**2) / (beta2 * (1 - beta1))
    assert exact == pytest.approx(
        temperature / (count * curvature) / (1 - beta2 * tau * lr * curvature / (2 + 2 * beta1)), rel=1e-10
    )


@pytest.mark.parametrize(("name", "value"), [("posterior", 0.1), ("cold", 0.01)])
def test_named_temperatures(name: Any, value: float) -> None:
    results: list[Tensor] = []
    for temperature in (name, value):
        weights = nn.Parameter(torch.ones(7))
        weights.grad = torch.ones(7)
        CVAdam([weights], num_data=100, lr=0.5, temperature=temperature).step()
        results.append(weights.detach())
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=0)
    assert results[0].std() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "warm"}, "`temperature` must be 'posterior', 'cold' or a number .* got 'warm'"),
        ({"temperature": -1.0}, "`temperature` must not be negative, got -1.0"),
        ({"beta1": 1.0}, "`beta1` must lie in \\[0, 1\\), got 1.0"),
        ({"beta2": 0.0}, "`beta2` must be positive, got 0.0"),
        ({"eta": -0.1}, "`eta` must not be negative, got -0.1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CVAdam([nn.Parameter(torch.ones(2))], **({"num_data": 10, "lr": 0.1} | options))


def _one(dtype: torch.dtype, **options: Any) -> tuple[torch.Tensor, CVAdam]:
    """A parameter with a gradient; float64 takes the plain way, float32 the kernel."""
    torch.manual_seed(0)
    weight = torch.randn(50_001, device="cuda").to(dtype).requires_grad_()
    weight.grad = torch.randn(50_001, device="cuda").to(dtype)
    return weight, CVAdam([weight], num_data=100, lr=0.2, weight_decay=0.03, eta=0.4, **options)


@pytest.mark.cuda
@pytest.mark.parametrize("per_weight", [False, True])
def test_cuda_kernel_without_noise_is_the_plain_update(per_weight: bool) -> None:
    found = []
    for dtype in (torch.float32, torch.float64):
        weight, optimizer = _one(dtype, temperature=0.0)
        if per_weight:
            optimizer.set_weight_decay_(weight, torch.linspace(0, 1, 50_001, device="cuda", dtype=dtype))
        for _ in range(3):
            optimizer.step()
        state = optimizer.state[weight]
        found.append([one.detach().double() for one in (weight, state["rho"], state["velocity"])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.cuda
def test_cuda_kernel_injects_noise_and_reuses_it() -> None:
    weight, optimizer = _one(torch.float32, temperature=0.5)
    gradient, alpha = weight.grad, 0.5 * 0.2**0.75
    assert gradient is not None
    before = weight.detach().clone()
    optimizer.step()
    state = optimizer.state[weight]
    velocity, rho = state["velocity"].clone(), state["rho"].clone()
    noise = (velocity + 0.2 * (gradient + 0.03 * before)) / (math.sqrt(2 + 2 * 0.1**2) * alpha)
    for power, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        values = noise.double() ** power
        assert abs(values.mean() - expected) < 5 * values.std() / math.sqrt(len(values))
    torch.testing.assert_close(weight.detach(), before + rho.sigmoid() * velocity)
    optimizer.step()
    tau = rho.sigmoid()
    expected = rho - 0.4 * (alpha**2 * 0.03 * tau + alpha * noise * gradient - 1 / (100 * tau))
    torch.testing.assert_close(state["rho"], expected, rtol=1e-3, atol=1e-3)
