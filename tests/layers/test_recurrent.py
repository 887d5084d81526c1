"""Recurrent layers: one network per sequence, and torch's meaning of every option."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bayeslim import bayesianize_, estimators, flipout, local_reparam, mean_only, moments, predict, using, weight_sample
from bayeslim.gaussian import Gaussian as Propagated
from bayeslim.layers import GRU, LSTM, scan
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import MeanField
from contracts.cases import each
from contracts.members import POSTERIORS, over
from contracts.two_samples import assert_same_moments
from contracts.vanishing import assert_same, check_vanishing

KINDS: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two-layers": {"num_layers": 2},
    "bidirectional": {"bidirectional": True},
    "three-layers-both": {"num_layers": 3, "bidirectional": True},
    "batch-first": {"batch_first": True, "num_layers": 2, "bidirectional": True},
    "dropout": {"num_layers": 3, "dropout": 0.5},
    "without-bias": {"bias": False, "num_layers": 2, "bidirectional": True},
}
BOTH = {"num_layers": 2, "bidirectional": True}
LENGTHS = {"sorted": [6, 4, 4, 1], "unsorted": [2, 6, 4, 6]}


def plain(kind: str, seed: int = 0, **options: Any) -> Any:
    """A torch layer from 5 to 7 features; of the LSTM, collapsing keeps only the sum of the biases."""
    torch.manual_seed(seed)
    build: Any = KINDS[kind]
    return build(5, 7, **options)


def bayesian(kind: str, seed: int = 0, bias: bool = True, **options: Any) -> Any:
    """A float64 layer with wide posteriors over weights and biases, drawing weights."""
    chosen: dict[str, Any] = {"bias_posterior": functools.partial(MeanField, scale=0.2)} if bias else {}
    return bayesianize_(
        plain(kind, seed, bias=bias, **options).double(),
        posterior=functools.partial(MeanField, scale=0.3),
        estimator=weight_sample,
        **chosen,
    )


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def packed(lengths: list[int]) -> PackedSequence:
    ordered = lengths == sorted(lengths, reverse=True)
    x = noise(6, len(lengths), 5).float()
    return pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=ordered)


def initial(kind: str, batch: tuple[int, ...], seed: int = 2) -> Any:
    """A state for two layers in both directions."""
    parts = tuple(0.5 * noise(4, *batch, 7, seed=seed + i).float() for i in range(2))
    return parts if kind == "LSTM" else parts[0]


def drawn(layer: Any, seed: int) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
    """The torch layer with the weights that `layer` draws after this seed, and pairs (posterior, its draw)."""
    torch.manual_seed(seed)
    result, pairs = layer.to_torch(), []
    directions = 2 if layer.bidirectional else 1
    for number, cell in enumerate(layer.cells):
        suffix = f"l{number // directions}" + ("_reverse" if number % directions else "")
        for half, part in (("ih", cell.input), ("hh", cell.hidden)):
            weight, bias = part.draw()
            for name, value, posterior in (("weight", weight, part.weight), ("bias", bias, part.bias)):
                if value is not None:
                    setattr(result, f"{name}_{half}_{suffix}", nn.Parameter(value.detach()))
                    pairs.append((posterior, getattr(result, f"{name}_{half}_{suffix}")))
    return result, pairs


def after(seed: int, call: Callable[[], Any]) -> Any:
    torch.manual_seed(seed)
    return call()


@over("kind", KINDS)
@each("options", OPTIONS)
@each("bias_posterior", [False, True])
def test_a_vanishing_scale_reproduces_the_torch_layer(kind: str, options: str, bias_posterior: bool) -> None:
    layer = plain(kind, **OPTIONS[options])
    same = kind == "GRU" or not layer.bias
    check_vanishing(layer, noise(6, 4, 5).float(), bias_posterior=bias_posterior, same_values=same)


@over("kind", KINDS)
@over("batch_first", [False, True])
def test_initial_states_and_inputs_without_a_batch(kind: str, batch_first: bool) -> None:
    layer, same = plain(kind, batch_first=batch_first, **BOTH), kind == "GRU"
    check_vanishing(layer, noise(4, 4, 5).float(), initial(kind, (4,)), same_values=same)
    check_vanishing(layer, noise(6, 5).float(), same_values=same)
    check_vanishing(layer, noise(6, 5).float(), initial(kind, ()), same_values=same)


@over("kind", KINDS)
@over("lengths", LENGTHS)
@over("options", ["plain", "three-layers-both", "batch-first"])
def test_packed_sequences_come_back_as_from_torch(kind: str, lengths: str, options: str) -> None:
    """Data, batch sizes, order of the rows and final states."""
    layer, same = plain(kind, **OPTIONS[options]), kind == "GRU"
    check_vanishing(layer, packed(LENGTHS[lengths]), same_values=same)
    if options == "batch-first":
        check_vanishing(layer, packed(LENGTHS[lengths]), initial(kind, (4,)), same_values=same)


@over("kind", KINDS)
def test_any_order_of_equal_lengths_is_kept(kind: str) -> None:
    """A sequence packed by hand may break ties in another way than torch's sort."""
    rows, order = pack_padded_sequence(noise(3, 3, 5).float(), torch.tensor([3, 3, 2])), torch.tensor([2, 0, 1])
    x = PackedSequence(rows.data, rows.batch_sizes, order, order.argsort())
    check_vanishing(plain(kind, **BOTH), x, same_values=kind == "GRU")


@over("kind", KINDS)
@over("options", ["plain", "three-layers-both", "without-bias"])
def test_a_pass_is_the_torch_layer_with_one_draw_of_the_weights(kind: str, options: str) -> None:
    layer = bayesian(kind, **OPTIONS[options])
    x, network = noise(6, 4, 5), drawn(layer, 3)[0]
    assert_same(after(3, lambda: layer(x)), network(x), 1e-12)
    y = pack_padded_sequence(x, torch.tensor(LENGTHS["unsorted"]), enforce_sorted=False)
    assert_same(after(3, lambda: layer(y)), network(y), 1e-12)
    assert not torch.allclose(layer(x)[0], layer(x)[0])


@over("kind", KINDS)
def test_gradients_are_those_of_the_drawn_weights(kind: str) -> None:
    """`dL/dloc = dL/dW` and `dL/dlog_scale = dL/dW (W - loc)`, summed over all time steps."""
    layer = bayesian(kind, **BOTH)
    x, weights = noise(6, 4, 5), noise(6, 4, 14, seed=5)
    network, pairs = drawn(layer, 3)
    (network(x)[0] * weights).sum().backward()
    (after(3, lambda: layer(x))[0] * weights).sum().backward()
    assert len(pairs) == (12 if kind == "LSTM" else 16)
    seen = set()
    for posterior, value in pairs:
        assert isinstance(posterior, MeanField) and value.grad is not None
        torch.testing.assert_close(posterior.loc.grad, value.grad)
        torch.testing.assert_close(posterior.log_scale.grad, value.grad * (value - posterior.loc))
        assert bool(value.grad.any())
        seen |= {id(posterior.loc), id(posterior.log_scale)}
    assert seen == {id(parameter) for parameter in layer.parameters()}


@over("kind", KINDS)
@over("options", ["plain", "three-layers-both", "without-bias"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_fused_kernel_is_the_loop(kind: str, options: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, states and gradients of the same draw."""
    layer, x = bayesian(kind, **OPTIONS[options]).to(device), noise(6, 4, 5).to(device).requires_grad_()
    weights, found = noise(6, 4, 7 * (1 + layer.bidirectional), seed=5).to(device), []
    for fused in (True, False):
        monkeypatch.setattr(scan, "_runs_fused", lambda cell, x, fused=fused: fused)
        output, state = after(3, lambda: layer(x))
        gradients = torch.autograd.grad((output * weights).sum(), [x, *layer.parameters()])
        found.append((output, state, gradients))
    assert_same(found[0], found[1], 1e-12)


@over("kind", KINDS)
def test_where_the_kernel_runs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole sequences of numbers; not lengths, moments, autocast, vmap or a compiler."""
    calls: list[int] = []
    kernel = getattr(torch, kind.lower())
    layer = bayesian(kind).float()
    monkeypatch.setattr(type(layer), "fused", staticmethod(lambda *given: calls.append(1) or kernel(*given)))
    x = noise(3, 2, 5).float()
    layer(x)
    assert calls == [1]
    layer(pack_padded_sequence(x, torch.tensor([3, 1])))
    with using(layer, moments):
        layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)
    torch.vmap(lambda one: layer(one)[0], randomness="different")(x.expand(2, 3, 2, 5))
    torch.export.export(layer, (x,))
    assert calls == [1]


@over("kind", KINDS)
def test_the_weights_do_not_change_over_time(kind: str) -> None:
    """A longer sequence begins with the outputs of a shorter one, and can be continued from its state."""
    layer, x = bayesian(kind, num_layers=2), noise(6, 4, 5)
    whole, last = after(3, lambda: layer(x))
    start, state = after(3, lambda: layer(x[:4]))
    end, final = after(3, lambda: layer(x[4:], state))
    assert_same(torch.cat([start, end]), whole, 1e-12)
    assert_same(final, last, 1e-12)


@over("kind", KINDS)
@over("estimator", [local_reparam, flipout])
def test_every_sampling_estimator_means_weight_draws(kind: str, estimator: Callable[..., Any]) -> None:
    layer, x = bayesian(kind), noise(6, 4, 5)
    expected = after(3, lambda: layer(x))
    with using(layer, estimator):
        assert_same(after(3, lambda: layer(x)), expected, 0.0)
    assert "whichever sampling estimator" in " ".join((type(layer).__mro__[1].__doc__ or "").split())


@over("kind", KINDS)
@over("batch_first", [False, True])
def test_moments_against_draws_of_the_weights(kind: str, batch_first: bool) -> None:
    """Within 20 %: the time steps share one draw, but count as independent."""
    torch.manual_seed(0)
    layer: Any = bayesianize_(
        plain(kind, batch_first=batch_first),
        posterior=functools.partial(MeanField, scale=0.01),
        estimator=weight_sample,
    )
    x = noise(4, 6, 5).float()
    with using(layer, moments):
        output, state = layer(x)
    assert isinstance(output, Propagated)
    with torch.no_grad():
        samples = [layer(x) for _ in range(500)]
    pairs = [(output, torch.stack([out for out, _ in samples]))]
    finals = (state,) if kind == "GRU" else state
    pairs += [(f, torch.stack([(s if kind == "LSTM" else (s,))[i] for _, s in samples])) for i, f in enumerate(finals)]
    for found, drawn_values in pairs:
        assert found.shape == drawn_values.shape[1:]
        std = drawn_values.std(0)
        assert 0.8 < (found.scale / std).mean().item() < 1.2
        assert ((found.loc - drawn_values.mean(0)).abs() / std).mean().item() < 0.1


@over("kind", KINDS)
@over("estimator", ["moments", "taylor_moments"])
def test_moments_without_variance_are_the_mean_network(kind: str, estimator: str) -> None:
    """Also of an uncertain input, of packed sequences and of given states."""
    layer = bayesian(kind, bias=False, **BOTH)
    for cell in layer.cells:
        for part in (cell.input, cell.hidden):
            part.weight.set_scale_(0.0)
    x = noise(6, 4, 5)
    state = initial(kind, (4,))
    start = tuple(part.double() for part in state) if isinstance(state, tuple) else state.double()
    y = pack_padded_sequence(x, torch.tensor(LENGTHS["unsorted"]), enforce_sorted=False)
    with using(layer, mean_only):
        expected, packed_expected = layer(x, start)[0], layer(y)[0].data
    with using(layer, getattr(estimators, estimator)):
        outputs = layer(x, start)[0], layer(y)[0].data, layer(Propagated(x, torch.full_like(x, 1e-12)), start)[0]
    for found, plain_output in zip(outputs, (expected, packed_expected, expected), strict=True):
        torch.testing.assert_close(found.loc, plain_output, rtol=0, atol=1e-6)
        assert found.variance.max().item() < 1e-8
    assert outputs[0].mode == ("taylor" if estimator == "taylor_moments" else "exact")


@over("kind", KINDS)
def test_moments_have_gradients_and_are_not_drawn(kind: str) -> None:
    layer = bayesian(kind, **BOTH)
    with using(layer, moments):
        output = layer(noise(3, 2, 5))[0]
        (output.loc.square() + output.variance).sum().backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())
        with pytest.raises(TypeError, match=r"moments are propagated, not drawn: call the layer, or use weight_sample"):
            layer.cells[0].input.draw()


@over("kind", KINDS)
def test_padding_never_matters(kind: str) -> None:
    """Every sequence alone gives what the packed batch gives, whatever stands behind its end."""
    layer, x = bayesian(kind, **BOTH), noise(6, 4, 5)
    lengths = LENGTHS["unsorted"]
    spoilt = x.clone()
    for row, length in enumerate(lengths):
        spoilt[length:, row] = torch.nan
    batch = pack_padded_sequence(spoilt, torch.tensor(lengths), enforce_sorted=False)
    output, state = after(3, lambda: layer(batch))
    padded, found = pad_packed_sequence(output, padding_value=9.0)
    assert found.tolist() == lengths
    for row, length in enumerate(lengths):
        alone, final = after(3, lambda row=row, length=length: layer(x[:length, row]))
        assert_same(padded[:length, row], alone, 1e-12)
        assert bool((padded[length:, row] == 9.0).all())
        for part, own in zip(*((s,) if kind == "GRU" else s for s in (state, final)), strict=True):
            assert_same(part[:, row], own, 1e-12)


@over("kind", KINDS)
def test_outputs_are_random_as_the_weights_are(kind: str) -> None:
    """Vectorised passes, as `predict` runs them, against a loop of drawn torch layers."""
    layer, x = bayesian(kind), noise(3, 2, 5)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.transpose(0, 1))[0][-1]

    found = predict(Last(), x.transpose(0, 1), samples=4000, likelihood=Gaussian(), seed=0, keep_samples=True)
    with torch.no_grad():
        loop = torch.stack([drawn(layer, seed)[0](x)[0][-1] for seed in range(1000)])
    assert found.samples is not None
    assert_same_moments(found.samples, loop)


@over("kind", KINDS)
@over("posterior", POSTERIORS)
def test_every_posterior_trains(kind: str, posterior: str) -> None:
    torch.manual_seed(4)
    build: Any = {"LSTM": LSTM, "GRU": GRU}[kind]
    layer = build(5, 7, num_layers=2, dropout=0.1, posterior=POSTERIORS[posterior])
    layer(noise(3, 2, 5).float())[0].square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


def test_dropout_between_the_layers_acts_in_training_only() -> None:
    layer, x = bayesian("GRU", num_layers=2, dropout=0.5), noise(6, 4, 5)
    with using(layer, mean_only):
        layer.train()
        assert not torch.equal(layer(x)[0], layer(x)[0])
        assert bool(layer(x)[0].all())  # between the layers, not behind the last one
        layer.eval()
        assert torch.equal(layer(x)[0], layer(x)[0])


def test_an_lstm_has_one_bias_per_gate_a_gru_two() -> None:
    lstm, gru = bayesian("LSTM"), bayesian("GRU")
    both = plain("LSTM").double()
    torch.testing.assert_close(lstm.cells[0].input.bias.mean(), both.bias_ih_l0 + both.bias_hh_l0)
    assert lstm.cells[0].hidden.bias is None
    assert gru.cells[0].hidden.bias is not None
    back = lstm.to_torch()
    assert torch.equal(back.bias_hh_l0, torch.zeros(28, dtype=torch.float64))


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(ValueError, match=r"`proj_size`=2 is not supported: use a LSTM without it"):
        bayesianize_(nn.LSTM(5, 7, proj_size=2))
    layer = cast(Any, bayesian("LSTM"))
    with pytest.raises(ValueError, match=r"`input` must end in \(time, 5\) with an optional batch axis, got \(3, 4\)"):
        layer(noise(3, 4))
    with pytest.raises(ValueError, match=r"`hx` must have shape \(1, 2, 7\), got \(1, 3, 7\)"):
        layer(noise(3, 2, 5), (noise(1, 3, 7), noise(1, 3, 7)))
