"""Slim files are small, hold the weights within the stated bounds, and are refused when damaged."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import load_slim, mean_network, save_slim
from bayeslim.export.coding import Reader, Writer
from bayeslim.storage import read_tensors, write_tensors
from contracts.cases import each
from export.networks import bayesian, convolutional, outputs, pruned

Bits = Literal[16, 8]
BITS: tuple[Bits, Bits] = (16, 8)


def lenet(amount: float) -> nn.Module:
    torch.manual_seed(0)
    return pruned(bayesian(bl.models.lenet_300_100()), amount)


def assert_within(stored: Tensor, original: Tensor, bits: int) -> None:
    """The documented bounds, in float64; int8 may be replaced by the more precise float16 where that is smaller."""
    stored, original = stored.double(), original.double()
    bound = torch.maximum(2.0**-11 * original.abs(), torch.tensor(2.0**-25))
    if bits == 8 and original.ndim > 1 and original.numel():
        largest = original.flatten(1).abs().amax(1).view(-1, *[1] * (original.ndim - 1))
        bound = torch.maximum(bound, largest / 254 * (1 + 1e-5)).expand_as(original)
    assert bool(((stored - original).abs() <= bound).all())


def coded(tensor: Tensor, bits: Bits) -> tuple[list[Any], Tensor, int]:
    """Record, tensor after a round trip, and bytes of the streams."""
    writer = Writer(bits)
    record = writer.add("w", tensor)
    streams = writer.streams()
    reader = Reader(streams)
    found = reader.take(record)
    reader.finish()
    return record, found, sum(stream.nbytes for stream in streams.values())


def sparse(*shape: int, keep: float) -> Tensor:
    return torch.randn(shape) * (torch.rand(shape) < keep)


TENSORS: dict[str, Callable[[], Tensor]] = {
    "dense": lambda: torch.randn(13, 17),
    "half": lambda: sparse(40, 50, keep=0.5),
    "sparse": lambda: sparse(40, 50, keep=0.02),
    "very sparse": lambda: sparse(100, 300, keep=0.001),
    "empty rows": lambda: sparse(30, 40, keep=0.2) * (torch.arange(30) % 3 == 0)[:, None],
    "zero": lambda: torch.zeros(12, 9),
    "one element": lambda: torch.tensor([[2.5]]),
    "one zero": lambda: torch.zeros(1, 1),
    "no elements": lambda: torch.zeros(0, 3),
    "no columns": lambda: torch.zeros(3, 0),
    "scalar": lambda: torch.tensor(1.25),
    "vector": lambda: torch.randn(9),
    "kernel": lambda: sparse(6, 3, 5, 5, keep=0.1),
    "one far away": lambda: torch.eye(300)[:, -1:].repeat(1, 3) * (torch.arange(3) == 2),
    "rows of very different size": lambda: torch.randn(20, 30) * torch.logspace(-4, 4, 20)[:, None],
}


@each("bits", BITS)
@each("name", TENSORS)
def test_a_tensor_comes_back_within_the_bounds(name: str, bits: Bits) -> None:
    torch.manual_seed(1)
    tensor = TENSORS[name]()
    record, found, _ = coded(tensor, bits)
    assert record[0] == list(tensor.shape)
    assert found.shape == tensor.shape and found.dtype == torch.float32
    assert_within(found, tensor, bits)
    assert not bool(found[tensor == 0].any())


def test_values_that_float16_holds_come_back_exactly() -> None:
    torch.manual_seed(0)
    tensor = sparse(50, 60, keep=0.05).half().float()
    assert torch.equal(coded(tensor, 16)[1], tensor)


def test_the_bounds_of_eight_bits_are_not_slack() -> None:
    """Values half-way between two steps have the largest error."""
    tensor = torch.tensor([[127.0, 0.5, -3.5, 64.4999] * 40])
    record, found, _ = coded(tensor, 8)
    assert record[2] == "int8"
    assert (found - tensor).abs().max().item() == pytest.approx(0.5, abs=1e-3)
    assert (found[0, 0] - 127).abs() < 1e-4


def test_dense_and_sparse_codings_are_chosen_by_size() -> None:
    torch.manual_seed(0)
    dense, half, thin = torch.randn(50, 60), sparse(50, 60, keep=0.5), sparse(50, 60, keep=0.02)
    assert coded(dense, 16)[0] == [[50, 60], None, "float16"]
    assert coded(dense, 16)[2] == 6000
    assert coded(half, 16)[0] == [[50, 60], ["bitmap"], "float16"]
    assert coded(half, 16)[2] == 2 * int(half.count_nonzero()) + 375
    assert coded(thin, 16)[0][1][0] == "gaps"
    assert coded(thin, 16)[2] <= 3.1 * int(thin.count_nonzero())


def test_eight_bits_never_take_more_than_sixteen() -> None:
    torch.manual_seed(0)
    for keep in (0.0, 0.002, 0.01, 0.05, 0.3, 1.0):
        tensor = sparse(64, 100, keep=keep)
        assert coded(tensor, 8)[2] <= coded(tensor, 16)[2]
    few = torch.zeros(100, 100)
    few[0, 0] = 1
    assert coded(few, 8)[0][2] == "float16"  # a scale per row would cost more


def test_what_float16_cannot_hold_is_kept_in_float32() -> None:
    large = torch.tensor([[1e6, 1.0], [0.1, 0.0]])
    assert coded(large, 16)[0][2] == "float32"
    assert torch.equal(coded(large, 16)[1], large)
    tiny = torch.tensor([1e-7, 3.0])
    assert coded(tiny, 16)[0][2] == "float32"
    assert torch.equal(coded(tiny, 16)[1], tiny)
    assert coded(tiny[None], 16)[0][2] == "float16"
    edge = torch.tensor([65504.0, 2.0**-14, 0.0])
    assert coded(edge, 16)[0][2] == "float16"
    assert torch.equal(coded(edge, 16)[1], edge)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("amount", [0.0, 0.6, 0.985])
def test_lenet_comes_back(tmp_path: Path, bits: Bits, amount: float) -> None:
    model, x = lenet(amount), torch.randn(4, 1, 28, 28)
    path = tmp_path / "net.slim.safetensors"
    size = save_slim(model, path, bits)
    assert size == path.stat().st_size
    found, plain = load_slim(path), mean_network(model)
    assert type(found) is nn.Sequential and not found.training
    assert [type(m) for m in found.modules()] == [type(m) for m in plain.modules()]
    for name, tensor in plain.state_dict().items():
        assert_within(found.state_dict()[name], tensor, bits)
    scale = outputs(plain, x).abs().max()
    assert (outputs(found, x) - outputs(plain, x)).abs().max() < (2e-3 if bits == 16 else 3e-2) * scale


def test_a_pruned_lenet_is_fifty_times_smaller(tmp_path: Path) -> None:
    model = lenet(0.985)
    safetensors.torch.save_file(bl.models.lenet_300_100().state_dict(), tmp_path / "dense.safetensors")
    dense = (tmp_path / "dense.safetensors").stat().st_size
    assert 1_060_000 < dense < 1_070_000
    sixteen, eight = (save_slim(model, tmp_path / f"{bits}.slim.safetensors", bits) for bits in BITS)
    assert dense / sixteen > 70
    assert dense / eight > 80


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("plain", [bl.models.lenet5_caffe, convolutional])
def test_convolutional_networks_come_back(tmp_path: Path, plain: Callable[[], nn.Module], bits: Bits) -> None:
    torch.manual_seed(0)
    model = pruned(bayesian(plain()), 0.7)
    x = torch.randn(3, 1, 28, 28) if plain is bl.models.lenet5_caffe else torch.randn(3, 2, 8, 8)
    save_slim(model, tmp_path / "net", bits)
    found, network = load_slim(tmp_path / "net"), mean_network(model)
    for name, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            assert torch.equal(found.state_dict()[name], tensor) and found.state_dict()[name].dtype == tensor.dtype
        else:
            assert_within(found.state_dict()[name], tensor, bits)
    scale = outputs(network, x).abs().max()
    assert (outputs(found, x) - outputs(network, x)).abs().max() < (2e-3 if bits == 16 else 4e-2) * scale


def test_saving_leaves_the_network_alone(tmp_path: Path) -> None:
    model = lenet(0.5).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_slim(model, tmp_path / "net", 8)
    assert model.training and isinstance(model[1], bl.layers.Linear)  # pyright: ignore[reportIndexIssue]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def test_a_network_of_own_classes_is_loaded_into_an_instance(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = bayesian(Residual()), torch.randn(4, 5)
    save_slim(model, tmp_path / "net")
    with pytest.raises(ValueError, match="load_slim\\(path, model\\)"):
        load_slim(tmp_path / "net")
    found = load_slim(tmp_path / "net", Residual())
    assert torch.allclose(outputs(found, x), outputs(mean_network(model), x), atol=5e-3)
    with pytest.raises(ValueError, match="tensors are not those"):
        load_slim(tmp_path / "net", nn.Linear(5, 5))
    tensors, facts = read_tensors(tmp_path / "net")
    write_tensors(tmp_path / "net", tensors, {key: value for key, value in facts.items() if key != "parts"})
    assert torch.equal(outputs(load_slim(tmp_path / "net", Residual()), x), outputs(found, x))  # a file of old
    other = Residual()
    other.inner = nn.Linear(5, 4)
    with pytest.raises(
        ValueError, match="inner.weight has shape \\[5, 5\\].*sizes of the file, or .* bl.save and bl.load"
    ):
        load_slim(tmp_path / "net", other)


class Branched(nn.Module):
    """A network of an own class whose layers compaction makes smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.f1, self.norm, self.f2 = nn.Linear(6, 48), nn.BatchNorm1d(48), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.f2(torch.relu(self.norm(self.f1(x))))


def compacted() -> nn.Module:
    torch.manual_seed(0)
    model = bayesian(Branched()).eval()
    bl.prune_(model, amount=0.5, structure="output", where=lambda name, _: name == "f1")
    return bl.compact(model, torch.randn(4, 6))


def test_a_compacted_network_of_an_own_class_is_loaded_into_a_fresh_one(tmp_path: Path) -> None:
    model, x = compacted(), torch.randn(5, 6)
    save_slim(model, tmp_path / "net")
    fresh = Branched()
    fresh.f2.weight.requires_grad_(False)
    found = load_slim(tmp_path / "net", fresh)
    assert found is fresh and fresh.f1.out_features == fresh.norm.num_features < 48
    assert torch.allclose(outputs(found, x), outputs(mean_network(model), x), atol=5e-3)
    assert not any(tensor.is_meta for tensor in found.state_dict().values())


def test_slim_parts_that_make_no_sense_change_nothing(tmp_path: Path) -> None:
    save_slim(compacted(), tmp_path / "net")
    tensors, facts = read_tensors(tmp_path / "net")
    bl.save(nn.ModuleDict({"f1": bl.layers.Linear(6, 24)}), tmp_path / "bayesian")
    hostile = read_tensors(tmp_path / "bayesian")[1]["parts"]
    side = 10**7
    huge = {"torch": "Linear", "arguments": {"in_features": side, "out_features": side}}
    records = facts["records"] | {"f1.weight": [[side, side], ["gaps", 2, 0], "float16"]}
    for changes, message in (
        ({"parts": [3]}, "list of parts that is not valid"),
        ({"parts": {"f1": {"torch": "system"}}}, "stored architecture is not valid"),
        ({"parts": facts["parts"] | hostile}, "Bayesian"),
        ({"parts": facts["parts"] | {"f1": huge}, "records": records}, "`most_weights`"),
        ({"parts": facts["parts"] | {"f1": huge}}, "f1.weight has shape"),
    ):
        write_tensors(tmp_path / "net", tensors, facts | changes)
        fresh = Branched()
        before = repr(fresh), dict(fresh.named_parameters())
        with pytest.raises(ValueError, match=message):
            load_slim(tmp_path / "net", fresh)
        assert repr(fresh) == before[0]
        assert all(parameter is before[1][name] for name, parameter in fresh.named_parameters())


@pytest.mark.parametrize("bits", [32, True, 8.5, "16"])
def test_other_bits_are_refused(tmp_path: Path, bits: Any) -> None:
    with pytest.raises(ValueError, match="`bits` must be 16 or 8"):
        save_slim(nn.Linear(2, 2), tmp_path / "net", bits)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_diverged_are_refused(tmp_path: Path, value: float) -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight[0, 1] = value
    with pytest.raises(ValueError, match="NaN or infinite values in 'weight'"):
        save_slim(layer, tmp_path / "net")
    assert not (tmp_path / "net").exists()


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    bl.save(nn.Linear(2, 2), tmp_path / "net")
    with pytest.raises(ValueError, match="not a slim network: try bl.load"):
        load_slim(tmp_path / "net")
    with pytest.raises(FileNotFoundError):
        load_slim(tmp_path / "nothing")
    write_tensors(tmp_path / "net", {}, {"kind": "slim", "architecture": {"bayes": "Linear"}, "records": {}})
    with pytest.raises(ValueError, match="stored architecture"):
        load_slim(tmp_path / "net")


def small(path: Path, bits: Bits = 16) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A small network whose file has every stream but float32, and its parts."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 30), nn.BatchNorm1d(30), nn.Linear(30, 6))
    with torch.no_grad():
        cast(Tensor, network[0].weight).mul_(torch.rand(30, 40) < 0.1)
    save_slim(network, path, bits)
    return read_tensors(path)


def test_random_damage_is_noticed(tmp_path: Path) -> None:
    path, random = tmp_path / "net", np.random.default_rng(0)
    small(path, 8)
    content = path.read_bytes()
    expected = load_slim(path).state_dict()
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        if random.random() < 0.2:
            damaged = damaged[: random.integers(len(damaged))]
        path.write_bytes(damaged)
        try:
            found = load_slim(path).state_dict()
        except ValueError:
            continue
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def mutated(value: Any, random: np.random.Generator) -> Any:
    """JSON with one thing replaced, somewhere."""
    odd = [
        None,
        -1,
        0,
        1,
        7,
        2**31,
        2**62,
        10**30,
        1.5,
        True,
        "",
        "gaps",
        "int8",
        [],
        [-1],
        {},
        [2**40, 2**40],
        "bitmap",
    ]
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = list(value)[random.integers(len(value))]
        return {**value, key: mutated(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        index = int(random.integers(len(value)))
        return [*value[:index], mutated(value[index], random), *value[index + 1 :]]
    return odd[random.integers(len(odd))]


def test_hostile_files_with_a_valid_checksum_are_refused_or_harmless(tmp_path: Path) -> None:
    """A file that was made on purpose: wrong lengths, positions, types and shapes under a checksum that is right."""
    path, random = tmp_path / "net", np.random.default_rng(0)
    refused = 0
    original, original_facts = small(path, 8)
    for trial in range(400):
        tensors, facts = dict(original), copy.deepcopy(original_facts)
        name = list(tensors)[random.integers(len(tensors))]
        stream = tensors[name]
        match trial % 5:
            case 0:
                stream = stream[: random.integers(len(stream))]
            case 1:
                stream = torch.cat([stream, stream[:1]])
            case 2:
                stream = stream.view(torch.uint8).clone()
                stream[random.integers(len(stream))] ^= 1 << int(random.integers(8))
                stream = stream.view(tensors[name].dtype)
            case 3:
                stream = stream[None] if random.random() < 0.5 else stream.view(torch.uint8).to(torch.int16)
            case _:
                part = "records" if random.random() < 0.7 else "architecture"
                facts[part] = mutated(facts[part], random)
        write_tensors(path, {**tensors, name: stream}, facts)
        try:
            found = load_slim(path, most_weights=10_000).state_dict()
        except ValueError:
            refused += 1
        else:
            assert sum(tensor.numel() for tensor in found.values()) <= 10_000
    assert refused > 250


def with_record(path: Path, name: str, record: list[Any]) -> None:
    tensors, facts = small(path)
    facts["records"][name] = record
    write_tensors(path, tensors, facts)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([[30, 40], ["gaps", 4, 10**15], "float16"], "'index' ends"),
        ([[30, 40], ["gaps", 40, 1], "float16"], "not an index coding"),
        ([[30, 40], ["gaps", 1, 1], "float16"], "not an index coding"),
        ([[30, 40], ["gaps", 4, -1], "float16"], "not an index coding"),
        ([[30, 40], ["gaps", 4, 2.0], "float16"], "not an index coding"),
        ([[30, 40], "bitmap", "float16"], "not an index coding"),
        ([[30, 40], None, "float32"], "'float32' ends 1200"),
        ([[30, 40], None, "int64"], "'int64' ends 1199"),
        ([[30, 40], None, "complex"], "not known"),
        ([[30, 40], None, ["int8"]], "not known"),
        ([[40, 30], None, "float16"], "has shape"),
        ([[30, 40, True], None, "float16"], "not a shape"),
        ([[30, -40], None, "float16"], "not a shape"),
        ([[30, 40], None], "is not \\[shape"),
    ],
)
def test_records_that_make_no_sense_are_refused(tmp_path: Path, record: list[Any], message: str) -> None:
    with_record(tmp_path / "net", "0.weight", record)
    with pytest.raises(ValueError, match=message):
        load_slim(tmp_path / "net")


def test_a_type_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with_record(tmp_path / "net", "1.num_batches_tracked", [[], None, "float16"])
    with pytest.raises(ValueError, match="num_batches_tracked is torch.float32"):
        load_slim(tmp_path / "net")


def test_bytes_that_belong_nowhere_are_refused(tmp_path: Path) -> None:
    tensors, facts = small(tmp_path / "net")
    write_tensors(tmp_path / "net", {**tensors, "scale": torch.ones(2)}, facts)
    with pytest.raises(ValueError, match="2 of scale belong to no tensor"):
        load_slim(tmp_path / "net")
    write_tensors(tmp_path / "net", {**tensors, "more": torch.ones(2)}, facts)
    with pytest.raises(ValueError, match="'more'"):
        load_slim(tmp_path / "net")
    write_tensors(tmp_path / "net", {**tensors, "float16": tensors["float16"][:, None]}, facts)
    with pytest.raises(ValueError, match="'float16' of type torch.float16 and 2 axes"):
        load_slim(tmp_path / "net")


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    """A matrix of zeros takes no bytes in the file, and four terabytes in memory."""
    side = 10**6
    layer = {"torch": "Linear", "arguments": {"in_features": side, "out_features": side, "bias": False}}
    records = {"weight": [[side, side], ["gaps", 2, 0], "float16"]}
    write_tensors(tmp_path / "net", {}, {"kind": "slim", "architecture": layer, "records": records})
    with pytest.raises(ValueError, match="`most_weights`=268435456"):
        load_slim(tmp_path / "net")


def test_the_limit_can_be_moved(tmp_path: Path) -> None:
    small(tmp_path / "net")
    weights = sum(tensor.numel() for tensor in load_slim(tmp_path / "net").state_dict().values())
    load_slim(tmp_path / "net", most_weights=weights)
    with pytest.raises(ValueError, match="`most_weights`"):
        load_slim(tmp_path / "net", most_weights=weights - 1)


def test_a_bayesian_architecture_is_refused(tmp_path: Path) -> None:
    bl.save(bl.layers.Linear(2, 2), tmp_path / "net")
    architecture = read_tensors(tmp_path / "net")[1]["architecture"]
    write_tensors(tmp_path / "net", {}, {"kind": "slim", "architecture": architecture, "records": {}})
    with pytest.raises(ValueError, match="Bayesian"):
        load_slim(tmp_path / "net")
