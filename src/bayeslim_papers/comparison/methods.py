"""The methods of the comparison: each trains one network per job and says what it predicts by."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

import bayeslim as bl
from bayeslim.baselines import keep_dropout_, laplace
from bayeslim.likelihoods import Categorical, Gaussian, likelihood_of, remember_likelihood_
from bayeslim.predictive import Snapshots
from bayeslim.predictive.sample import Method as Prediction
from bayeslim.runtime.seeds import derived_seed
from bayeslim.training.step import Stepper
from bayeslim_papers.samplers.cycles import Masks

if TYPE_CHECKING:
    from bayeslim_papers.comparison.command import Comparison
from bayeslim_papers.comparison.data import likelihood_for
from bayeslim_papers.comparison.training import Job, by_sampler, cycles_of, network, sampler_for, train_side_by_side

__all__ = ["METHODS", "Method", "Outcome"]


class Outcome(NamedTuple):
    """What a method gives."""

    whole: nn.Module | Snapshots
    """All it knows: the posterior, members or snapshots. It remembers its likelihood."""
    single: nn.Module
    """One plain network: the means that pruning leaves, or the last member or snapshot."""


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    train: Callable[[Comparison, Sequence[Job]], list[Outcome | None]]
    """One outcome per job, None where training diverged."""
    knob: str
    """The hyper-parameter that is chosen."""
    grid: tuple[float, ...]
    fresh: Callable[[Comparison, Job], nn.Module] = lambda config, job: bl.collapse_(network(config, job))
    """The network before training."""
    copies: Callable[[Comparison], int] | None = None
    """How many networks it predicts by, where these are several."""
    sampler: str | None = None
    networks: Callable[[Comparison], int] = lambda config: 1
    """How many are trained for one outcome."""
    predict: Prediction = "sample"

    def untrained(self, config: Comparison, job: Job) -> nn.Module | Snapshots:
        """Something that takes as long to predict as what is trained."""
        model = self.fresh(config, job)
        return Snapshots(model, [dict(model.state_dict())] * self.copies(config)) if self.copies else model

    def step(self, config: Comparison, job: Job) -> Callable[[], None]:
        """One step of training one network on one batch, for timing."""
        model = self.fresh(config, job)
        likelihood = likelihood_for(job.data).to(job.data[0].device)
        groups = bl.param_groups(nn.ModuleList([model, likelihood]), weight_decay=None)
        pruner = cycles_of(config).pruner(model, Masks(config.sparsity)) if self.sampler == "dfp" else None
        if self.sampler:
            optimizer = sampler_for(job, self.sampler, pruner)(groups)
        else:
            decay = 1 / len(job.data[0])  # that of the groups which set none: plain weights
            optimizer = torch.optim.Adam(groups, config.lr, weight_decay=decay, fused=True)
        stepper = Stepper(model, likelihood, optimizer, len(job.data[0]))
        batch = (job.data[0][: config.batch_size], job.data[1][: config.batch_size])

        def step() -> None:
            stepper.step([batch], 1.0, 1.0)
            stepper.seen.clear()

        return step


def maximum_a_posteriori(config: Comparison, jobs: Sequence[Job]) -> list[nn.Module]:
    """Plain networks under the prior N(0, 1 / value).

    A mean-field posterior that is used at its mean: the KL to N(0, 1), times `value`, then is `value |w|^2 / 2` and a
    term of the scales alone, which nothing else depends on.
    """
    models = [network(config, job, estimator=bl.mean_only) for job in jobs]
    train_side_by_side(config, models, jobs, [job.value for job in jobs])
    return [bl.collapse_(model) for model in models]


def map_estimate(config: Comparison, jobs: Sequence[Job]) -> list[Outcome | None]:
    """One network."""
    return [Outcome(model, model) for model in maximum_a_posteriori(config, jobs)]


def ensemble(config: Comparison, jobs: Sequence[Job]) -> list[Outcome | None]:
    """Independent networks; for regression the mean of their noise variances stands for all."""
    own = [job._replace(seed=derived_seed(job.seed, member)) for job in jobs for member in range(config.members)]
    models = maximum_a_posteriori(config, own)
    groups = (models[start : start + config.members] for start in range(0, len(models), config.members))
    return [Outcome(_joined(group), group[-1]) for group in groups]


def _joined(models: Sequence[nn.Module]) -> Snapshots:
    model = copy.deepcopy(models[-1])
    noises = [likelihood.log_noise for m in models if isinstance(likelihood := likelihood_of(m), Gaussian)]
    if noises:
        variance = torch.stack(noises).mul(2).exp().mean().item()
        remember_likelihood_(model, Gaussian(math.sqrt(variance)).to(noises[0].device))
    return Snapshots(model, [dict(one.state_dict()) for one in models])


def mc_dropout(config: Comparison, jobs: Sequence[Job]) -> list[Outcome | None]:
    """Dropout of the rate `value` after every hidden layer, kept random; prior N(0, 1)."""
    found: dict[int, Outcome] = {}
    for rate in dict.fromkeys(job.value for job in jobs):  # one stack has one rate
        chosen = {index: job for index, job in enumerate(jobs) if job.value == rate}
        models = [_with_dropout(network(config, job, estimator=bl.mean_only), rate) for job in chosen.values()]
        train_side_by_side(config, models, list(chosen.values()), [1.0] * len(chosen))
        for index, model in zip(chosen, models, strict=True):
            plain = bl.collapse_(model)
            found[index] = Outcome(keep_dropout_(copy.deepcopy(plain)), plain)
    return [found[index] for index in range(len(jobs))]


def _with_dropout(model: nn.Sequential, rate: float) -> nn.Sequential:
    found: list[nn.Module] = []
    for module in model:
        found += [module, nn.Dropout(rate)] if isinstance(module, nn.ReLU) else [module]
    return nn.Sequential(*found)


def by_laplace(config: Comparison, jobs: Sequence[Job]) -> list[Outcome | None]:
    """Kronecker-factored Laplace around the maximum, under the same prior."""
    if find_spec("laplace") is None:
        raise ImportError("laplace-torch is not installed")
    found: list[Outcome | None] = []
    for model, job in zip(maximum_a_posteriori(config, jobs), jobs, strict=True):
        likelihood = likelihood_of(model)
        assert isinstance(likelihood, Categorical | Gaussian)
        options: dict[str, Any] = {"prior_std": job.value**-0.5, "samples": config.samples, "seed": job.seed}
        found.append(Outcome(laplace(model, *job.data, likelihood=likelihood, **options), model))
    return found


def variational(config: Comparison, jobs: Sequence[Job], name: str) -> list[Outcome | None]:
    """A method of `bl.METHODS`; the single network is what pruning at log alpha > 3 leaves of the means."""
    models = [network(config, job, name) for job in jobs]
    train_side_by_side(config, models, jobs, [job.value for job in jobs])
    found: list[Outcome | None] = []
    for model in models:
        single = copy.deepcopy(model)
        bl.prune_(single, allow_empty=True)
        found.append(Outcome(model, bl.collapse_(single)))
    return found


def sampled(config: Comparison, jobs: Sequence[Job], kind: str) -> list[Outcome | None]:
    """A sampler's snapshots; one network after the other."""
    snapshots = [by_sampler(config, job, kind) for job in jobs]
    return [None if found is None else Outcome(found, found.model) for found in snapshots]


def _dropping(config: Comparison, job: Job) -> nn.Module:
    return keep_dropout_(bl.collapse_(_with_dropout(network(config, job), 0.1)))


def _of_a_cycle(config: Comparison) -> int:
    return min(config.per_cycle, config.epochs // config.cycles)


PRECISION = ("prior precision", (0.1, 1.0))
KL = ("KL weight", (0.1, 1.0))
RATE = "learning rate"

METHODS: dict[str, Method] = {
    "map": Method(map_estimate, *PRECISION),
    "mc-dropout": Method(mc_dropout, "dropout rate", (0.05, 0.2), _dropping),
    "ensemble": Method(ensemble, *PRECISION, copies=lambda config: config.members, networks=lambda c: c.members),
    "laplace": Method(by_laplace, *PRECISION, copies=lambda config: config.samples),
    **{
        name: Method(
            functools.partial(variational, name=name),
            *KL,
            functools.partial(network, method=name),
            predict="moments" if name == "vdp" else "sample",
        )
        for name in bl.METHODS
    },
    **{
        kind: Method(functools.partial(sampled, kind=kind), RATE, grid, copies=copies, sampler=kind)
        for kind, grid, copies in (
            ("cvadam", (0.1, 0.3), lambda config: config.cycles * _of_a_cycle(config)),
            ("sghmc", (0.01, 0.03), lambda config: config.cycles * _of_a_cycle(config)),
            ("dfp", (0.1, 0.3), _of_a_cycle),
        )
    },
}
"""Method by name."""
