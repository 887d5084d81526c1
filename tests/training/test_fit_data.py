"""Training data in every form, and what is wrong with bad ones."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian
from bayeslim.training.many import fit_many
from contracts.cases import each
from training.problems import blobs, distance, equal, line, small, state

CLASSES = bl.Categorical()
X, Y = blobs()


def trained(data: Any, **options: Any) -> dict[str, Tensor]:
    model = small(method="graves")
    bl.fit(model, data, likelihood=CLASSES, epochs=2, batch_size=16, lr=0.01, seed=0, **options)
    return state(model)


@pytest.mark.parametrize(
    "data",
    [
        [X, Y],
        (X.numpy(), Y.numpy()),
        (X.double().numpy(), Y.numpy().astype(np.uint8)),
        (X.tolist(), Y.tolist()),
        (np.asfortranarray(X.numpy()), Y.int()),
        (X.numpy()[::-1].copy()[::-1], Y.numpy()[::-1].copy()[::-1]),
    ],
)
def test_all_forms_of_a_pair_are_the_same(data: Any) -> None:
    assert equal(trained(data), trained((X, Y)))


def test_arrays_that_cannot_be_written_are_taken_and_not_changed() -> None:
    x, y = X.numpy().copy(), Y.numpy().copy()
    x.flags.writeable = y.flags.writeable = False
    assert equal(trained((x, y)), trained((X, Y)))
    assert np.array_equal(x, X.numpy())


def test_regression_targets_in_every_form_are_the_same() -> None:
    x, y = line()
    results = []
    for target in (y[:, :1], y[:, 0], y[:, 0].double(), y[:, 0].numpy(), y[:, 0].tolist()):
        model = small(outputs=1)
        bl.fit(model, (x, target), likelihood=Gaussian(0.3), epochs=2, seed=0)
        results.append(state(model))
    assert all(equal(result, results[0]) for result in results)


def test_targets_take_the_type_of_the_network() -> None:
    """A float64 target must not drag the whole objective into float64."""
    x, y = line()
    seen: set[torch.dtype] = set()

    class Spy(Gaussian):
        def nll(self, output: Tensor, y: Tensor) -> Tensor:
            seen.update({output.dtype, y.dtype})
            return super().nll(output, y)

    bl.fit(small(outputs=2), (x.double(), y.double()), likelihood=Spy(0.3), epochs=1, seed=0)
    assert seen == {torch.float32}
    bl.fit(small(outputs=2).double(), (x, y), likelihood=Spy(0.3), epochs=1, seed=0)
    assert seen == {torch.float32, torch.float64}


def test_a_dataset_is_a_shuffled_loader() -> None:
    dataset = TensorDataset(X, Y)
    expected = trained(DataLoader(dataset, 16, shuffle=True))
    assert equal(trained(dataset), expected)
    assert not equal(trained(DataLoader(dataset, 16)), expected)


class Pairs(Dataset[Any]):
    """A map-style dataset of Python numbers."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[list[float], int]:
        return X[index].tolist(), int(Y[index])


def test_a_dataset_of_plain_numbers() -> None:
    model = small(method="graves")
    loader = DataLoader(Pairs(), 16, collate_fn=lambda rows: ([r[0] for r in rows], [r[1] for r in rows]))
    bl.fit(model, loader, likelihood=CLASSES, epochs=2, lr=0.01, seed=0)
    assert equal(model, trained(DataLoader(TensorDataset(X, Y), 16)))


def test_all_forms_see_the_same_data() -> None:
    """On full batches of a deterministic network the order within the batch does not matter."""
    results = []
    for data in ((X, Y), TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), 48, shuffle=True)):
        torch.manual_seed(0)
        model = bl.models.mlp([3, 8, 3])
        optimizer = functools.partial(torch.optim.SGD, lr=0.5)
        bl.fit(model, data, likelihood=CLASSES, epochs=5, batch_size=48, optimizer=optimizer, seed=0)
        results.append(state(model))
    assert all(distance(result, results[0]) < 1e-5 for result in results[1:])


def test_every_example_is_used_once_per_epoch() -> None:
    seen: list[float] = []

    class Spy(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if self.training:
                seen.extend(input[:, 0].tolist())
            return super().forward(input)

    x = torch.arange(50.0)[:, None]
    data = x, torch.zeros(50)
    bl.fit(Spy(1, 1), data, likelihood=Gaussian(), epochs=2, batch_size=16, lr=1e-9, seed=0)
    first, second = seen[:50], seen[50:]
    assert sorted(first) == sorted(second) == x[:, 0].tolist()
    assert first != second and first != sorted(first)


class Stream(IterableDataset[Any]):
    """48 examples whose number only the owner may know."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X, Y, strict=True)


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(X)


def kl_share(data: Any, **options: Any) -> float:
    """The `num_data` that the objective used, from one epoch's energy."""
    history = bl.fit(small(), data, likelihood=CLASSES, epochs=1, seed=0, **options)
    return round(history["kl"][0] / (history["energy"][0] - history["nll"][0]))


def test_num_data_is_inferred_from_the_data() -> None:
    dataset = TensorDataset(X, Y)
    for data in ((X, Y), dataset, DataLoader(dataset, 7), DataLoader(dataset, 7, drop_last=True)):
        assert kl_share(data) == 48 == kl_share(data, num_data=48)
    assert kl_share(DataLoader(SizedStream(), 8)) == 48
    assert kl_share(DataLoader(torch.utils.data.Subset(dataset, range(20)), 5)) == 20


def test_a_sampler_that_picks_examples_needs_num_data() -> None:
    loader = DataLoader(TensorDataset(X, Y), 5, sampler=SubsetRandomSampler(range(20)))
    with pytest.raises(ValueError, match="`num_data` cannot be inferred from this loader"):
        kl_share(loader)
    assert kl_share(loader, num_data=20) == 20


@each(
    ("data", "options", "message"),
    [
        ((X, Y), {"num_data": 60}, "`num_data`=60 contradicts the data, which has 48 examples"),
        (TensorDataset(X, Y), {"num_data": 60}, "`num_data`=60 contradicts"),
        (DataLoader(TensorDataset(X, Y), 5), {"num_data": 60}, "`num_data`=60 contradicts"),
        ((X, Y), {"num_data": 0}, "`num_data` must be the positive number of training examples, got 0"),
        ((X, Y), {"num_data": -48}, "`num_data` must be the positive number of training examples, got -48"),
        ((X, Y), {"num_data": 48.0}, "`num_data` must be the positive number"),
        ((X, Y), {"num_data": True}, "`num_data` must be the positive number"),
        ((X, Y), {"batch_size": 0}, "`batch_size` must be a positive integer, got 0"),
        ((X, Y[:40]), {}, "48 inputs and 40 targets: they must agree"),
        ((X[:0], Y[:0]), {}, r"`x` must have at least one row, got shape \(0, 3\)"),
        ((torch.tensor(1.0), Y), {}, r"`x` must have at least one row, got shape \(\)"),
        (TensorDataset(X[:0], Y[:0]), {}, "`data` is empty"),
        (DataLoader(Stream(), 8), {}, "`num_data` cannot be inferred"),
        (DataLoader(Stream(), 8), {"num_data": 48}, "loader without a length.*__len__"),
        (DataLoader(TensorDataset(X), 8), {}, r"`data` must yield \(x, y\) pairs, got a list of 1"),
        (DataLoader(TensorDataset(X, Y, Y), 8), {}, r"`data` must yield \(x, y\) pairs, got a list of 3"),
        ((X[:, :2], Y), {}, r"the network does not accept inputs of shape \(N, 2\) and dtype torch.float32"),
        ((X.int(), Y), {}, r"does not accept inputs of shape \(N, 3\) and dtype torch.int32"),
        ((X[:, None, None], Y), {}, r"outputs of shape \(batch, classes >= 2\), got \(2, 1, 1, 3\)"),
        ((X.clone().index_fill_(0, torch.tensor([5, 9]), torch.nan), Y), {}, "`x` holds NaN.* 2 of 48.* row 5"),
        ((X.clone().index_fill_(0, torch.tensor([0]), torch.inf), Y), {}, "`x` holds NaN or infinite"),
        ((X, Y + 1), {}, r"`y` holds the label 3, but the model has 3 outputs: labels must lie in \[0, 2\]"),
        ((X, Y - 1), {}, "`y` holds the negative label -1: labels start at 0"),
        ((X, Y.float()), {}, r"`y` must hold integer class labels, got torch.float32: convert with y.long\(\)"),
        ((X, Y[:, None]), {}, r"`y` must have shape \(N,\), got \(48, 1\)"),
        ((X, Y > 1), {}, "integer class labels, got torch.bool"),
    ],
)  # fmt: skip
def test_bad_data_are_refused_before_anything_changes(data: Any, options: dict[str, Any], message: str) -> None:
    model = small()
    before, mode = state(model), torch.get_rng_state()
    options = {"likelihood": CLASSES, "epochs": 1, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        bl.fit(model, data, **options)
    assert equal(model, before) and torch.equal(torch.get_rng_state(), mode)
    assert model.training


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X.to(torch.complex64), Y), "`x` must be real, got torch.complex64"),
        ((X.numpy().astype(complex), Y), "`x` must hold numbers"),
        ((np.array([["a", "b"]] * 48), Y), "`x` must hold numbers, got ndarray of dtype <U1: encode text"),
        ((X, ["cat"] * 48), "`y` must hold numbers, got list of dtype <U3"),
        ((np.array([{}] * 48), Y), "`x` must hold numbers, got ndarray of dtype object"),
        (X, r"`data` must be \(x, y\), a Dataset or a DataLoader, got Tensor"),
        ((X,), r"`data` must be \(x, y\).* got tuple"),
        ({"x": X, "y": Y}, r"`data` must be \(x, y\).* got dict"),
        (None, r"`data` must be \(x, y\).* got NoneType"),
    ],
)
def test_types_that_are_no_data_are_refused(data: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        bl.fit(small(), data, likelihood=CLASSES, epochs=1, seed=0)


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        (torch.zeros(48, 3), Gaussian(), r"`y` has \(3,\) values per example, the model predicts \(2,\)"),
        (torch.zeros(48), Gaussian(), r"`y` has \(1,\) values per example, the model predicts \(2,\)"),
        (torch.full((48, 2), torch.nan), Gaussian(), "`y` holds NaN or infinite values in 48 of 48 rows"),
        (torch.zeros(48, 2), HeteroscedasticGaussian(), r"`y` has \(2,\) values per example.* \(1,\)"),
        (torch.full((48, 2), 1.5), bl.Bernoulli(), r"`y` must lie in \[0, 1\] for Bernoulli, got \[1.5, 1.5\]"),
        (torch.zeros(48, 3), bl.Bernoulli(), r"`y` has \(3,\) values per example"),
    ],
)  # fmt: skip
def test_targets_that_do_not_fit_are_refused(y: Tensor, likelihood: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.fit(small(outputs=2), (X, y), likelihood=likelihood, epochs=1, seed=0)


def test_bad_labels_in_a_loader_are_named() -> None:
    loader = DataLoader(TensorDataset(X, Y + 1), 8)
    with pytest.raises(ValueError, match="`y` holds the label 3"):
        bl.fit(small(), loader, likelihood=CLASSES, epochs=1, seed=0)


@pytest.mark.parametrize(
    ("validation", "message"),
    [((X, Y + 1), "`y` holds the label 3"), ((X[:, :2], Y), "does not accept"), ((X, Y[:9]), "must agree")],
)
def test_bad_validation_data_are_refused_before_training(validation: Any, message: str) -> None:
    model = small()
    before = state(model)
    with pytest.raises(ValueError, match=message):
        bl.fit(model, (X, Y), likelihood=CLASSES, epochs=5, validation=validation, seed=0)
    assert equal(model, before)


class TwoOutputs(nn.Linear):
    def forward(self, input: Tensor) -> Any:
        return super().forward(input), input


def test_a_network_that_returns_several_things_is_refused() -> None:
    with pytest.raises(TypeError, match="the network must return one tensor, not tuple: wrap it in a module"):
        bl.fit(TwoOutputs(3, 3), (X, Y), likelihood=CLASSES, epochs=1, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "`epochs` must be a positive integer, got 0"),
        ({"epochs": 1.5}, r"`epochs` must be a positive integer, got 1\.5"),
        ({"accumulate": 0}, "`accumulate` must be a positive integer, got 0"),
        ({"samples": 0}, "`samples` must be a positive integer, got 0"),
        ({"samples": True}, "`samples` must be a positive integer"),
        ({"pretrain_epochs": 3}, r"`pretrain_epochs` must lie in \[0, epochs=2\], got 3"),
        ({"pretrain_epochs": -1}, "`pretrain_epochs` must lie in"),
        ({"patience": 3}, "`patience` needs `validation` data"),
        ({"patience": 0, "validation": (X, Y)}, "`patience` must be a positive integer, got 0"),
        ({"clip_norm": 0.0}, r"`clip_norm` must be positive, got 0\.0"),
        ({"clip_norm": -1.0}, "`clip_norm` must be positive"),
        ({"autocast": torch.float64}, "`autocast` must be torch.bfloat16, torch.float16 or None"),
        ({"seed": -1}, "`seed` must be an integer"),
        ({"seed": 0.5}, "`seed` must be an integer"),
        ({"kl_scaling": "sum"}, "`kl_scaling` must be"),
        ({"kl_schedule": bl.schedules.constant(-1.0)}, r"`kl_schedule` gave -1\.0: it must be finite and not neg"),
        ({"kl_schedule": bl.schedules.constant(float("nan"))}, "`kl_schedule` gave nan"),
        ({"lr_schedule": bl.schedules.constant(-0.1)}, r"`lr_schedule` gave -0\.1"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    model = small()
    before = state(model)
    options = {"likelihood": CLASSES, "epochs": 2, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        bl.fit(model, (X, Y), **options)
    assert equal(model, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl_schedule": 0.3}, r"`kl_schedule` must be a schedule, got 0\.3: pass e\.g\. bl\.schedules\.constant"),
        ({"lr_schedule": "cosine"}, "`lr_schedule` must be a schedule, got 'cosine'"),
        ({"likelihood": "categorical"}, r"`likelihood` must be a likelihood, got 'categorical': .*bl\.Categorical\(\)"),
        ({"likelihood": bl.Categorical}, "`likelihood` must be a likelihood, got <class"),
    ],
)
def test_options_of_another_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        bl.fit(small(), (X, Y), **({"likelihood": CLASSES, "epochs": 1} | options))


def test_a_network_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="`model` has no parameters that require gradients"):
        bl.fit(nn.Identity(), (X, Y), likelihood=CLASSES, epochs=1, seed=0)


def _normalised() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize(
    "fit",
    [
        lambda model, data, **options: bl.fit(model, data, **options),
        lambda model, data, **options: fit_many([model], data, **options),
    ],
    ids=["fit", "fit_many"],
)
def test_a_last_batch_of_one_row_is_explained(fit: Any) -> None:
    data = torch.randn(9, 3), torch.zeros(9, dtype=torch.long)
    with pytest.raises(ValueError, match="cannot normalise a batch of one row: choose another `batch_size`"):
        fit(_normalised(), data, likelihood=bl.Categorical(), epochs=1, batch_size=4)
    fit(_normalised(), data, likelihood=bl.Categorical(), epochs=1, batch_size=5)
