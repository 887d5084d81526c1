"""Train many networks side by side."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim import schedules
from bayeslim.checks.counts import check_counts
from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.estimators import mean_only
from bayeslim.likelihoods.base import Likelihood, likelihood_of, remember_likelihood_
from bayeslim.predictive.inputs import device_of
from bayeslim.pruning.sparsity import named_sparsity
from bayeslim.runtime.modes import check_trainable
from bayeslim.runtime.progress_bar import epoch_bar
from bayeslim.runtime.seeds import check_seed, derived_seed, seeded
from bayeslim.runtime.threads import TURN
from bayeslim.schedules import Progress, Schedule, check_value
from bayeslim.training.arguments import check_pretraining
from bayeslim.training.batches import make_batches
from bayeslim.training.elbo import KLScaling
from bayeslim.training.history import History
from bayeslim.training.interrupts import stop_between_steps
from bayeslim.training.modes import TrainingModes
from bayeslim.training.stack import Objective, StackStepper, check_alike
from bayeslim.using import using

__all__ = ["fit_many"]

ManyHook = Callable[[Sequence[nn.Module], Progress], None]


def fit_many(
    models: Sequence[nn.Module],
    data: Any,
    *,
    likelihood: Likelihood,
    epochs: int,
    batch_size: int = 128,
    lr: float | Sequence[float] = 1e-3,
    scale_lr: float | None = None,
    lr_schedule: Schedule | None = None,
    kl_weight: float | Sequence[float] = 1.0,
    kl_schedule: Schedule | Sequence[Schedule] | None = None,
    kl_scaling: KLScaling = "elbo",
    pretrain_epochs: int = 0,
    after_epoch: ManyHook | None = None,
    seeds: Sequence[int] | None = None,
    device: torch.device | str | None = None,
    compile: bool = False,
    progress: bool = True,
) -> list[History]:
    r"""Train networks of one architecture side by side, each as `bl.fit` would: ensembles and sweeps in one run.

    Network `k` minimises its own `mean NLL + kl_weight_k kl_schedule_k KL_k / num_data` by its own Adam. All take their
    steps together, as one vectorised pass (`torch.vmap`) and, on CUDA, one CUDA graph: small networks, which leave a
    GPU idle most of the time, then cost little more together than one of them alone. Large networks on a CPU, and those
    that vmap cannot follow (`nn.LSTM`), take each step one after the other, with the same result.

    Network `k` sees the batches that `bl.fit` shows it with `seed=seeds[k]`, the shorter last one included: without
    noise it ends with the same weights. Noise is independent between the networks, but drawn for all at once, so that
    it depends on who trains beside whom; a stack of one is `bl.fit` itself. Torch's global random state is left as it
    was. Convolutions become grouped ones, which some devices compute slowly.

    Args:
        models: the networks, trained in place, with initial weights of their own. Names, shapes and settings must
            agree; the values of all tensors, such as masks of pruned weights, may differ. Parts in evaluation mode stay
            in it as in `bl.fit`.
        data: (x, y) tensors or arrays; kept whole on the networks' device.
        likelihood: `p(y | f)`; each network gets a copy of its own, which it remembers for `bl.predict`.
        epochs: passes over the data.
        batch_size: examples per batch and network.
        lr: learning rate of Adam, one for all or one per network.
        scale_lr: another one for the posteriors' scales; None takes `lr`.
        lr_schedule: factor on every learning rate; default constant.
        kl_weight: factor on the KL, one for all or one per network.
        kl_schedule: weight of the KL over time, times `kl_weight`; one for all or one per network; default 1.
        kl_scaling: as in `bl.nelbo`.
        pretrain_epochs: first train the means alone, without noise or KL, as in `bl.fit`; all epochs, for networks that
            are pruned, is fine-tuning.
        after_epoch: called with the networks and the progress of the last step after every epoch; it may read them and
            change their values in place, not their structure.
        seeds: one per network; None draws them from torch's random state.
        device: move the networks there first.
        compile: compute losses with a KL by `torch.compile`: far fewer, larger kernels, after a start of half a minute.
        progress: show a progress bar on a terminal.

    Returns:
        One history per network, as `bl.fit` returns it. A network that diverges is warned of once and has energies
        that are not finite; the others go on.

    Raises:
        ValueError: if the networks differ in more than their values, or settings make no sense.
        FloatingPointError: if all networks have diverged.
        KeyboardInterrupt, SystemExit: on SIGINT and SIGTERM, after the step under way, whose weights the networks hold.

    Example:
        >>> models = [bl.mlp([784, 300, 100, 10], method="ard") for _ in range(4)]
        >>> histories = fit_many(models, (x, y), likelihood=bl.Categorical(), epochs=200, batch_size=100,
        ...                      kl_weight=[1.0, 2.0, 3.0, 6.0], seeds=range(4), device="cuda")
        >>> bl.evaluate(models[2], test)
    """
    models = _distinct(models)
    check_trainable(*models, likelihood_of(models[0], likelihood))
    check_counts(epochs=epochs, batch_size=batch_size)
    pretrain_epochs = check_pretraining(pretrain_epochs, epochs)
    if not isinstance(data, tuple | list):
        kind = type(data).__name__
        raise TypeError(f"`data` must be (x, y), which stays on the device, got {kind}: use bl.fit for loaders")
    plan = _Plan(
        lr=_numbers("lr", lr, len(models)),
        lr_schedule=schedules.checked("lr_schedule", lr_schedule),
        kl_weights=_numbers("kl_weight", kl_weight, len(models)),
        kl_schedules=[schedules.checked("kl_schedule", one) for one in _each("kl_schedule", kl_schedule, len(models))],
        pretrain_epochs=pretrain_epochs,
        epochs=epochs,
    )
    with TURN:
        drawn = torch.randint(2**31, (len(models),)).tolist() if seeds is None else []
    seeds = drawn if seeds is None else _each("seeds", seeds, len(models))
    seeds = [check_seed(seed) for seed in seeds]
    modes = TrainingModes(*models)
    for model in models:
        model.to(device or device_of(model))
    modes.train_()
    check_alike(models)
    likelihoods = [copy.deepcopy(likelihood).to(device_of(models[0])) for _ in models]
    batches = make_batches(data, batch_size, None, models[0], likelihoods[0])
    assert isinstance(batches.source, tuple)
    x, y = (part.to(device_of(models[0])) for part in batches.source)
    histories = [History() for _ in models]
    diverged: set[int] = set()
    members = [Objective(*pair, len(x), kl_scaling) for pair in zip(models, likelihoods, strict=True)]
    stepper = StackStepper(members, x, y, lr=plan.lr, scale_lr=scale_lr, compile=compile)
    try:
        for model, own in zip(models, likelihoods, strict=True):
            remember_likelihood_(model, own)
        with (
            seeded(0, alone=False),
            warnings.catch_warnings(),
            stop_between_steps() as stop,
            epoch_bar(epochs, len(batches), show=progress) as advance,
        ):
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)  # a loop inside torch.vmap
            for epoch in range(epochs):
                phase = "pretrain" if epoch < pretrain_epochs else "bayes"
                betas, factors = (values.to(x.device) for values in plan.settings(epoch, len(batches)))
                kl = betas.any(1).tolist()
                orders = _orders(seeds, epoch, len(x)).to(x.device)
                modes.train_()
                with using(nn.ModuleList(models), mean_only) if phase == "pretrain" else nullcontext():
                    for step, rows in enumerate(orders.split(batch_size, 1)):
                        with TURN:
                            stepper.step(rows, betas[step], factors[step], kl=kl[step], phase=phase)
                        stop.check()
                        advance()
                if after_epoch is not None:
                    after_epoch(models, Progress((epoch + 1) * len(batches) - 1, len(batches), epochs))
                finite = stepper.stack.finite().tolist()
                last = zip(models, finite, stepper.epoch_summary(), betas[-1].tolist(), plan.lr, strict=True)
                for history, (model, sound, summary, beta, rate) in zip(histories, last, strict=True):
                    record = (
                        {"epoch": epoch, "phase": phase} | summary | {"beta": beta, "lr": rate * factors[-1].item()}
                    )
                    history.records.append(record | {"sparsity": named_sparsity(model) if sound else {}})
                _note_diverged(diverged, histories, finite)
    finally:
        stepper.release_()
        modes.restore_()
    return histories


@dataclass(frozen=True)
class _Plan:
    """The settings of every step of every network."""

    lr: list[float]
    lr_schedule: Schedule
    kl_weights: list[float]
    kl_schedules: list[Schedule]
    pretrain_epochs: int
    epochs: int

    def settings(self, epoch: int, steps: int) -> tuple[Tensor, Tensor]:
        """The KL weights (steps, networks) and the factors on the learning rates (steps,) of one epoch."""
        times = [Progress(epoch * steps + step, steps, self.epochs) for step in range(steps)]
        factors = [check_value("lr_schedule", self.lr_schedule(now)) for now in times]
        betas = torch.zeros(steps, len(self.lr), dtype=torch.float64)
        if epoch >= self.pretrain_epochs:
            starts = [now.since(self.pretrain_epochs) for now in times]
            pairs = list(zip(self.kl_weights, self.kl_schedules, strict=True))
            betas = betas.new_tensor(
                [[weight * check_value("kl_schedule", schedule(now)) for weight, schedule in pairs] for now in starts]
            )
        return betas, torch.tensor(factors, dtype=torch.float64)


def _orders(seeds: Sequence[int], epoch: int, rows: int) -> Tensor:
    """(networks, rows): the order in which each network sees the data, that of `bl.fit` with its seed.

    Torch's random state is then the one in which `bl.fit` with the last seed begins to draw noise.
    """
    orders: list[Tensor] = []
    with TURN:
        for seed in seeds:
            torch.manual_seed(derived_seed(seed, epoch))
            orders.append(torch.randperm(rows))
    return torch.stack(orders)


def _note_diverged(diverged: set[int], histories: Sequence[History], finite: Sequence[bool]) -> None:
    """Add networks that are no longer finite to `diverged`, and warn of each."""
    epoch, advice = histories[0].last["epoch"], "lower `lr`, or standardise the inputs and targets"
    for k, history in enumerate(histories):
        if k not in diverged and not (finite[k] and math.isfinite(history.last["energy"])):
            diverged.add(k)
            warnings.warn(f"network {k} has diverged in epoch {epoch}: {advice}", RuntimeWarning, stacklevel=3)
    if len(diverged) == len(histories):
        raise FloatingPointError(f"all {len(histories)} networks have diverged by epoch {epoch}: {advice}")


def _distinct(models: Sequence[nn.Module]) -> list[nn.Module]:
    if isinstance(models, nn.Module | str | Mapping) or not isinstance(models, Iterable):
        raise TypeError(f"`models` must be a list of networks, got {type(models).__name__}: pass e.g. [model, other]")
    models = list(models)
    for index, model in enumerate(models):
        check_network(model, "train", f"models[{index}]")
    if not models:
        raise ValueError("`models` is empty: pass at least one network")
    parameters = [id(parameter) for model in models for parameter in set(model.parameters())]
    if len(set(parameters)) != len(parameters):
        raise ValueError("`models` share parameters: build each network anew, or copy it by copy.deepcopy")
    return models


def _each(name: str, value: Any, count: int) -> list[Any]:
    """One value for every network, from one for all or a sequence."""
    values = list(value) if isinstance(value, Iterable) else [value] * count
    if len(values) != count:
        raise ValueError(f"`{name}` has {len(values)} values for {count} networks: pass one for all or one for each")
    return values


def _numbers(name: str, value: float | Sequence[float], count: int) -> list[float]:
    numbers = [float(number) for number in _each(name, value, count)]
    for number in numbers:
        check_number(name, number, "[0, inf)", "each network has one")
    return numbers
