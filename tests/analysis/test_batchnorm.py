"""Running statistics that fit the weights in use."""

from __future__ import annotations

import functools
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.posteriors import MeanField

N = 50


def network(scale: float = 0.3) -> Any:
    """Two normalised layers and dropout; stale statistics, momenta and modes of their own."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(36, 5),
        nn.BatchNorm1d(5),
    )
    model[1].running_mean.fill_(7.0)
    model[6].num_batches_tracked.fill_(9)
    bl.bayesianize_(model.double(), posterior=functools.partial(MeanField, scale=scale))
    model.train()
    model[6].eval()
    return model


def data() -> Tensor:
    return torch.randn(N, 2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5


def averages(model: Any, sizes: list[int], x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Batch means and unbiased variances of the mean network, averaged by size, layer after layer."""
    result: list[tuple[Tensor, Tensor]] = []
    parts = x.split(sizes)
    weights = torch.tensor(sizes, dtype=torch.float64) / len(x)

    def normalise(values: list[Tensor], norm: Any) -> list[Tensor]:
        axes = (0, 2, 3) if values[0].ndim == 4 else (0,)
        means = torch.stack([value.mean(axes) for value in values])
        spread = torch.stack([value.var(axes) for value in values])
        result.append((weights @ means, weights @ spread))
        return [nn.functional.batch_norm(value, None, None, norm.weight, norm.bias, training=True) for value in values]

    first, second = model[0], model[5]
    hidden = [nn.functional.conv2d(part, first.weight.mean(), first.bias, padding=1) for part in parts]
    hidden = [value.relu().flatten(1) for value in normalise(hidden, model[1])]
    normalise([nn.functional.linear(value, second.weight.mean(), second.bias) for value in hidden], model[6])
    return result


@pytest.mark.parametrize("batch_size", [50, 25, 16, 48])
def test_statistics_are_averages_over_the_data(batch_size: int) -> None:
    model, x = network(), data()
    sizes = [len(part) for part in x.split(batch_size)]
    expected = averages(model, sizes, x)
    bl.refresh_batchnorm_(model, x, batch_size=batch_size)
    for norm, (mean, variance) in zip((model[1], model[6]), expected, strict=True):
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, variance)
        assert norm.num_batches_tracked.item() == len(sizes)


def test_one_batch_gives_the_moments_of_the_data() -> None:
    model, x = network(), data()
    bl.refresh_batchnorm_(model, x)
    hidden = nn.functional.conv2d(x, model[0].weight.mean(), model[0].bias, padding=1)
    torch.testing.assert_close(model[1].running_mean, hidden.mean((0, 2, 3)))
    torch.testing.assert_close(model[1].running_var, hidden.var((0, 2, 3)))


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(N - 1, [N]), (7, [7] * 6 + [8]), (1, [2] * 25)], ids=["two", "many", "single"]
)
def test_a_batch_of_one_row_goes_with_its_neighbour(batch_size: int, sizes: list[int]) -> None:
    x, model = data(), network()
    expected = averages(model, sizes, x)
    bl.refresh_batchnorm_(model, DataLoader(TensorDataset(x), batch_size=batch_size))
    for norm, (mean, variance) in zip((model[1], model[6]), expected, strict=True):
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, variance)
    other = network()
    bl.refresh_batchnorm_(other, x, batch_size=batch_size)
    torch.testing.assert_close(other[6].running_var, model[6].running_var)


def test_single_images_of_many_sizes_stay_apart() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    images = [(torch.randn(1, size, size), 0) for size in (4, 5, 6)]
    bl.refresh_batchnorm_(model, DataLoader(cast(Any, images), batch_size=1))
    assert model[1].num_batches_tracked.item() == 3  # pyright: ignore


def test_loaders_and_data_sets_give_the_same() -> None:
    x = data()
    loader = DataLoader(TensorDataset(x, torch.zeros(N)), batch_size=20)
    found: list[Tensor] = []
    for source in (x, loader, loader.dataset):
        model = network()
        bl.refresh_batchnorm_(model, source, batch_size=20)
        found.append(model[6].running_mean.clone())
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_everything_else_is_as_before() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items() if "running" not in name}
    modes = [module.training for module in model.modules()]
    bl.refresh_batchnorm_(model, data(), estimator=bl.weight_sample)
    assert [module.training for module in model.modules()] == modes
    assert (model[1].momentum, model[6].momentum) == (0.3, 0.1)
    assert all(layer.estimator is bl.local_reparam for layer in (model[0], model[5]))
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in before.items() if "tracked" not in name)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_samples_of_the_weights_give_wider_statistics() -> None:
    """Drawn outputs have their own variance on top of that over the data; 18 000 values, so 1 % of error."""
    model, x = network(scale=0.5), data().repeat(40, 1, 1, 1)
    bl.refresh_batchnorm_(model, x, batch_size=2000)
    narrow = model[1].running_var.clone()
    torch.manual_seed(2)
    bl.refresh_batchnorm_(model, x, estimator=bl.local_reparam, batch_size=2000)
    added = model[0].op(x[:N].square(), model[0].weight.variance()).mean((0, 2, 3))
    torch.testing.assert_close(model[1].running_var, narrow + added, rtol=0.05, atol=0)
    first = model[1].running_mean.clone()
    bl.refresh_batchnorm_(model, x, estimator=bl.weight_sample, batch_size=2000)
    assert not torch.allclose(model[1].running_mean, first, rtol=0.01)


def test_refreshed_statistics_normalise() -> None:
    """In evaluation mode the outputs of the last norm have mean 0 and variance 1 over the data."""
    model, x = network(), data()
    bl.refresh_batchnorm_(model, x)
    model.eval()
    with torch.no_grad(), bl.using(model, bl.mean_only):
        output = model(x)
    # Up to the difference between biased and unbiased variances in the first norm, 1 part in 450.
    torch.testing.assert_close(output.mean(0), torch.zeros(5, dtype=torch.float64), rtol=0, atol=0.01)
    torch.testing.assert_close(output.var(0), torch.ones(5, dtype=torch.float64), rtol=0.01, atol=0)


def test_without_batch_normalisation_there_is_nothing_to_do() -> None:
    message = "`model` has no BatchNorm layer with running statistics: there is nothing to refresh"
    with pytest.raises(ValueError, match=message):
        bl.refresh_batchnorm_(bl.mlp([3, 2]), torch.zeros(4, 3))
    with pytest.raises(ValueError, match=message):
        bl.refresh_batchnorm_(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)), torch.zeros(4, 3))


def test_a_failure_leaves_the_statistics_as_they_were() -> None:
    """One example has no variance, which torch refuses."""
    model, x = network(), data()[:1]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    with pytest.raises(ValueError, match="no variance over a batch of one row: pass at least two rows"):
        bl.refresh_batchnorm_(model, x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert cast(Any, model)[1].momentum == 0.3
    assert model[0].estimator is bl.local_reparam
