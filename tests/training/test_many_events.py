"""What happens while networks are trained side by side: hooks, signals, divergence."""

import copy
import math
import os
import signal
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.schedules import Progress
from bayeslim.training.many import fit_many
from training.problems import blobs, distance, small, state
from training.stacks import SETTINGS, plain


def test_the_hook_sees_the_networks_as_they_are_and_may_change_values() -> None:
    models, seen = [plain(seed) for seed in range(2)], list[tuple[int, int, float]]()

    def hook(networks: Sequence[nn.Module], progress: Progress) -> None:
        assert all(network is model for network, model in zip(networks, models, strict=True))
        seen.append((progress.step, progress.epoch, networks[1].get_parameter("3.bias")[0].item()))
        with torch.no_grad():
            networks[1].get_parameter("3.bias").fill_(100.0 * len(seen))

    fit_many(models, blobs(), after_epoch=hook, seeds=range(2), **SETTINGS)
    assert [part[:2] for part in seen] == [(2, 0), (5, 1), (8, 2)]
    assert seen[1][2] == pytest.approx(100, abs=0.1) and seen[2][2] == pytest.approx(200, abs=0.1)
    assert models[1].get_parameter("3.bias")[0].item() == 300
    assert abs(models[0].get_parameter("3.bias")[0].item()) < 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_networks_with_their_last_step(number: int) -> None:
    models = [plain(seed) for seed in range(2)]
    reached: list[dict[str, Tensor]] = []

    def hook(networks: Sequence[nn.Module], progress: Progress) -> None:
        reached.append(state(networks[1]))
        if progress.epoch == 1:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        fit_many(models, blobs(), after_epoch=hook, seeds=range(2), **SETTINGS)
    assert len(reached) == 2
    # One step of Adam after the second epoch: no parameter moves by more than the learning rate.
    moved = max((value - reached[1][name]).abs().max().item() for name, value in models[1].named_parameters())
    assert 0 < moved < 1.1e-3
    assert all(part.untyped_storage().nbytes() == 4 * part.numel() for part in models[1].parameters())


def test_one_network_diverges_and_the_others_go_on() -> None:
    models = [plain(seed) for seed in range(3)]
    reference = copy.deepcopy(models[0])
    with pytest.warns(RuntimeWarning, match="network 1 has diverged in epoch 0: lower `lr`") as caught:
        histories = fit_many(models, blobs(), lr=[1e-3, 1e38, 1e-3], seeds=range(3), **SETTINGS)
    assert len(caught) == 1
    bl.fit(reference, blobs(), seed=0, **SETTINGS)
    assert distance(models[0], reference) < 1e-5
    assert not math.isfinite(histories[1].last["energy"]) and math.isfinite(histories[2].last["energy"])


def test_a_bayesian_network_without_sound_weights_has_no_sparsity() -> None:
    """Which weights are noise cannot be said then; the others are recorded as ever."""
    models = [small(method="ard", seed=seed) for seed in (0, 1)]
    with torch.no_grad():
        next(models[1].parameters()).fill_(math.nan)
    with pytest.warns(RuntimeWarning, match="network 1 has diverged in epoch 0"):
        histories = fit_many(models, blobs(), likelihood=bl.Categorical(), epochs=1, seeds=(0, 1), progress=False)
    assert histories[1].last["sparsity"] == {} and set(histories[0].last["sparsity"]) == {"0", "2"}


def test_all_networks_diverge() -> None:
    with (
        pytest.warns(RuntimeWarning, match="diverged"),
        pytest.raises(FloatingPointError, match="all 2 networks have diverged by epoch 0"),
    ):
        fit_many([plain(0), plain(1)], blobs(), lr=1e38, **SETTINGS)
