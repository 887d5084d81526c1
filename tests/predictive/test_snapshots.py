import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods.base import remember_likelihood_, remembered_likelihood
from bayeslim.predictive.snapshots import Snapshots, in_run
from bayeslim.pruning import MAGNITUDE, random_like, sparsify_
from bayeslim.schedules import Progress
from bayeslim.storage import write_tensors


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def states(count: int) -> list[dict[str, Tensor]]:
    """States with weights and BatchNorm statistics of their own."""
    found: list[dict[str, Tensor]] = []
    for seed in range(count):
        model = network(seed)
        model(3 * torch.randn(32, 4) + seed)  # moves the running statistics
        found.append(copy.deepcopy(model.state_dict()))
    return found


def expected(model: nn.Module, found: list[dict[str, Tensor]], x: Tensor) -> Tensor:
    """Class probabilities of every snapshot, one plain pass each."""
    own = copy.deepcopy(model).eval()
    results: list[Tensor] = []
    for state in found:
        own.load_state_dict(state)
        results.append(own(x).softmax(-1))
    return torch.stack(results).detach()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with five snapshots."""
    model = network()
    snapshots = Snapshots(model, tmp_path / "snapshots")
    for number, state in enumerate(states(5)):
        model.load_state_dict(state)
        snapshots.take_(number)
    return tmp_path / "snapshots"


X = torch.randn(50, 4, generator=torch.Generator().manual_seed(7))
Y = torch.arange(50) % 3


@pytest.mark.parametrize("limit", [2**24, 250, 1], ids=["at once", "two at a time", "one at a time"])
@pytest.mark.parametrize("batch_size", [1024, 20])
def test_prediction_is_the_average_over_snapshots(
    folder: Path, limit: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayeslim.predictive.snapshots.HELD_WEIGHTS", limit)
    monkeypatch.setattr("bayeslim.predictive.networks.WEIGHTS_AT_ONCE", limit)
    monkeypatch.setattr("bayeslim.predictive.networks.ROWS_AT_ONCE", 100)
    model = network(9)
    before, truth = copy.deepcopy(model.state_dict()), expected(model, states(5), X)
    prediction = bl.predict(Snapshots(model, folder), X, likelihood=bl.Categorical(), batch_size=batch_size)
    assert prediction.samples is not None
    torch.testing.assert_close(prediction.samples, truth, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(prediction.mean, truth.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(prediction.epistemic, truth.var(0, correction=0), rtol=1e-4, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_a_list_of_states_serves_as_well(folder: Path) -> None:
    found, model = states(5), network(9)
    on_disk, in_memory = (
        bl.predict(Snapshots(model, source), X, likelihood=bl.Categorical()).mean for source in (folder, found)
    )
    torch.testing.assert_close(on_disk, in_memory, rtol=0, atol=0)


def test_a_list_collects_copies() -> None:
    model, found = network(), list[dict[str, Tensor]]()
    snapshots = Snapshots(model, found)
    snapshots.take_(0)
    with torch.no_grad():
        model.get_parameter("0.weight").zero_()
    snapshots.take_(1)
    assert len(snapshots) == 2 and found[0]["0.weight"].any() and not found[1]["0.weight"].any()


class Uneven(bl.likelihoods.Gaussian):
    """A likelihood that bayeslim cannot build."""


@pytest.mark.parametrize("kind", [list, Path])
def test_the_likelihood_is_kept_with_every_snapshot(kind: type, tmp_path: Path) -> None:
    """And the last one is that of a network which has none, as in a new process."""
    model, source = network(), tmp_path if kind is Path else list[dict[str, Tensor]]()
    snapshots = Snapshots(model, source)
    snapshots.take_(0)
    noise = bl.likelihoods.Gaussian(2.0, learn_noise=True)
    remember_likelihood_(model, noise)
    for number in (1, 2):
        with torch.no_grad():
            noise.log_noise.fill_(-number)
        snapshots.take_(number)
    with torch.no_grad():
        noise.log_noise.fill_(9.0)
    found = [snapshots[index].likelihood for index in range(3)]
    assert found[0] is None
    assert [one.log_noise.item() for one in found if isinstance(one, bl.likelihoods.Gaussian)] == [-1, -2]
    other = network(3)
    variances = bl.predict(Snapshots(other, source), X).sample_variances
    assert variances is not None and remembered_likelihood(other) is not None
    expected = torch.tensor([-4.0, -2.0, -4.0])  # the first one has none of its own
    torch.testing.assert_close(variances.log(), expected[:, None, None].expand_as(variances))
    with torch.no_grad():
        parameter_of(remembered_likelihood(other)).fill_(7.0)
    assert parameter_of(snapshots[2].likelihood).item() == -2
    Snapshots(model, source)
    assert remembered_likelihood(model) is noise


def parameter_of(likelihood: nn.Module | None) -> nn.Parameter:
    assert likelihood is not None
    return next(likelihood.parameters())


def test_a_likelihood_that_cannot_be_built_is_not_remembered(tmp_path: Path) -> None:
    model, other = network(), network()
    remember_likelihood_(model, Uneven())
    Snapshots(model, tmp_path).take_(0)
    snapshots = Snapshots(other, tmp_path)
    assert snapshots[0].likelihood is None and remembered_likelihood(other) is None


def test_a_folder_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    model = network()
    write_tensors(tmp_path / "snapshot-000000.safetensors", model.state_dict(), {"kind": "snapshot", "number": 0})
    snapshots = Snapshots(network(5), tmp_path)
    assert torch.equal(snapshots[0]["0.weight"], model.get_parameter("0.weight"))
    assert snapshots[0].likelihood is None


def test_evaluation_averages_before_the_logarithm(folder: Path) -> None:
    model, y = network(), torch.arange(50) % 3
    truth = expected(model, states(5), X).mean(0)
    scores = bl.evaluate(Snapshots(model, folder), (X, y), likelihood=bl.Categorical())
    assert scores["nll"] == pytest.approx(-truth[torch.arange(50), y].log().mean().item(), rel=1e-5)
    assert scores["accuracy"] == pytest.approx((truth.argmax(-1) == y).double().mean().item())


class Doubled(nn.Module):
    """A network that vmap cannot run: it branches on a value. Its two layers share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        return 2 * x if x.sum().item() > -math.inf else x


def test_networks_that_vmap_cannot_run_and_shared_weights() -> None:
    model = Doubled()
    snapshots, results = Snapshots(model, []), list[Tensor]()
    for _ in range(3):
        with torch.no_grad():
            model.first.weight.normal_()
        snapshots.take_(0)
        results.append(model(X[:, :3]).softmax(-1))
    prediction = bl.predict(snapshots, X[:, :3], likelihood=bl.Categorical())
    torch.testing.assert_close(prediction.mean, torch.stack(results).mean(0).detach())


def test_bayesian_networks_draw_once_per_snapshot() -> None:
    torch.manual_seed(0)
    model = bl.mlp([4, 8, 3], method="graves")
    snapshots = Snapshots(model, [copy.deepcopy(model.state_dict()) for _ in range(300)])
    prediction = bl.predict(snapshots, X[:5], likelihood=bl.Categorical(), seed=0)
    assert prediction.samples is not None and len(prediction.samples.unique(dim=0)) == 300


def test_the_order_is_that_of_the_numbers(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path)
    for number in (9, 10, 1_000_000):
        with torch.no_grad():
            model.get_parameter("0.bias").fill_(number)
        snapshots.take_(number)
    assert [snapshots[i]["0.bias"][0].item() for i in range(3)] == [9, 10, 1_000_000]


def test_the_hook_takes_them_when_it_is_time(tmp_path: Path) -> None:
    model: Any = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    snapshots = Snapshots(model, tmp_path, when=bl.schedules.sampling_epochs(2, 1))
    for epoch in range(6):
        snapshots(model, optimizer, Progress(10 * epoch + 9, 10, 6))
    assert [file.name for file in snapshots.files()] == ["snapshot-000002.safetensors", "snapshot-000005.safetensors"]
    with pytest.raises(ValueError, match="the snapshots were made for another network"):
        snapshots(network(), optimizer, Progress(0, 10, 6))


def test_the_last_one_may_be_taken_again_but_not_an_earlier_one(folder: Path) -> None:
    model = network(20)
    snapshots = Snapshots(model, folder)
    snapshots.take_(4)
    assert len(snapshots) == 5 and torch.equal(snapshots[4]["0.weight"], model.get_parameter("0.weight"))
    before = {file: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(
        FileExistsError, match="holds snapshot-000004.safetensors, later than 2 and thus of another run"
    ):
        snapshots.take_(2)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_of_several_processes_in_a_run_rank_0_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    snapshots, mine = Snapshots(model, tmp_path / "snapshots"), Snapshots(model, [])
    rank = 1
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with in_run(model, "a"):
        for one in (snapshots, mine):
            one(model, optimizer, Progress(0, 1, 3))
        assert len(snapshots) == 0 and len(mine) == 1
        rank = 0
        snapshots(model, optimizer, Progress(0, 1, 3))
        assert len(snapshots) == 1
    other = tmp_path / "snapshots" / f".snapshot-000001.safetensors.{'ab' * 8}"  # of another process, perhaps
    other.write_bytes(b"half")
    for rank in (0, 1):  # a loop of the user's own
        snapshots.take_(1 + rank)
    assert len(snapshots) == 3 and other.exists()


@pytest.mark.parametrize("name", ["notes.txt", "checkpoint.safetensors", "snapshot-1.safetensors"])
def test_a_folder_with_other_files_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("mine")
    with pytest.raises(
        FileExistsError, match=f"holds {name}, which is no snapshot \\(1 such\\): give snapshots a folder"
    ):
        Snapshots(network(), folder)
    (folder / name).unlink()
    snapshots = Snapshots(network(), folder)
    (folder / name).write_text("mine")
    with pytest.raises(FileExistsError, match="which is no snapshot"):
        snapshots.take_(7)
    assert (folder / name).read_text() == "mine" and not (folder / "snapshot-000007.safetensors").exists()


def test_what_a_killed_writer_left_is_ignored(folder: Path) -> None:
    (folder / ".snapshot-000005.safetensors.abcdef").write_bytes(b"half")
    assert len(Snapshots(network(), folder)) == 5


def test_what_a_killed_writer_left_is_removed_with_the_next_snapshot(folder: Path) -> None:
    half, other = (folder / f".snapshot-{number:06d}.safetensors.{'ab' * 8}" for number in (5, 6))
    for file in (half, other):
        file.write_bytes(b"half")
    Snapshots(network(), folder).take_(5)
    assert not half.exists() and other.exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file: pass a folder"):
        Snapshots(network(), tmp_path / "file")


def test_damage_is_found(folder: Path) -> None:
    snapshots, file = Snapshots(network(), folder), folder / "snapshot-000003.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    with pytest.raises(ValueError, match="snapshot-000003.safetensors is not a readable safetensors file"):
        bl.predict(snapshots, X, likelihood=bl.Categorical())
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="snapshot-000003.safetensors is damaged: its checksum does not match"):
        bl.predict(snapshots, X, likelihood=bl.Categorical())
    bl.save(network(), file)
    with pytest.raises(ValueError, match="holds 'model', not a snapshot"):
        bl.predict(snapshots, X, likelihood=bl.Categorical())


def test_another_architecture_is_refused(folder: Path) -> None:
    other = nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))
    with pytest.raises(ValueError, match="does not fit the network: 0.weight is \\(8, 4\\), expected \\(9, 4\\)"):
        Snapshots(other, folder)
    with pytest.raises(ValueError, match="snapshot 0 does not fit the network: 0.weight is"):
        Snapshots(other, states(1))


def test_nothing_to_predict_with(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="there are no snapshots in .*none: train with `after_epoch=snapshots` first"):
        bl.predict(Snapshots(network(), tmp_path / "none"), X, likelihood=bl.Categorical())
    with pytest.raises(ValueError, match="`method` must be 'sample' for snapshots, got 'mean'"):
        bl.predict(Snapshots(network(), folder), X, likelihood=bl.Categorical(), method="mean")
    with pytest.raises(ValueError, match="`likelihood` is not known"):
        bl.predict(Snapshots(network(), folder), X)


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("prune", lambda snapshots: bl.prune_(snapshots, MAGNITUDE, amount=0.5)),
        ("prune", lambda snapshots: bl.unprune_(snapshots)),
        ("prune", lambda snapshots: random_like(snapshots)),
        ("prune", lambda snapshots: bl.prune_curve(snapshots, (X, Y))),
        ("prune", lambda snapshots: bl.prune_curve(snapshots, (X, Y), thresholds=[3.0])),
        ("prune", lambda snapshots: bl.analysis.magnitude_curve(snapshots, (X, Y), [0.5])),
        ("compact", lambda snapshots: bl.compact(snapshots, X)),
        ("measure", lambda snapshots: bl.footprint(snapshots)),
        ("measure", lambda snapshots: bl.sparsity(snapshots)),
        ("sparsify", lambda snapshots: sparsify_(snapshots, X)),
    ],
)
def test_only_networks_are_pruned(action: str, call: Callable[[Any], Any]) -> None:
    model = bl.mlp([4, 8, 3])
    snapshots = Snapshots(model, [])
    snapshots.take_(0)
    with pytest.raises(TypeError, match=rf"\(nn\.Module\), got Snapshots: {action} the network .* snapshots\.model;"):
        call(snapshots)
    snapshots.model.load_state_dict(snapshots[-1])  # what the message says
    bl.prune_(snapshots.model, MAGNITUDE, amount=0.5)
    with pytest.raises(TypeError, match=r"`(model|pruned)` must be a network \(nn\.Module\), got int: pass one"):
        call(3)
