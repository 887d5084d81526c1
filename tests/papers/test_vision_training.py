"""How networks of images are trained and scored: gradients, checkpoints, predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from bayeslim.schedules import Progress, constant, cosine_cycles
from bayeslim_papers import training as checkpointing
from bayeslim_papers.images import scoring, training
from bayeslim_papers.images.images import made_images
from bayeslim_papers.images.scoring import Collected, predicted, scores
from bayeslim_papers.images.training import Gradients, precise, train

TRAIN, TEST = made_images(6, 3, (50, 30), "cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), bl.layers.Linear(64, 4))


def trained(model: nn.Module, **options: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"epochs": 4, "batch_size": 16, "seed": 0, "lr_schedule": cosine_cycles(2)}
    optimizer = torch.optim.SGD(model.parameters(), options.pop("lr", 0.05), momentum=0.9)
    return train(model, TRAIN, optimizer=optimizer, **(chosen | options))


class Interruption(Exception):
    """What stops a training here."""


def test_the_facts() -> None:
    facts = trained(network())
    assert facts["epochs"] == 4 and facts["steps"] == 4 * 3 and len(facts["losses"]) == 4
    assert facts["losses"][-1] < facts["losses"][0] and facts["epoch_seconds"] > 0
    assert facts["peak_bytes"] is None and facts["precision"] == "float32" and facts["cuda_graph"] is False


def test_gradients_are_those_of_the_negative_elbo() -> None:
    plain = made_images(6, 3, (50, 30), "cpu").test  # not varied
    model, rows = network(), torch.arange(8)
    x, y = plain.varied(rows)
    torch.manual_seed(3)
    loss = bl.nelbo(model, x, y, likelihood=bl.Categorical(), num_data=30, beta=0.5).loss
    expected = torch.autograd.grad(loss, list(model.parameters()))
    torch.manual_seed(3)
    found = Gradients(model, plain, batch_size=8)(rows, beta=0.5)
    assert found.item() == pytest.approx(loss.item(), rel=1e-6)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


class Recorded:
    """Like a CUDA graph: the first run makes the tensors, each later one only writes into them."""

    def __init__(self, function: Any, device: torch.device) -> None:
        self.function, self.parameters = function, function.__self__.parameters
        self.result: Any = None

    def __call__(self) -> Any:
        before = [parameter.grad for parameter in self.parameters]
        loss, gradients = self.function()
        if self.result is None:
            self.result = loss, gradients
            return self.result
        for own, new in zip((self.result[0], *self.result[1]), (loss, *gradients), strict=True):
            own.copy_(new)
        for parameter, gradient in zip(self.parameters, before, strict=True):
            parameter.grad = gradient
        return self.result


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_graph_trains_alike(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the optimiser puts copies in place of the gradients, which a replayed graph does not write to."""

    class Copying(kind):
        def step(self, closure: None = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = parameter.grad.clone()
            super().step()

    options: dict[str, Any] = {"epochs": 3, "batch_size": 16, "seed": 0, "lr_schedule": constant()}
    plain, replayed = network(), network()
    train(plain, TRAIN, optimizer=kind(plain.parameters(), 0.01), graph=False, **options)
    monkeypatch.setattr(training, "Replayed", Recorded)
    train(replayed, TRAIN, optimizer=Copying(replayed.parameters(), 0.01), **options)
    for one, other in zip(plain.parameters(), replayed.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_gradients_have_the_strides_of_their_parameters() -> None:
    """torch leaves those of axes of length 1 as they come."""
    model = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.Linear(5 * 36, 4))
    weight = model[0].weight
    assert isinstance(weight, Tensor)
    gradients = Gradients(model, TEST, batch_size=4)
    gradients(torch.arange(4))
    expected = weight.grad
    assert expected is not None
    weight.grad = expected.contiguous(memory_format=torch.channels_last).as_strided((5, 3, 1, 1), (3, 1, 3, 3))
    found = training._laid_out(model[0].weight)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    assert found is not None and found.stride() == weight.stride() == (3, 1, 1, 1)
    torch.testing.assert_close(found, expected)


def test_an_interrupted_training_ends_as_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "CHECKPOINT_SECONDS", 0.0)
    whole, stopped, resumed = network(), network(), network()
    trained(whole)
    kept = Collected(1, 2, 2)

    def stop(progress: Progress) -> None:
        if progress.epoch == 0:
            kept.add_(torch.tensor([[0.2, 0.8], [0.6, 0.4]]))
        if progress.epoch == 2:
            raise Interruption

    with pytest.raises(Interruption):
        trained(stopped, folder=tmp_path, after_epoch=stop, beside=[kept])
    said: list[str] = []
    found = Collected(1, 2, 2)
    facts = trained(resumed, folder=tmp_path, beside=[found], say=said.append)
    assert said[0] == "going on after epoch 2" and len(facts["losses"]) == 4
    assert torch.equal(found.all(), kept.all()) and len(found.all()) == 1
    for one, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_checkpoints_are_not_written_all_the_time(tmp_path: Path) -> None:
    trained(network(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [({"epochs": 5}, "epochs=4, now 5"), ({"seed": 1}, "seed=0, now 1"), ({"settings": {"k": 2}}, "k=1, now 2")],
)
def test_a_checkpoint_of_another_run_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "CHECKPOINT_SECONDS", 0.0)
    options: dict[str, Any] = {"folder": tmp_path, "settings": {"k": 1}}
    trained(network(), **options)
    with pytest.raises(ValueError, match=message):
        trained(network(), **(options | change))


def test_bad_arguments_and_losses_are_named() -> None:
    with pytest.raises(ValueError, match="`batch_size` must be at most 50, the number of images, got 51"):
        trained(network(), batch_size=51)
    with pytest.raises(ValueError, match="`precision` must be one of float32, bfloat16, got 'half'"):
        precise(torch.device("cpu"), "half")
    with pytest.raises(FloatingPointError, match=r"the loss became (nan|inf) in epoch 0: choose a smaller `lr`"):
        trained(network(), lr=1e30)


def test_training_and_predicting_leave_the_random_state_alone() -> None:
    model = network()
    state = torch.random.get_rng_state()
    trained(model)
    predicted(model, TEST.plain()[0], samples=3)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_plain_network_predicts_its_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "ROWS", 7)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, 4))
    x, y = TEST.plain()
    found = predicted(model, x)
    assert model.training
    torch.testing.assert_close(found.mean, model.eval()(x).double().softmax(1))
    assert bool((found.variance == 0).all()) and found.of_predicted_class() == 0
    assert scores(found.mean, y)["accuracy"] == pytest.approx(100 * (found.mean.argmax(1) == y).double().mean().item())


@pytest.mark.parametrize("gaussian", [True, False])
def test_draws_of_the_logits_have_the_moments_of_the_probabilities(gaussian: bool) -> None:
    """Two classes: `p = sigmoid(d)`, d Gaussian, whose moments are an integral over one number."""
    mean, variance, draws, count = 0.7, 1.5, 400, 100

    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor | Gaussian:
            logits = torch.tensor([mean, 0.0]).expand(len(x), 2)
            if gaussian:
                return Gaussian(logits, torch.tensor([variance, 0.0]).expand(len(x), 2))
            return logits + variance**0.5 * torch.randn(len(x), 1) * torch.tensor([1.0, 0.0])

    found = predicted(Noisy(), torch.zeros(count, 1), samples=draws)
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid.square()) / math.sqrt(2 * math.pi) * (grid[1] - grid[0])
    p = torch.sigmoid(mean + variance**0.5 * grid)
    first, second, third, fourth = ((p**power * density).sum().item() for power in (1, 2, 3, 4))
    spread = second - first**2
    kurtosis = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
    assert found.mean[:, 0].mean().item() == pytest.approx(first, abs=5 * (spread / draws / count) ** 0.5)
    error = ((kurtosis - spread**2) / draws / count) ** 0.5
    assert found.variance[:, 0].mean().item() == pytest.approx(spread * (1 - 1 / draws), abs=5 * error)
    assert found.of_predicted_class() == pytest.approx(found.variance[:, 0].mean().item())


def test_the_variance_is_that_of_the_draws() -> None:
    """Divided by their number S, not by S - 1: two draws, 3 and -1 in log odds."""

    class Alternating(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return torch.tensor([3.0 if self.calls % 2 else -1.0, 0.0]).expand(len(x), 2)

    found = predicted(Alternating(), torch.zeros(1, 1), samples=2)
    first, second = torch.tensor([3.0, -1.0], dtype=torch.float64).sigmoid().tolist()
    assert found.mean[0].tolist() == pytest.approx([(first + second) / 2, 1 - (first + second) / 2])
    assert found.variance[0].tolist() == pytest.approx([((first - second) / 2) ** 2] * 2)


def test_collected_predictions_lie_in_buffers() -> None:
    collected = Collected(3, 2, 2)
    assert collected.all().shape == (0, 2, 2)
    first, second = torch.eye(2), torch.full((2, 2), 0.5)
    collected.add_(first)
    collected.add_(second)
    other = Collected(3, 2, 2)
    other.load_state_dict(collected.state_dict())
    assert torch.equal(other.all(), torch.stack([first, second]).double())
