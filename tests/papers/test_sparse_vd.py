"""The Sparse VD experiment on made-up images, at a tiny size."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.estimators import clipped_reparam
from bayeslim.priors import ARD, GammaARD, LogUniform, Prior
from bayeslim.pruning.prune import bayes_layers
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress
from bayeslim.training.stack import Objective, Stack
from bayeslim_papers.experiment import Log, run
from bayeslim_papers.sparse_vd import command, training, views
from bayeslim_papers.sparse_vd import finish as finishing
from bayeslim_papers.sparse_vd.command import SparseVd
from bayeslim_papers.sparse_vd.finish import SoftLabels, finished, soft_targets, tune_
from bayeslim_papers.sparse_vd.recipes import (
    FINISHES,
    GOALS,
    NETWORKS,
    PAPER,
    RECIPES,
    USUAL,
    Finish,
    Recipe,
    Tempered,
    bayesian_,
    fresh,
)
from bayeslim_papers.sparse_vd.results import table
from bayeslim_papers.sparse_vd.training import load_images, train_lenets, train_vgg, whitened
from bayeslim_papers.sparse_vd.views import Data

CONFIG = SparseVd(
    recipes=("molchanov", "ard-4", "ard-4-first"), seeds=(3,), epochs=4, batch_size=20, tune_epochs=3, samples=3
)
WEIGHTS = 266_200


def images(channels: int = 1, side: int = 28, counts: tuple[int, int] = (200, 100)) -> tuple[Data, Data]:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, channels, side, side, generator=generator)

    def part(count: int) -> Data:
        y = torch.arange(count) % 10
        return patterns[y] + 0.3 * torch.randn(count, channels, side, side, generator=generator), y

    return part(counts[0]), part(counts[1])


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return run(CONFIG, images())


def trained(network: str = "lenet-300-100", recipe: str = "ard") -> nn.Module:
    with seeded(0):
        return bayesian_(fresh(NETWORKS[network](), "he"), RECIPES[network][recipe])


# recipes


@pytest.mark.parametrize("prior", [ARD(), LogUniform(), GammaARD(0.51, 1e-8)])
def test_tempered_prior_scales_the_kl(prior: Prior) -> None:
    mean, log_std = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64, requires_grad=True)
    tempered = Tempered(prior, 2.5)
    assert torch.allclose(tempered.kl(mean, (2 * log_std).exp()), 2.5 * prior.kl(mean, (2 * log_std).exp()))
    assert torch.allclose(tempered.total(mean, log_std), 2.5 * prior.kl(mean, (2 * log_std).exp()).sum())
    slopes = [torch.autograd.grad(p.total(mean, log_std), log_std)[0] for p in (tempered, prior)]
    assert torch.allclose(slopes[0], 2.5 * slopes[1])
    assert tempered.config() == {"prior": prior, "factor": 2.5}


def test_tempered_prior_refuses_negative_factors() -> None:
    with pytest.raises(ValueError, match="`factor` must be finite and not negative, got -1"):
        Tempered(ARD(), -1)


def test_factors_weigh_the_layers() -> None:
    with seeded(0):
        plain = fresh(NETWORKS["lenet-300-100"](), "he")
    kls = bl.named_kl(bayesian_(copy.deepcopy(plain), Recipe("ard")))
    weighted = bl.named_kl(bayesian_(plain, Recipe("ard", factors=(1.5, 1, 0.25))))
    for (name, kl), factor in zip(kls.items(), (1.5, 1, 0.25), strict=True):
        assert weighted[name].item() == pytest.approx(factor * kl.item(), rel=1e-6)


def test_factors_must_fit_the_network() -> None:
    with pytest.raises(ValueError, match="`factors` has 2 values for 3 layers"):
        bayesian_(NETWORKS["lenet-300-100"](), Recipe("ard", factors=(1, 2)))


def test_phases_shrink_with_the_epochs() -> None:
    recipe = Recipe("ard", warmup=5, ramp=280, epochs=300, pretrain=150)
    short = recipe.shortened(30)
    assert (short.warmup, short.ramp, short.pretrain, short.epochs) == (1, 28, 15, 30)
    assert recipe.shortened(None) is recipe


@pytest.mark.parametrize("network", RECIPES)
def test_every_recipe_builds_its_network(network: str) -> None:
    for name, recipe in RECIPES[network].items():
        plain = bl.models.vgg_like(width=1 / 64) if network == "vgg" else NETWORKS[network]()
        model = bayesian_(plain, recipe)
        layers = [module for module in model.modules() if isinstance(module, bl.layers.BayesLayer)]
        assert all(isinstance(layer.prior, Tempered) for layer in layers), name
        assert all(p["finish"] in FINISHES and r in RECIPES[network] for r, p in PAPER[network].items())
    assert set(GOALS) <= set(RECIPES)


@pytest.mark.parametrize("prior", ["log-uniform", "ard", "gamma"])
def test_layers_are_weighed_in_a_stack(prior: Any) -> None:
    factors = ((1, 2), (0.5, 3), ())
    with seeded(0):
        plain = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)) for _ in factors]
        models = [bayesian_(net, Recipe(prior, factors=own)) for net, own in zip(plain, factors, strict=True)]
    x, y, beta = torch.randn(3, 7, 6), torch.randint(4, (3, 7)), torch.tensor([1.0, 2.0, 0.5])
    members = [Objective(model, bl.Categorical(), num_data=10) for model in models]
    alone = [bl.kl(model).item() for model in models]
    found = Stack(members, vectorised=True)(x, y, beta)
    assert found.kl.tolist() == pytest.approx(alone, rel=1e-5)
    assert torch.allclose(found.loss, found.nll + beta * found.kl / 10)


def test_small_networks_are_tuned_as_a_stack() -> None:
    """On a CPU only small networks run vectorised, as all do on a GPU."""
    with seeded(0):
        models = [bayesian_(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), Recipe("ard")) for _ in range(2)]
        x, y = torch.randn(40, 6), torch.randint(4, (40,))
    for amount, model in zip((0.3, 0.6), models, strict=True):
        bl.prune_(model, bl.pruning.MAGNITUDE, amount=amount)
    dead = [layer.weight.mean() == 0 for model in models for layer in bayes_layers(model).values()]
    tune_(CONFIG, Finish(tune=1), models, [0, 1], (x, y))
    tune_(CONFIG, Finish(tune=2), models, [0, 1], (x, y), [torch.rand(40, 4).softmax(1) for _ in models])
    after = [layer.weight.mean() == 0 for model in models for layer in bayes_layers(model).values()]
    assert all(torch.equal(*pair) for pair in zip(dead, after, strict=True))


def test_gamma_bounds_the_scales() -> None:
    model = trained(recipe="gamma-0.51")
    posterior = next(module.weight for module in model.modules() if isinstance(module, bl.layers.BayesLayer))
    with torch.no_grad():
        next(p for name, p in posterior.named_parameters() if name == "log_scale").fill_(50.0)
    assert posterior.variance().max().item() <= math.exp(-8) * (1 + 1e-5)


def test_initial_weights() -> None:
    with seeded(0):
        he, official = (fresh(NETWORKS["lenet-5"](), init) for init in ("he", "official"))
    linear = "7.weight"  # 400 000 weights
    error = 5 / math.sqrt(2 * 400_000)  # five standard errors of an estimated deviation, relative
    assert he.get_parameter(linear).std().item() == pytest.approx(math.sqrt(2 / 800), rel=error)
    assert official.get_parameter(linear).std().item() == pytest.approx(0.01, rel=error)
    bound = math.sqrt(6 / ((20 + 50) * 25))
    convolution = official.get_parameter("3.weight").abs()
    assert 0.99 * bound < convolution.max().item() <= bound
    assert not any(p.any() for name, p in [*he.named_parameters(), *official.named_parameters()] if "bias" in name)


# images


def test_whitening_makes_pixels_uncorrelated() -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    x = (torch.randn(500, 12, generator=generator, dtype=torch.float64) @ mixing + 3).view(500, 3, 2, 2)
    white, other = whitened(x, x[:7], epsilon=0.0)
    assert torch.allclose(white.flatten(1).T.cov(correction=0), torch.eye(12, dtype=torch.float64), atol=1e-8)
    assert torch.allclose(other, white[:7])
    soft, _ = whitened(x, x, epsilon=0.5)
    variances = torch.linalg.eigvalsh(x.flatten(1).T.cov(correction=0))
    found = torch.linalg.eigvalsh(soft.flatten(1).T.cov(correction=0))
    assert torch.allclose(found, variances / (variances + 0.5))


def test_the_mean_image_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Data] = dict(zip(("train", "test"), images(), strict=True))

    def mnist(split: str, root: Path | None) -> Any:
        return SimpleNamespace(x=parts[split][0], y=parts[split][1])

    monkeypatch.setattr(bl.data, "mnist", mnist)
    (x, y), (x_test, y_test) = load_images("lenet-5", None, "cpu", (150, None))
    raw = parts["train"][0][:150]
    assert (len(y), len(y_test)) == (150, 100)
    assert torch.allclose(x, raw - raw.mean(0)) and torch.allclose(x_test, parts["test"][0] - raw.mean(0))


# finishing


def test_soft_labels() -> None:
    logits, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    p = torch.rand(6, 4).softmax(1)
    expected = -(p * (logits - logits.logsumexp(1, keepdim=True))).sum(1)
    assert torch.allclose(SoftLabels().nll(logits, p), expected)
    one_hot = nn.functional.one_hot(y, 4).float()
    assert torch.allclose(SoftLabels().nll(logits, one_hot), bl.Categorical().nll(logits, y))
    with pytest.raises(ValueError, match=r"`y` must be probabilities \(N, classes\), got torch.int64 \(6,\)"):
        SoftLabels().check_targets(y)


def test_soft_targets_are_half_label_half_prediction() -> None:
    train, _ = images()
    targets = soft_targets(trained(), train, samples=3)
    teacher = 2 * targets - nn.functional.one_hot(train[1], 10)
    assert targets.shape == (200, 10) and bool((teacher >= -1e-6).all())
    assert torch.allclose(teacher.sum(1), torch.ones(200), atol=1e-5)
    assert teacher.std() > 0


@pytest.mark.parametrize("distil", [False, True])
def test_tuning_keeps_pruned_weights_at_zero(distil: bool) -> None:
    train, test = images()
    models = [trained(), trained()]
    for amount, model in zip((0.8, 0.95), models, strict=True):
        bl.prune_(model, bl.pruning.MAGNITUDE, amount=amount)
    before = [copy.deepcopy(model) for model in models]
    soft = [soft_targets(model, train, 3) for model in models] if distil else None
    tune_(CONFIG, Finish(tune=1, lr=3e-3), models, [0, 1], train, soft)
    for old, new in zip(before, models, strict=True):
        for name, layer in bayes_layers(new).items():
            first = bayes_layers(old)[name].weight
            dead = first.mean() == 0
            assert bool(dead.any()) and not layer.weight.mean()[dead].any()
            assert not torch.equal(layer.weight.mean()[~dead], first.mean()[~dead])
            assert torch.equal(layer.weight.variance(), first.variance())
        scores = [bl.evaluate(model, test, samples=0, likelihood=bl.Categorical())["accuracy"] for model in (old, new)]
        assert scores[1] > scores[0] and scores[1] > 0.9


def test_one_failure_does_not_end_the_others() -> None:
    models = [trained(), trained()]
    with torch.no_grad():
        models[0].get_parameter("5.weight.loc").fill_(1e-9)
    config = dataclasses.replace(CONFIG, finishes=("magnitude", "tuned"), tune_epochs=1)
    lost, whole = finished(config, models, [0, 1], images())
    assert "'5' would lose all its 1000 weights" in lost["magnitude"]["failed"]
    assert "failed" in lost["tuned"] and "error" in lost["trained"]
    assert whole["magnitude"]["compression"] > 1 and "error" in whole["tuned"]


# the record


def test_the_record(record: dict[str, Any]) -> None:
    assert record == json.loads(json.dumps(record))
    assert {"config", "settings", "recipes", "device", "torch", "paper", "goal", "tolerance", "runs"} < set(record)
    assert record["recipes"]["ard-4"]["ramp"] == 4 and record["recipes"]["ard-4"]["epochs"] == 4
    assert record["settings"]["images"] == [200, 100]
    assert {one["recipe"]: one["networks_at_once"] for one in record["runs"]} == {
        "molchanov": 1,
        "ard-4": 2,
        "ard-4-first": 2,
    }
    for one in record["runs"]:
        for finish in USUAL:
            if "failed" in one[finish]:
                continue
            result = one[finish]
            assert result["dense"]["weights"] == WEIGHTS >= result["compacted"]["weights"]
            assert result["compression"] == pytest.approx(WEIGHTS / result["dense"]["nonzero"])
            parts = zip((235_200, 30_000, 1_000), result["sparsity"].values(), strict=True)
            assert sum(size * (1 - part) for size, part in parts) == pytest.approx(result["dense"]["nonzero"])


def test_networks_learn(record: dict[str, Any]) -> None:
    errors = {one["recipe"]: one["tuned"]["error"] for one in record["runs"]}
    assert errors["ard-4"] < 20 and errors["ard-4-first"] < 20, errors


def test_results_are_saved_and_not_computed_again(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIG, recipes=("ard-4", "svd-4"), finishes=("pruned",), epochs=1)
    saved: list[int] = []
    first = run(config, images(), save=lambda found: saved.append(len(found["runs"])))
    assert saved == [1, 2]
    asked: list[tuple[int, ...]] = []

    def remembered(*args: Any, **options: Any) -> list[nn.Module]:
        asked.append(tuple(args[2]))
        return train_lenets(*args, **options)

    monkeypatch.setattr(command, "train_lenets", remembered)
    more = dataclasses.replace(config, recipes=("ard-4",), seeds=(3, 5))
    second = run(more, images(), earlier=json.loads(json.dumps(first)))
    assert asked == [(5,)]
    assert second["runs"][:2] == first["runs"]
    assert [(one["recipe"], one["seed"]) for one in second["runs"]] == [("ard-4", 3), ("svd-4", 3), ("ard-4", 5)]
    assert second["config"]["seeds"] == [3, 5] and list(second["recipes"]) == ["ard-4", "svd-4"]
    with pytest.raises(ValueError, match="`epochs` is 4 in one and 1 in another"):
        run(config, images(), earlier=record)


def test_stacks_hold_what_fits_together() -> None:
    config = SparseVd(recipes=("ard", "ard-3", "ard-4", "ard-4-clip", "svd"), seeds=(0, 1), together=3)
    left = [((name,), seed) for seed in config.seeds for name in config.recipes]
    found = config.stacks([member for member in left if member != (("ard-3",), 0)])
    assert [[(names[0], seed) for names, seed in part] for part in found] == [
        [("ard", 0), ("ard", 1)],
        [("ard-3", 1), ("ard-4", 0), ("ard-4", 1)],
        [("ard-4-clip", 0), ("ard-4-clip", 1)],
        [("svd", 0), ("svd", 1)],
    ]
    assert [len(part) for part in dataclasses.replace(config, together=2).stacks(left)] == [2, 2, 2, 2, 2]


def test_merging_counts_a_run_once(record: dict[str, Any]) -> None:
    other = record | {"runs": [record["runs"][0] | {"seed": 9}, record["runs"][1]]}
    assert [one["seed"] for one in SparseVd.merged([record, other])["runs"]] == [3, 3, 3, 9]


def test_records_from_before_a_setting_can_be_joined(record: dict[str, Any]) -> None:
    early = {name: {key: own[key] for key in own if key != "vary"} for name, own in record["recipes"].items()}
    assert SparseVd.merged([record | {"recipes": early}, record])["recipes"] == record["recipes"]
    varied = {name: own | {"vary": True} for name, own in record["recipes"].items()}
    with pytest.raises(ValueError, match="`molchanov` is .* in one and .* in another"):
        SparseVd.merged([record | {"recipes": early}, record | {"recipes": varied}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "lenet-9"}, "`network` has no 'lenet-9': choose from lenet-300-100, lenet-5, vgg"),
        ({"recipes": ("ard-7",)}, "`recipes` has no 'ard-7': choose from molchanov"),
        ({"finishes": ("shiny",)}, "`finishes` has no 'shiny': choose from pruned"),
        ({"network": "vgg", "recipes": ("p2-ard",)}, "`finishes` that tune are for the LeNets"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseVd(**options)


# the table


def result(error: float, compression: float) -> dict[str, Any]:
    sizes = {"weights": 100, "mean_bytes": 1000}, {"weights": 20, "mean_bytes": 500}
    scores = {"error": error, "sampled_error": error + 1, "compression": compression}
    return scores | {"sparsity": {"1": 0.5, "3": 0.25}, "dense": sizes[0], "compacted": sizes[1]}


def made(*pairs: tuple[float, float], recipe: str = "molchanov") -> dict[str, Any]:
    runs = [{"recipe": recipe, "seed": k, "trained": result(2, 1), "pruned": result(*p)} for k, p in enumerate(pairs)]
    paper = {"molchanov": {"source": "x", "finish": "pruned", "error": 1.92, "compression": 68}}
    goal = {"error": 1.6, "compression": 100}
    tolerance = {"error": 0.1, "compression": 0.1}
    return {"runs": runs, "finishes": {"pruned": {}}, "paper": paper, "goal": goal, "tolerance": tolerance}


def test_table_over_seeds() -> None:
    rows = table(made((2.0, 60), (2.02, 66))).splitlines()
    assert len({row.count("|") for row in rows[:4]}) == 1
    assert rows[3] == (
        "| molchanov | pruned | 2 | 2.01 ± 0.014 | 3.01 ± 0.014 | 63 ± 4.2 | 50.0-25.0 | 5 | 2 "
        "| 1.92 % at 68: reached |"
    )
    assert "not met" in rows[-1]


@pytest.mark.parametrize("pair", [(2.03, 80), (1.5, 61)])
def test_table_says_what_was_missed(pair: tuple[float, float]) -> None:
    assert "1.92 % at 68: missed" in table(made(pair))


@pytest.mark.parametrize(("pair", "met"), [((1.6, 100), True), ((1.61, 200), False), ((1.0, 99), False)])
def test_table_judges_the_goal(pair: tuple[float, float], met: bool) -> None:
    text = table(made(pair, recipe="ours"))
    assert ("met by ours (pruned, 1 seeds)" in text) == met and ("not met" in text) != met


def test_table_of_a_deep_network_has_the_range_of_its_layers() -> None:
    deep = result(1.0, 10.0) | {"sparsity": {str(layer): 0.1 * layer for layer in range(8)}}
    runs = [{"recipe": "p2-ard", "seed": 0, "pruned": deep, "trained": {"error": 1.0, "sampled_error": 1.0}}]
    record = {"runs": runs, "finishes": ["pruned"], "paper": {}, "goal": None, "tolerance": {}}
    assert "| 0.0 to 70.0 in 8 layers |" in table(record)


def test_table_names_failures() -> None:
    record = made((1.0, 100), (1.0, 100))
    record["runs"][0]["pruned"] = {"failed": "layer '5' is empty"}
    text = table(record)
    assert "- molchanov, pruned: layer '5' is empty" in text and "| molchanov | pruned | 1 |" in text


def test_table_of_a_run(record: dict[str, Any]) -> None:
    assert table(record).count("| ard-4 |") >= 5


def test_finishes_differ_in_epochs_rate_noise_and_images(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[Any, ...]] = []

    def remembered(models: Any, data: tuple[Tensor, Tensor], **options: Any) -> None:
        names = ("epochs", "pretrain_epochs", "lr", "kl_weight")
        taken.append((len(data[0]), data[1].dtype.is_floating_point, *(options[name] for name in names)))

    monkeypatch.setattr(finishing, "fit_many", remembered)
    names = ("tuned", "longer", "relaxed", "shifted", "harder-shifted-distilled")
    small, data = dataclasses.replace(CONFIG, finishes=names), images()
    models = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)
    finished(small, models, [0], data)
    count = len(data[0][0])
    assert taken == [
        (count, False, 3, 3, 3e-4, 0.0),
        (count, False, 15, 15, 1e-3, 0.0),
        (count, False, 15, 0, 3e-4, 1.0),
        (9 * count, False, 2, 2, 1e-3, 0.0),
        (9 * count, True, 2, 2, 1e-3, 0.0),
    ]


def test_shifted_images_are_those_of_a_moved_pattern() -> None:
    """Drawn by hand: a pattern inside a black frame, moved, then minus the mean image as before."""
    torch.manual_seed(0)
    pattern, mean = torch.rand(2, 3, 3) + 0.1, torch.rand(1, 7, 7)
    pattern[0, 0, 0] = pattern[1, 1, 1] = 0  # every pixel is black in some image
    drawn = torch.zeros(3, 1, 7, 7)
    drawn[:2, 0, 2:5, 2:5] = pattern
    found = views.shifted(drawn - mean).view(9, 3, 1, 7, 7)
    for (down, right), copies in zip(views.SHIFTS, found, strict=True):
        moved = torch.zeros(3, 1, 7, 7)
        moved[:2, 0, 2 + down : 5 + down, 2 + right : 5 + right] = pattern
        torch.testing.assert_close(copies, moved - mean)


def test_turned_images_are_turned_about_their_centre() -> None:
    """The centre of mass of a blob moves along its circle, and no ink is lost; the mean image stays."""
    size, offset = 28, torch.tensor([6.0, 2.0])  # right and down of the centre
    axis = torch.arange(size) - (size - 1) / 2
    blob = torch.exp(-((axis[:, None] - offset[1]) ** 2 + (axis - offset[0]) ** 2) / 4)
    mean = torch.rand(1, size, size)
    images = torch.stack([blob[None], torch.zeros(1, size, size)]) - mean
    found = views.turned(images).view(4, 2, 1, size, size) + mean
    torch.testing.assert_close(found[:, 1], torch.zeros(4, 1, size, size))
    for angle, image in zip(views.TURNS, found[:, 0, 0], strict=True):
        mass = image.sum()
        place = torch.stack([(image.sum(0) * axis).sum(), (image.sum(1) * axis).sum()]) / mass
        turn = torch.rad2deg(torch.atan2(offset[1], offset[0]) - torch.atan2(place[1], place[0]))
        assert turn.item() == pytest.approx(angle, abs=0.1) and place.norm().item() == pytest.approx(40**0.5, rel=0.01)
        assert mass.item() == pytest.approx(blob.sum().item(), rel=0.01)


def test_varied_training_takes_as_many_steps_and_counts_an_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    def remembered(models: Any, data: tuple[Tensor, Tensor], **options: Any) -> None:
        taken.update(options, data=data)

    monkeypatch.setattr(training, "fit_many", remembered)
    (x, y), _ = images()
    recipe = dataclasses.replace(RECIPES["lenet-300-100"]["ard-3-varied"], epochs=26, warmup=13, ramp=26)
    train_lenets("lenet-300-100", [recipe], [0], (x, y), 50)
    seen, labels = taken["data"]
    assert taken["epochs"] == 2  # of 13 views of every image
    torch.testing.assert_close(seen, torch.cat([views.shifted(x), views.turned(x)]))
    torch.testing.assert_close(labels.view(13, -1), y.expand(13, -1))
    assert taken["kl_weight"][0] / len(seen) == pytest.approx(3 / len(x))
    times = [Progress(step, len(seen) // 50, 2) for step in (0, len(seen) // 50)]
    assert [taken["kl_schedule"][0](now) for now in times] == [0.0, 0.0]
    assert taken["kl_schedule"][0](Progress(2, 1, 3)) == 0.5  # after one epoch of two, which are 26 of the images


def test_a_finish_may_prune_to_a_compression() -> None:
    data = images(counts=(60, 20))
    model = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)[0]
    config = dataclasses.replace(CONFIG, finishes=("101", "101-varied"), tune_epochs=1)
    found = finished(config, [model], [0], data)[0]
    assert [found[name]["compression"] for name in config.finishes] == pytest.approx([101, 101], rel=1e-3)
    assert found["101"]["nll"] != found["101-varied"]["nll"]


@pytest.mark.parametrize("finish", ["shifted", "varied"])
def test_tuning_on_other_views_learns(finish: str) -> None:
    data = images()
    model = train_lenets("lenet-300-100", [RECIPES["lenet-300-100"]["ard-4"].shortened(1)], [0], data[0], 50)[0]
    before = bl.evaluate(model, data[0], samples=0, likelihood=bl.Categorical())["nll"]
    tune_(
        dataclasses.replace(CONFIG, tune_epochs=9 if finish == "shifted" else 3),
        FINISHES[finish],
        [model],
        [0],
        data[0],
    )
    assert bl.evaluate(model, data[0], samples=0, likelihood=bl.Categorical())["nll"] < 0.8 * before


def test_the_official_recipe_clips() -> None:
    for network, clip in itertools.product(("lenet-300-100", "lenet-5"), (True, False)):
        recipe = RECIPES[network]["molchanov-clip" if clip else "molchanov"]
        model = bayesian_(fresh(NETWORKS[network](), recipe.init), recipe)
        estimators = {layer.estimator for layer in bayes_layers(model).values()}
        assert estimators == {clipped_reparam if clip else bl.local_reparam}


def test_kept_networks_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(CONFIG, recipes=("ard-4", "ard-5"), epochs=1, finishes=("pruned",))
    data = images(counts=(60, 20))
    first = run(small, data, log=Log(folder=tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"ard-4-3.safetensors", "ard-5-3.safetensors"}
    monkeypatch.setattr(training, "fit_many", lambda *args, **options: pytest.fail("trained again"))
    again = run(small, data, log=Log(folder=tmp_path))
    assert [one["pruned"] for one in again["runs"]] == [one["pruned"] for one in first["runs"]]
    with pytest.raises(ValueError, match="trained with another epochs, ramp: choose another folder"):
        run(dataclasses.replace(small, epochs=2), data, log=Log(folder=tmp_path))


# the command line, and VGG


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def few(network: str, root: Path | None, device: str, counts: Any) -> tuple[Data, Data]:
        assert counts == (500, 100)
        return images(counts=(40, 20))

    monkeypatch.setattr(command, "load_images", few)
    files = [tmp_path / f"{recipe}.json" for recipe in ("ard-4", "svd-4")]
    for file in [*files, files[1]]:  # the last time there is nothing left to do
        command.main(["--quick", "--recipes", file.stem, "--finishes", "pruned", "--out", str(file)])
    both = tmp_path / "both.json"
    command.main(["--merge", *map(str, files), "--out", str(both)])
    assert [one["recipe"] for one in json.loads(both.read_text())["runs"]] == ["ard-4", "svd-4"]
    shown = capsys.readouterr().out
    assert shown.count("svd-4 seed 0:") == 1 and "| svd-4 | pruned | 1 |" in shown


def test_vgg(tmp_path: Path) -> None:
    finishes = ("pruned", "magnitude")
    names = ("molchanov", "gamma-0.51")
    few: dict[str, Any] = {"epochs": 2, "batch_size": 10, "samples": 2}
    config = SparseVd(network="vgg", recipes=names, seeds=(0,), finishes=finishes, width=1 / 32, **few)
    record = run(config, images(3, 32, (20, 10)), log=Log(folder=tmp_path))
    assert [one["networks_at_once"] for one in record["runs"]] == [1, 1]
    weights = sum(p.numel() for p in bl.models.vgg_like(width=1 / 32).parameters() if p.ndim > 1)
    assert all(one["magnitude"]["dense"]["weights"] == weights for one in record["runs"])
    folders = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("checkpoint.safetensors")}
    assert folders == {"molchanov-0", "molchanov-0/dense", "gamma-0.51-0"}
    assert "| gamma-0.51 | magnitude | 1 |" in table(record)


def test_vgg_learns_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    train, test = images(3, 32, (60, 30))
    recipe = Recipe("ard", 1e-3, epochs=6, ramp=1, pretrain=2, log_variance=-15.0)
    options: dict[str, Any] = {"seed": 0, "data": train, "batch_size": 10, "width": 1 / 8}
    model = train_vgg(recipe, folder=tmp_path, **options)
    assert bl.evaluate(model, test, samples=0)["accuracy"] > 0.7
    again = train_vgg(recipe, folder=tmp_path, **options)  # all epochs are done
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


def test_no_weight_of_the_dense_network_is_lost() -> None:
    recipe = Recipe("ard", 0.0, epochs=1, ramp=0, pretrain=1, lr=0.0, log_variance=-40.0)
    train, _ = images(3, 32, (20, 10))
    model = train_vgg(recipe, 0, train, 10, 1 / 32)
    with seeded(0):
        dense: Tensor = fresh(bl.models.vgg_like(width=1 / 32), "he").get_parameter("0.weight")
    means = model.get_parameter("0.weight.loc")
    assert (means - dense).abs().max().item() < 0.01 and not torch.equal(means, dense)
