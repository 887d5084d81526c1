"""Training steps beside each other."""

import time
from collections.abc import Callable

import pytest
import torch

import bayeslim as bl
from bayeslim.step_costs import as_record, costs_of, networks, step_costs, train_step

SIZES = [4, 8, 3]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, SIZES[0]), torch.randint(0, SIZES[-1], (16,))


def test_networks_hold_the_plain_one_first_and_every_method() -> None:
    found = networks(SIZES)
    assert next(iter(found)) == "deterministic"
    assert set(bl.METHODS) <= set(found)
    assert not any(isinstance(m, bl.layers.BayesLayer) for m in found["deterministic"]().modules())
    layer = next(m for m in found["graves, flipout"]().modules() if isinstance(m, bl.layers.BayesLayer))
    assert layer.estimator is bl.flipout


@pytest.mark.parametrize("name", list(networks(SIZES)))
def test_a_step_moves_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    model = networks(SIZES)[name]()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = train_step(model, *batch())
    step()
    step()
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_given_optimizer_is_used() -> None:
    model = networks(SIZES)["graves"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    train_step(model, *batch(), optimizer=optimizer)()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_costs_are_against_the_first() -> None:
    def sleeping(seconds: float, numbers: int) -> Callable[[], Callable[[], None]]:
        def build() -> Callable[[], None]:
            held = torch.zeros(numbers)

            def step() -> None:
                time.sleep(seconds)
                assert len(held) == numbers

            return step

        return build

    found = costs_of({"short": sleeping(0.004, 1000), "long": sleeping(0.02, 3000)}, rounds=3)
    assert found["short"].memory_ratio == 1.0 and found["long"].memory_ratio == 3.0
    assert (found["short"].memory, found["long"].memory) == (4000, 12_000)
    assert found["long"].time.ratio > 1.5  # 5, on a machine that may oversleep by milliseconds


def test_a_mean_field_network_needs_more_memory_and_the_record_is_flat() -> None:
    found = step_costs([64, 64, 8], 8, names=["deterministic", "graves"], rounds=1)
    assert found["graves"].memory_ratio > 1.8  # two parameters per weight, each with a gradient and two averages
    record = as_record(found)
    assert set(record["graves"]) == {"seconds", "ratio", "ratio_low", "ratio_high", "memory", "memory_ratio"}
    assert record["deterministic"]["ratio"] == 1.0


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown `names` \['gravse'\]: choose from 'deterministic', .*'graves'"):
        step_costs(SIZES, 4, names=["gravse"])
