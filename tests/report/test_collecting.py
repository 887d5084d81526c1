"""The numbers of a report against direct evaluation."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.report.conftest import SAMPLES, Case
from torch import nn

import bayeslim as bl
from bayeslim.masks import mask_of
from bayeslim.pruning.prune import bayes_layers
from bayeslim.report import Names, collect


def predictions(case: Case) -> list[bl.Prediction]:
    """The test predictions batch by batch, as `bl.evaluate` makes them."""
    return [
        bl.predict(case.model, x, samples=SAMPLES, keep_samples=True, batch_size=len(x), seed=index)
        for index, x in enumerate(case.test[0].split(1024))
    ]


def test_scores_are_those_of_evaluate(moons: Case, pictures: Case) -> None:
    assert len(moons.test[0]) > 1024  # more than one batch
    for case in (moons, pictures):
        assert case.content.scores == bl.evaluate(case.model, case.test, samples=SAMPLES)


def test_regression_scores_are_in_the_targets_unit(curve: Case) -> None:
    direct = bl.evaluate(curve.model, curve.test, samples=SAMPLES)
    assert curve.content.scores["rmse"] == pytest.approx(20 * direct["rmse"])
    assert curve.content.scores["nll"] == pytest.approx(direct["nll"] + math.log(20))
    assert curve.content.scores["coverage95"] == direct["coverage95"]


def test_reliability_bins(moons: Case) -> None:
    mean = torch.cat([part.mean for part in predictions(moons)]).numpy()
    confidence, right = mean.max(1), mean.argmax(1) == moons.test[1].numpy()
    place = np.clip(np.ceil(confidence.astype(np.float64) * 15).astype(int) - 1, 0, 14)
    found = moons.content.reliability
    assert found is not None
    kept = [index for index in range(15) if (place == index).any()]
    assert found.count == [int((place == index).sum()) for index in kept]
    assert found.accuracy == pytest.approx([right[place == index].mean() for index in kept])
    assert found.confidence == pytest.approx([confidence[place == index].mean() for index in kept])


def test_entropy_histograms(pictures: Case) -> None:
    (found,) = predictions(pictures)
    entropies, right = found.entropy.numpy(), (found.classes == pictures.test[1]).numpy()
    strange = bl.predict(pictures.model, pictures.validation[0], samples=SAMPLES, seed=0).entropy.numpy()
    shown = pictures.content.entropies
    assert shown is not None and set(shown.groups) == {"right", "wrong", "unfamiliar"}
    assert shown.edges[0] == 0 and shown.edges[-1] == pytest.approx(math.log(12))
    for name, values in (("right", entropies[right]), ("wrong", entropies[~right]), ("unfamiliar", strange)):
        assert shown.groups[name] == np.histogram(values, 20, (0, math.log(12)))[0].tolist()
    pairs = (strange[:, None] > entropies) + 0.5 * (strange[:, None] == entropies)
    assert shown.auroc == pytest.approx(pairs.mean())


def test_curve_points_are_those_of_pruned_copies(moons: Case) -> None:
    pruning = moons.content.pruning
    assert pruning is not None and pruning.data == "validation data"
    assert pruning.unpruned == bl.evaluate(moons.model, moons.validation, samples=20)
    assert pruning.weights == 2 * 12 + 12 * 12 + 12 * 2
    biases = 12 + 12 + 2
    header = bl.footprint(moons.model).mean_bytes - 4 * (pruning.weights + biases)
    for point in pruning.points:
        pruned = copy.deepcopy(moons.model)
        bl.prune_(pruned, threshold=point.threshold)
        left = sum(int(mask_of(layer.weight).sum()) for layer in bayes_layers(pruned).values())
        assert point.weights == left
        assert point.bytes == header + 4 * (left + biases)
        assert point.scores == bl.evaluate(pruned, moons.validation, samples=20)
        assert point.random.keys() == point.scores.keys()
    assert [point.sparsity for point in pruning.points] == sorted(point.sparsity for point in pruning.points)


def test_chosen_point_is_the_recommended_one_and_judged_on_test_data(moons: Case) -> None:
    pruning = moons.content.pruning
    assert pruning is not None
    chosen = pruning.points[pruning.chosen]
    assert chosen.threshold == bl.prune_curve(moons.model, moons.validation).recommended
    small = copy.deepcopy(moons.model)
    bl.prune_(small, threshold=chosen.threshold)
    small = bl.compact(small, moons.test[0][:1])
    assert pruning.test == bl.evaluate(small, moons.test, samples=SAMPLES)
    costs = {cost.label: (cost.before, cost.after) for cost in moons.content.costs}
    before, after = bl.footprint(moons.model), bl.footprint(small)
    assert costs["weights that are not zero"] == (before.nonzero, after.nonzero)
    assert costs["Bayesian file, KiB"] == (before.bayesian_bytes / 1024, after.bayesian_bytes / 1024)


def test_a_given_threshold_is_the_chosen_one(moons: Case) -> None:
    content = collect(moons.model, moons.train, moons.test, threshold=1.2345, samples=2)
    assert content.pruning is not None and content.pruning.data == "training data"
    assert content.pruning.points[content.pruning.chosen].threshold == 1.2345


def test_draws_use_disjoint_samples(moons: Case, curve: Case) -> None:
    for case, scale in ((moons, 1.0), (curve, 20.0)):
        draws = case.content.draws
        assert draws is not None and draws.counts == [1, 2]  # ten repetitions of 5 would need 50
        samples = [part.samples for part in predictions(case)]
        kept = torch.cat([part for part in samples if part is not None], 1)
        for count, errors in zip(draws.counts, draws.errors, strict=True):
            for repetition, error in enumerate(errors):
                mean = kept[repetition * count : (repetition + 1) * count].mean(0)
                if draws.score == "error":
                    direct = (mean.argmax(1) != case.test[1]).double().mean().item()
                else:
                    direct = scale * (mean - case.test[1]).double().square().mean().sqrt().item()
                assert error == pytest.approx(direct, rel=1e-5)


def test_coverage_is_that_of_quantile_intervals(curve: Case) -> None:
    (found,) = predictions(curve)
    coverage = curve.content.coverage
    assert coverage is not None and coverage.levels[-1] == 0.99
    for level, inside in zip(coverage.levels, coverage.inside, strict=True):
        assert inside == pytest.approx(bl.metrics.interval_coverage(*found.interval(level), curve.test[1]), abs=1e-9)


def test_observed_and_band_are_in_the_readers_unit(curve: Case) -> None:
    (found,) = predictions(curve)
    observed, band = curve.content.observed, curve.content.band
    assert observed is not None and band is not None
    assert observed.predicted == pytest.approx((20 * found.mean[:, 0] + 100).tolist(), rel=1e-5)
    assert observed.observed == pytest.approx((20 * curve.test[1][:, 0] + 100).tolist(), rel=1e-5)
    assert observed.lower == pytest.approx((20 * found.interval(0.95)[0][:, 0] + 100).tolist(), rel=1e-5)
    x = torch.tensor(band.x)[:, None]
    assert x.diff(dim=0).min() > 0 and x[0] < 10 + 5 * curve.train[0].min() and x[-1] > 10 + 5 * curve.train[0].max()
    direct = bl.predict(
        curve.model, (x - 10) / 5, samples=SAMPLES, estimator=bl.weight_sample, keep_samples=True, seed=0
    )
    assert direct.samples is not None
    assert band.mean == pytest.approx((20 * direct.mean[:, 0] + 100).tolist(), abs=0.01)
    assert band.upper == pytest.approx((20 * direct.interval(0.95)[1][:, 0] + 100).tolist(), abs=0.01)
    model_lower = np.quantile(direct.samples[:, :, 0].numpy(), 0.025, axis=0)
    assert band.model_lower == pytest.approx(20 * model_lower + 100, abs=0.01)
    expected = [(10 + 5 * a, 100 + 20 * b) for a, b in zip(*(part[:, 0].tolist() for part in curve.train), strict=True)]
    assert np.asarray(band.points) == pytest.approx(np.asarray(expected), rel=1e-5)


def test_boundary_of_mean_weights(moons: Case) -> None:
    boundary = moons.content.boundary
    assert boundary is not None and boundary.averaged.shape == boundary.single.shape == (72, 72, 2)
    left, right, bottom, top = boundary.extent
    row, column = 10, 50
    point = torch.tensor([[left + (right - left) * column / 71, bottom + (top - bottom) * row / 71]])
    direct = bl.predict(moons.model, point, method="mean").mean[0]
    assert boundary.single[row, column] == pytest.approx(direct.tolist(), abs=1e-4)
    assert boundary.averaged.sum(-1) == pytest.approx(np.ones((72, 72)))


def test_layers_hold_spectra_and_averaged_deviations(curve: Case) -> None:
    spectra = bl.analysis.named_spectra(curve.model)
    assert curve.content.layers.keys() == spectra.keys()
    for name, layer in curve.content.layers.items():
        assert layer.scale == pytest.approx(spectra[name].scale[:20].tolist())
        assert layer.mean == pytest.approx(spectra[name].mean[:20].tolist())
    wide = bl.mlp([128, 3], method="graves")
    (shown,) = collect(wide, *2 * [(torch.randn(20, 128), torch.arange(20) % 3)], samples=2,
                       likelihood=bl.Categorical()).layers.values()  # fmt: skip
    direct = bayes_layers(wide)["0"].weight.variance().sqrt().detach().double()
    assert shown.deviations == pytest.approx(direct.view(3, 64, 2).mean(2).numpy())


def test_training_curves(moons: Case) -> None:
    training = moons.content.training
    assert training is not None and training.epochs == list(range(1, 26))
    for name in ("energy", "nll", "kl", "beta", "lr", "validation_nll"):
        assert training.series[name] == moons.history[name]
    assert training.sparsity["2"] == [record["2"] for record in moons.history["sparsity"]]


def test_gallery_holds_the_extremes(pictures: Case, curve: Case) -> None:
    (found,) = predictions(pictures)
    order = found.entropy.sort().values
    assert [example.doubt for example in pictures.content.certain] == pytest.approx(order[:6].tolist())
    assert [example.doubt for example in pictures.content.doubtful] == pytest.approx(order.flip(0)[:6].tolist())
    most = int(found.entropy.argmax())
    example = pictures.content.doubtful[0]
    assert example.picture is not None and example.picture.shape == (4, 4, 3)
    assert example.truth == str(int(pictures.test[1][most])) and example.said == str(int(found.classes[most]))
    assert example.right == (example.truth == example.said)
    top = found.mean[most].topk(5)  # of twelve classes only the likeliest are listed
    assert {name for name, _, _ in example.bars} == {str(index) for index in top.indices.tolist()}
    (values,) = predictions(curve)
    least_sure = curve.content.doubtful[0]
    assert least_sure.doubt == pytest.approx(20 * values.std.max().item(), rel=1e-5)
    assert least_sure.cells[0][0] == "day" and not least_sure.bars


def test_flat_images_are_shown_as_pictures(pictures: Case) -> None:
    train, test = ((x.flatten(1), y) for x, y in (pictures.train, pictures.test))
    content = collect(pictures.model, train, test, names=Names(image_shape=(1, 4, 4)), samples=SAMPLES)
    assert content.scores == pictures.content.scores and content.features == []
    for flat, example in zip(content.certain, pictures.content.certain, strict=True):
        assert flat.picture is not None and (flat.picture == example.picture).all()


def test_network_is_left_alone_and_content_repeats(pictures: Case) -> None:
    model = copy.deepcopy(pictures.model).train()
    before = copy.deepcopy(model.state_dict())
    again = collect(model, pictures.train, pictures.test, samples=SAMPLES)
    assert again.scores == pictures.content.scores and again.pruning == pictures.content.pruning
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_plain_network_has_no_pruning(moons: Case) -> None:
    plain = nn.Linear(2, 2)
    content = collect(plain, moons.train, moons.test, likelihood=bl.Categorical(), samples=1)
    assert content.pruning is None and content.sparsity is None and not content.layers and not content.costs


def test_matrix_normal_posterior_cannot_be_pruned(moons: Case) -> None:
    model = bl.bayesianize_(nn.Sequential(nn.Linear(2, 2)), posterior=bl.posteriors.MatrixNormal)
    content = collect(model, moons.train, moons.test, likelihood=bl.Categorical(), samples=2)
    assert content.pruning is None and set(content.layers) == {"0"}


def test_one_yes_no_output_counts_as_two_classes(moons: Case) -> None:
    model = bl.mlp([2, 8, 1], method="graves")
    train, test = ((x[:200], y[:200].float()) for x, y in (moons.train, moons.test))
    bl.fit(model, train, likelihood=bl.Bernoulli(), epochs=10, lr=2e-2, seed=0, progress=False)
    content = collect(model, train, test, samples=20, names=Names(classes=("no", "yes")))
    assert content.classes == ["no", "yes"]
    assert content.reliability is not None and sum(content.reliability.count) == 200
    right = sum(a * n for a, n in zip(content.reliability.accuracy, content.reliability.count, strict=True)) / 200
    assert right == pytest.approx(content.scores["accuracy"])
    assert sum(part for _, part, _ in content.certain[0].bars) == pytest.approx(1)


def test_wrong_number_of_names(moons: Case) -> None:
    with pytest.raises(ValueError, match="`names` has 3 classes, the network 2: they must agree"):
        collect(moons.model, moons.train, moons.test, names=Names(classes=("a", "b", "c")), samples=2)


def test_several_yes_no_outputs_are_refused() -> None:
    data = (torch.randn(20, 3), torch.ones(20, 2))
    with pytest.raises(ValueError, match="answers 2 yes/no questions at once"):
        collect(bl.mlp([3, 2]), data, data, likelihood=bl.Bernoulli(), samples=2)
