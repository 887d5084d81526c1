"""Parts that were put in evaluation mode stay so while the rest of the network is trained."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.training import fit_many, stack
from training.problems import blobs, equal, state

SETTINGS: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 3, "batch_size": 16}


def network(seed: int = 0) -> nn.Sequential:
    """Two batch norms and dropout, Bayesian linear layers between them."""
    torch.manual_seed(seed)
    first = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Tanh()
    # No bias before the normalisation: its gradient is rounding error, which Adam turns into full steps.
    net = nn.Sequential(*first, nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3))
    bl.bayesianize_(net)
    return net


def modes(net: nn.Module) -> dict[str, bool]:
    return {name: module.training for name, module in net.named_modules()}


def batches_seen(net: nn.Sequential) -> list[int]:
    return [int(norm.num_batches_tracked) for norm in net if isinstance(norm, nn.BatchNorm1d)]  # pyright: ignore


def test_a_frozen_batch_norm_keeps_its_statistics() -> None:
    net = network()
    net[1].eval()
    before, weights = modes(net), state(net)
    bl.fit(net, blobs(), validation=blobs(9), seed=0, **SETTINGS)
    assert modes(net) == before and sum(not mode for mode in before.values()) == 1
    assert batches_seen(net) == [0, 9]
    after = state(net)
    assert torch.equal(after["1.running_mean"], weights["1.running_mean"])
    assert not torch.equal(after["1.weight"], weights["1.weight"])  # its parameters are trained all the same
    assert not torch.equal(after["5.running_mean"], weights["5.running_mean"])


def test_frozen_parts_run_in_evaluation_mode_in_every_epoch() -> None:
    """By what the modules see themselves, whatever a hook does to their modes."""
    net = network()
    net[2].eval()
    seen: list[tuple[bool, bool]] = []
    net[2].register_forward_hook(lambda *_: seen.append((net[1].training, net[2].training)))

    def meddle(model: nn.Module, *_: Any) -> None:
        model.eval()
        model.train()

    bl.fit(net, blobs(), after_epoch=meddle, seed=0, **SETTINGS)
    assert seen == [(False, False)] + [(True, False)] * 9  # the first one is a look at the shape of the outputs
    assert net.training and not net[2].training and net[1].training


def test_a_frozen_backbone_stays_frozen_with_all_its_parts(tmp_path: Path) -> None:
    """Also in a run that is resumed, where it is frozen again."""
    whole, parts = (nn.Sequential(network(), nn.ReLU(), nn.Linear(3, 3)) for _ in range(2))
    parts.load_state_dict(whole.state_dict())
    for net in (whole, parts):
        net[0].eval()
    bl.fit(whole, blobs(), seed=0, **SETTINGS)
    for epochs in (1, 3):
        options: dict[str, Any] = SETTINGS | {"epochs": epochs}
        bl.fit(parts, blobs(), seed=0, checkpoint=tmp_path, resume=True, **options)
        assert not any(modes(parts[0]).values()) and parts.training and parts[2].training
    assert equal(state(whole), state(parts))
    assert batches_seen(whole[0]) == [0, 0]  # pyright: ignore


def test_a_network_in_evaluation_mode_is_trained_as_a_whole() -> None:
    net = network().eval()
    net[1].train()
    bl.fit(net, blobs(), seed=0, **SETTINGS)
    assert all(modes(net).values()) and batches_seen(net) == [9, 9]


@pytest.mark.parametrize("few_weights", [0, 10**9], ids=["one by one", "at once"])
def test_networks_side_by_side_keep_their_modes(few_weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise they end as `bl.fit` leaves each of them."""
    monkeypatch.setattr(stack, "FEW_WEIGHTS", few_weights)
    together = [network(seed) for seed in range(2)]
    for net in together:
        net[1].eval()
        net[2].eval()
    alone = copy.deepcopy(together)
    before = modes(together[0])
    fit_many(together, blobs(), seeds=[0, 1], pretrain_epochs=3, **SETTINGS)
    for seed, (net, other) in enumerate(zip(together, alone, strict=True)):
        bl.fit(other, blobs(), seed=seed, pretrain_epochs=3, **SETTINGS)
        assert modes(net) == before and batches_seen(net) == [0, 9]
        for name, value in state(other).items():
            assert torch.allclose(value, state(net)[name], atol=1e-5), name


def test_networks_frozen_differently_are_refused() -> None:
    first, second = network(), network(1)
    second[1].eval()
    with pytest.raises(ValueError, match=r"1\.training is True in models\[0\] but False in models\[1\]"):
        fit_many([first, second], blobs(), **SETTINGS)
    second.eval()  # as a whole: trained as a whole
    fit_many([first, second], blobs(), seeds=[0, 1], **SETTINGS)
    assert batches_seen(first) == batches_seen(second) == [9, 9]
