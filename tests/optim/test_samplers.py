"""What holds for every sampler: CVAdam, SGLD and SGHMC."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeslim.optim import SGHMC, SGLD, CVAdam, injection
from bayeslim.optim.injection import Sampler
from contracts.cases import each

KINDS = pytest.mark.parametrize("kind", [CVAdam, SGLD, SGHMC])
Kind = Callable[..., Sampler]


def problem(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 1000), nn.BatchNorm1d(1000), nn.Tanh(), nn.Linear(1000, 3)).to(dtype)
    return model, torch.randn(16, 40).to(dtype)


def train(model: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()


def equal(first: nn.Module, second: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_run_resumed_from_its_state_is_bit_exact(kind: Kind, dtype: torch.dtype) -> None:
    model, x = problem(dtype)
    optimizer = kind(model.parameters(), num_data=100, lr=0.05, weight_decay=0.01, seed=3)
    decay = torch.rand(1000, 40, generator=torch.Generator().manual_seed(2))
    optimizer.set_weight_decay_(model.get_parameter("0.weight"), decay)
    train(model, x, optimizer, 5)
    other = copy.deepcopy(model)
    resumed = kind(other.parameters(), num_data=100, lr=0.05, weight_decay=0.01)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, x, optimizer, 5)
    train(other, x, resumed, 5)
    assert equal(model, other)
    for state in resumed.state.values():
        assert state["step"] == 10
        assert all(
            t.dtype == (dtype if dtype == torch.float64 else torch.float32)
            for t in state.values()
            if isinstance(t, Tensor)
        )


@KINDS
def test_ranks_with_one_seed_agree_and_chains_with_two_do_not(kind: Kind) -> None:
    moves: list[Tensor] = []
    for seed in (1, 1, 2):
        weights = nn.Parameter(torch.zeros(50_000))
        weights.grad = torch.zeros(50_000)
        torch.manual_seed(seed + 100)  # the global state has no influence
        kind([weights], num_data=100, lr=0.05, seed=seed).step()
        moves.append(weights.detach())
    assert torch.equal(moves[0], moves[1])
    assert abs(torch.corrcoef(torch.stack(moves[1:]))[0, 1]) < 5 / math.sqrt(50_000)


@KINDS
def test_storage_is_never_replaced(kind: Kind) -> None:
    model, x = problem()
    before = [parameter.data_ptr() for parameter in model.parameters()]
    train(model, x, kind(model.parameters(), num_data=100, lr=0.05), 2)
    assert [parameter.data_ptr() for parameter in model.parameters()] == before


@KINDS
def test_parameters_without_gradient_rest(kind: Kind) -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = kind([used, unused, nn.Parameter(torch.empty(0))], num_data=10, lr=0.1, weight_decay=0.1)
    used.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(unused, torch.ones(3)) and not optimizer.state[unused]
    assert not torch.equal(used, torch.ones(3))


@KINDS
def test_the_learning_rate_is_read_anew_every_step(kind: Kind) -> None:
    weights = nn.Parameter(torch.ones(5))
    optimizer = kind([weights], num_data=10, lr=0.1, weight_decay=0.1)
    for lr, moved in ((0.0, False), (0.1, True)):
        optimizer.param_groups[0]["lr"] = lr
        weights.grad = torch.ones(5)
        optimizer.step()
        assert torch.equal(weights, torch.ones(5)) is not moved


@KINDS
def test_accumulated_gradients_make_one_step(kind: Kind) -> None:
    results: list[nn.Module] = []
    for parts in (1, 4):
        model, x = problem(torch.float64)
        model.eval()
        optimizer = kind(model.parameters(), num_data=100, lr=0.05)
        for part in x.chunk(parts):
            (model(part).square().mean() / parts).backward()
        optimizer.step()
        results.append(model)
    for first, second in zip(*(model.parameters() for model in results), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


@KINDS
def test_closure_is_evaluated_with_gradients_and_returned(kind: Kind) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = kind([weights], num_data=10, lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weights.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3.0
    assert not torch.equal(weights, torch.ones(3))


@KINDS
def test_the_gradient_scaler_skips_overflowing_steps(kind: Kind) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = kind([weights], num_data=10, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor, moved in ((math.inf, False), (1.0, True)):
        optimizer.zero_grad()
        scaler.scale((weights * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weights, torch.ones(3)) is not moved
    assert optimizer.state[weights]["step"] == 1


@KINDS
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_change_nothing(kind: Kind, bad: float) -> None:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = kind([first, second], num_data=10, lr=0.1)
    first.grad, second.grad = torch.ones(3), torch.tensor([0.0, bad, 0.0])
    with pytest.raises(
        FloatingPointError, match="a gradient of shape \\(3,\\) is not finite; the parameters are as they"
    ):
        optimizer.step()
    assert torch.equal(first, torch.ones(3)) and torch.equal(second, torch.ones(3)) and not optimizer.state


@KINDS
def test_sparse_gradients_are_refused(kind: Kind) -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(
        TypeError, match="gradients must be dense, got torch.sparse_coo: use nn.Embedding\\(sparse=False"
    ):
        kind(table.parameters(), num_data=10, lr=0.1).step()


@KINDS
def test_groups_exclude_parameters_from_noise_and_decay(kind: Kind) -> None:
    weight, bias = nn.Parameter(torch.ones(100)), nn.Parameter(torch.ones(100))
    groups = [{"params": [weight]}, {"params": [bias], "temperature": 0.0, "weight_decay": 0.0}]
    optimizer = kind(groups, num_data=10, lr=0.1, weight_decay=0.5)
    weight.grad, bias.grad = torch.zeros(100), torch.zeros(100)
    optimizer.step()
    assert torch.equal(bias, torch.ones(100))
    assert weight.std() > 0 and weight.mean() < 1


@KINDS
def test_elementwise_decay_is_the_decay_of_each_element(kind: Kind) -> None:
    decays = torch.tensor([0.1, 0.7])
    together = nn.Parameter(torch.ones(2, 4))
    optimizer = kind([together], num_data=10, lr=0.1, temperature=0.0, weight_decay=9.0)
    optimizer.set_weight_decay_(together, decays[:, None].expand(2, 4))
    alone = [nn.Parameter(torch.ones(4)) for _ in decays]
    others = [
        kind([own], num_data=10, lr=0.1, temperature=0.0, weight_decay=decay.item())
        for own, decay in zip(alone, decays, strict=True)
    ]
    for _ in range(5):
        for weights, sampler in ((together, optimizer), *zip(alone, others, strict=True)):
            weights.grad = 0.1 * weights.detach().sin()
            sampler.step()
    torch.testing.assert_close(together.detach(), torch.stack([own.detach() for own in alone]))
    optimizer.set_weight_decay_(together, None)
    assert "decay" not in optimizer.state[together]


@KINDS
def test_elementwise_decay_of_one_parameter_leaves_the_others_of_its_group(kind: Kind) -> None:
    first, second, alone = (nn.Parameter(torch.ones(4)) for _ in range(3))
    optimizer = kind([first, second], num_data=10, lr=0.1, temperature=0.0, weight_decay=0.5)
    optimizer.set_weight_decay_(first, torch.full((4,), 0.2))
    single = kind([alone], num_data=10, lr=0.1, temperature=0.0, weight_decay=0.5)
    for _ in range(5):
        for weights in (first, second, alone):
            weights.grad = torch.zeros(4)
        optimizer.step()
        single.step()
    assert torch.equal(second, alone)
    assert (second < first).all() and (first < 1).all()


def test_elementwise_decay_that_does_not_fit() -> None:
    weights = nn.Parameter(torch.ones(2))
    optimizer = SGLD([weights], num_data=10, lr=0.1)
    with pytest.raises(
        ValueError, match="`decay` must have no negative entries and shape \\(2,\\), got shape \\(3,\\)"
    ):
        optimizer.set_weight_decay_(weights, torch.ones(3))
    with pytest.raises(ValueError, match="`parameter` does not belong to this optimiser"):
        optimizer.set_weight_decay_(torch.ones(2), torch.ones(2))


@KINDS
def test_channels_last_and_scalar_parameters(kind: Kind) -> None:
    results: list[Tensor] = []
    for memory in (torch.contiguous_format, torch.channels_last):
        weights = nn.Parameter(torch.ones(4, 3, 2, 2).to(memory_format=memory))
        scalar = nn.Parameter(torch.tensor(1.0))
        optimizer = kind([weights, scalar], num_data=10, lr=0.1)
        for _ in range(3):
            weights.grad, scalar.grad = weights.detach().sin(), torch.tensor(0.5)
            optimizer.step()
        results.append(weights.detach())
    torch.testing.assert_close(results[0], results[1])


@KINDS
@each(
    ("options", "message"),
    [
        ({"num_data": 0}, "`num_data` must be the positive number of training examples, got 0"),
        ({"num_data": -5}, "`num_data` must be the positive number of training examples, got -5"),
        ({"num_data": 1.5}, "`num_data` must be the positive number of training examples, got 1.5"),
        ({"lr": 0.0}, "`lr` must be positive, got 0.0"),
        ({"lr": math.nan}, "`lr` must be positive, got nan"),
        ({"weight_decay": -1.0}, "`weight_decay` must not be negative, got -1.0"),
        ({"temperature": -1.0}, "`temperature` must not be negative, got -1.0"),
        ({"temperature": math.nan}, "`temperature` must not be negative, got nan"),
        ({"seed": -1}, "`seed` must be an integer"),
    ],
)
def test_bad_options(kind: Kind, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind([nn.Parameter(torch.ones(2))], **({"num_data": 10, "lr": 0.1} | options))


@KINDS
def test_seeds_of_numpy_are_stored_as_plain_integers(kind: Kind) -> None:
    """Of the optimiser and of a group: the same noise, and a state that JSON takes."""
    ends: list[Tensor] = []
    for change in (int, np.int64):
        weights = [nn.Parameter(torch.ones(4)) for _ in range(2)]
        groups = [{"params": weights[:1]}, {"params": weights[1:], "seed": change(7)}]
        optimizer = kind(groups, num_data=10, lr=0.1, seed=change(3))
        for weight in weights:
            weight.grad = torch.ones(4)
        optimizer.step()
        assert [group["seed"] for group in json.loads(json.dumps(optimizer.state_dict()["param_groups"]))] == [3, 7]
        ends.append(torch.cat([weight.detach() for weight in weights]))
    assert torch.equal(*ends)


@KINDS
def test_missing_num_data_and_integer_parameters(kind: Kind) -> None:
    with pytest.raises(TypeError, match="num_data"):
        kind([nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(TypeError, match="`params` must be real floating-point tensors, got torch.complex64"):
        kind([nn.Parameter(torch.ones(2, dtype=torch.complex64))], num_data=10, lr=0.1)


def test_noise_is_standard_normal_and_independent_over_pieces_and_steps() -> None:
    """Moments up to the sixth, tails, and correlations of neighbouring seeds, each within 5 standard errors."""
    like = torch.empty(2**14)
    noise = torch.stack([injection._normal(like, 2**32 - 50 + seed) for seed in range(100)]).double()
    count = noise.numel()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10_170)):
        assert abs(noise.pow(power).mean() - moment) < 5 * math.sqrt(variance / count)
    for bound in (1.0, 2.0, 3.0, 4.0):
        outside = math.erfc(bound / math.sqrt(2))
        assert abs((noise.abs() > bound).double().mean() - outside) < 5 * math.sqrt(outside / count)
    assert abs((noise[1:] * noise[:-1]).mean()) < 5 / math.sqrt(count - 2**14)
    assert abs((noise[:, 1:] * noise[:, :-1]).mean()) < 5 / math.sqrt(count - 100)
    assert abs((noise[1:].square() * noise[:-1].square()).mean() - 1) < 5 * math.sqrt(8 / (count - 2**14))


@pytest.mark.parametrize(
    ("kind", "options"), [(CVAdam, {"beta1": 0.0, "eta": 0.0}), (SGLD, {}), (SGHMC, {"momentum": 0.0})]
)
def test_pieces_of_one_parameter_and_its_steps_have_their_own_noise(kind: Kind, options: dict[str, float]) -> None:
    weights = nn.Parameter(torch.zeros(4 * injection.BLOCK))
    optimizer, moves = kind([weights], num_data=100, lr=0.05, **options), list[Tensor]()
    for _ in range(3):
        weights.grad = torch.zeros_like(weights)
        before = weights.detach().clone()
        optimizer.step()
        moves.append(weights.detach() - before)
    between = torch.corrcoef(torch.cat(moves).view(12, injection.BLOCK)).fill_diagonal_(0)
    assert between.abs().max() < 5 / math.sqrt(injection.BLOCK)
