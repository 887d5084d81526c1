"""The least work of a step, counted by hand."""

from importlib import import_module
from typing import Any

import pytest

SPEEDS = {"flops": 1.0, "bytes": 1.0, "normals": 1.0}


@pytest.fixture
def limits() -> Any:
    return import_module("limits")


def test_deterministic_step_by_hand(limits: Any) -> None:
    work = limits.step_work([5, 3, 2], 7, "deterministic")
    # First layer: forward and gradient of the weight; second: also the gradient of its input.
    assert work.flops == 2 * (2 * 7 * 5 * 3) + 3 * (2 * 7 * 3 * 2)
    first, second = 4 * (7 * 5 + 5 * 3 + 7 * 3), 4 * (7 * 3 + 3 * 2 + 7 * 2)
    assert work.bytes == 2 * first + 3 * second + 7 * 4 * (15 + 6)  # Adam: four reads and three writes
    assert work.normals == 0


def test_products_double_or_triple(limits: Any) -> None:
    sizes, batch = [5, 3, 2], 7
    plain, local, moments = (
        limits.step_work(sizes, batch, kind).flops for kind in ("deterministic", "local_reparam", "moments")
    )
    assert local == 2 * plain
    assert moments == 3 * plain - 2 * (2 * 7 * 5 * 3)  # the input of the first layer is certain
    for kind in ("weight_sample", "k_tied"):
        assert limits.step_work(sizes, batch, kind).flops == plain


def test_noise_is_one_number_per_weight_or_per_output(limits: Any) -> None:
    drawn = {kind: limits.step_work([5, 3, 2], 7, kind).normals for kind in limits.KINDS}
    assert drawn["weight_sample"] == drawn["flipout"] == drawn["k_tied"] == 21
    assert drawn["local_reparam"] == 7 * 5
    assert drawn["moments"] == 0


def test_time_adds_products_and_passes_and_noise_on_request(limits: Any) -> None:
    work = limits.Work(10.0, 20.0, 30.0)
    assert work.seconds({"flops": 10.0, "bytes": 5.0, "normals": 3.0}) == 1 + 4
    assert work.seconds({"flops": 10.0, "bytes": 5.0, "normals": 3.0}, noise=True) == 1 + 4 + 10


def test_limits_of_a_wide_network_are_its_products(limits: Any) -> None:
    record = {"network": [512] * 4, "batch": 10**6, "autocast": "float32", "speeds": SPEEDS | {"bytes": 1e12}}
    expected = {"graves": 1.0, "k-tied": 1.0, "ard": 2.0, "vdp": 3 - 2 / 8}
    for name, value in expected.items():
        ratio = limits.step_seconds(record, name) / limits.step_seconds(record, "deterministic")
        assert ratio == pytest.approx(value, rel=1e-3)


def test_half_precision_halves_the_operands_only(limits: Any) -> None:
    whole, half = (limits.step_work([5, 3], 7, "deterministic", width) for width in (4, 2))
    assert whole.bytes - half.bytes == 2 * 2 * (7 * 5 + 5 * 3 + 7 * 3)


def test_prediction_shares_the_first_layer(limits: Any) -> None:
    work, plain = (limits.predict_work([5, 3, 2], 7, 11, drawing) for drawing in (True, False))
    assert plain.flops == 11 * 2 * 7 * (15 + 6)
    assert work.flops == 2 * (2 * 7 * 15) + 11 * 2 * (2 * 7 * 6)
    assert work.normals == 11 * 7 * 5


def test_every_network_of_the_benchmark_has_a_limit(limits: Any) -> None:
    from bayeslim.step_costs import networks

    assert set(limits.KIND_OF) == set(networks([4, 2]))
    assert set(limits.KIND_OF.values()) == set(limits.KINDS)


def test_speeds_of_this_machine() -> None:
    rates = import_module("speeds").speeds(32, 32, 32, 1000, rounds=1)
    assert set(rates) == SPEEDS.keys() and min(rates.values()) > 1e5
