"""The training loop."""

from __future__ import annotations

import itertools
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayeslim import schedules
from bayeslim.checks.counts import check_counts, check_zero_or_more
from bayeslim.divergence import is_sharded
from bayeslim.estimators import mean_only
from bayeslim.likelihoods.base import Likelihood, likelihood_of, remember_likelihood_
from bayeslim.optim.param_groups import merged, param_groups
from bayeslim.optim.scale_decay import warn_of_decay
from bayeslim.optim.spike_slab import pruner_of
from bayeslim.predictive.evaluate import evaluate
from bayeslim.predictive.inputs import device_of
from bayeslim.predictive.snapshots import in_run
from bayeslim.pruning.sparsity import named_sparsity
from bayeslim.runtime.modes import check_trainable
from bayeslim.runtime.progress_bar import epoch_bar
from bayeslim.runtime.seeds import check_seed, derived_seed, seeded
from bayeslim.runtime.threads import TURN
from bayeslim.schedules import Progress, Schedule
from bayeslim.training.arguments import (
    EpochHook,
    OptimizerFactory,
    check_kinds,
    check_objective,
    check_pretraining,
    check_sampler,
)
from bayeslim.training.batches import Batch, Batches, make_batches
from bayeslim.training.checkpoint import RunState, checkpoint_file, load_checkpoint_, save_checkpoint
from bayeslim.training.early_stopping import note_best, patience_over, restore_best_
from bayeslim.training.elbo import KLScaling
from bayeslim.training.history import History
from bayeslim.training.interrupts import stop_between_steps
from bayeslim.training.modes import TrainingModes
from bayeslim.training.ranks import join
from bayeslim.training.settings import run_settings
from bayeslim.training.sharding import sharded_sparsity, unsharded
from bayeslim.training.step import Stepper
from bayeslim.using import using

__all__ = ["fit"]


def fit(
    model: nn.Module,
    data: Any,
    *,
    likelihood: Likelihood,
    epochs: int,
    num_data: int | None = None,
    batch_size: int = 128,
    lr: float = 1e-3,
    scale_lr: float | None = None,
    lr_schedule: Schedule | None = None,
    optimizer: OptimizerFactory | None = None,
    kl_schedule: Schedule | None = None,
    kl_scaling: KLScaling = "elbo",
    samples: int = 1,
    pretrain_epochs: int = 0,
    validation: Any = None,
    validation_samples: int = 0,
    patience: int | None = None,
    clip_norm: float | None = None,
    accumulate: int = 1,
    after_epoch: EpochHook | None = None,
    autocast: torch.dtype | None = None,
    compile: bool = False,
    cuda_graph: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep: int = 2,
    seed: int | None = None,
    shared_noise: bool = False,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> History:
    """Train a network by maximising the evidence lower bound.

    A network without Bayesian layers is trained by maximum likelihood. Noise and batch order of epoch `e`
    depend on (`seed`, `e`) alone and torch's global random state is left as it was; a resumed run therefore
    ends with the same weights as one that never stopped (bit for bit on the CPU).

    Under torchrun, or in a process group of torch.distributed, all processes train one network on parts of every
    batch, with the steps of a single one; only rank 0 validates and writes. See docs/distributed.md.

    Args:
        model: the network; trained in place. Parts in evaluation mode, in a network that is not, stay in it.
        data: (x, y) tensors or arrays, a Dataset, or a DataLoader (with several processes: with a DistributedSampler).
        likelihood: `p(y | f)`, e.g. `bl.Categorical()`; its own parameters are trained too.
        epochs: passes over the data, in all (a resumed run counts those done before).
        num_data: size of the training set; inferred and checked where the data tell it.
        batch_size: examples per batch, over all processes together, where `data` is not a loader.
        lr: learning rate of the default optimiser, fused Adam.
        scale_lr: another one for the posteriors' scales; None takes `lr`.
        lr_schedule: factor on every learning rate; default constant.
        optimizer: called with the parameter groups instead, e.g. `partial(torch.optim.SGD, lr=0.1)`; its own
            learning rate and weight decay hold (no decay on posteriors and priors, see `bl.param_groups`).
        kl_schedule: weight beta of the KL, e.g. `bl.schedules.warmup_linear(5, 15)`: with the KL off, noise
            on, for 5 epochs, then growing; default 1. Counted from the end of pre-training.
        kl_scaling: "dissertation" under-weights the KL as that code does; see `bl.nelbo`.
        samples: weight draws per step.
        pretrain_epochs: first train the means alone, without noise or KL: frequentist pre-training, then
            conversion, in one call.
        validation: (x, y), a Dataset or a DataLoader to score after every epoch.
        validation_samples: posterior samples for that; 0 scores the posterior mean.
        patience: stop after this many epochs without a better validation nll; either way the network ends
            as it was at its best. Pre-training does not count, nor do epochs before a `SpikeAndSlab` has reached
            its target.
        clip_norm: clip the norm of the whole gradient to this.
        accumulate: batches per optimiser step, which is that of all their rows as one batch.
        after_epoch: called with the model, the optimiser and the progress of its last step after every epoch,
            before validation and checkpoint, e.g. `bl.Snapshots`; what it changes must lie in the state of the two
            if a resumed run is to go on exactly. A run that was stopped may call it for one epoch twice.
        autocast: torch.bfloat16 or torch.float16 for the forward pass; the KL stays in float32.
        compile: compile the objective with torch.compile, on a CPU together with the steps of plain Adam.
        cuda_graph: on CUDA, replay every step as one CUDA graph: small networks train several times faster. Needs a
            network without data-dependent control flow and an optimiser with `capturable=True`, as the default has.
        checkpoint: folder for `checkpoint.safetensors` and `history.jsonl`, written after every epoch.
        resume: continue from the checkpoint if there is one, or from the one before if it is damaged. Only learning
            rates, schedules, `epochs`, `patience` and how a step is computed may change; see docs/reliability.md.
        keep: checkpoints kept, the last one included; 1 leaves nothing to fall back on if it is damaged.
        seed: None draws one from torch's random state.
        shared_noise: with several processes, whether all draw the same noise: weights sampled once per batch are then
            those of a single process. Else rank `r > 0` draws its own, from (`seed`, `e`, `r`).
        device: move model and likelihood there first.
        progress: show a progress bar on a terminal.

    Returns:
        The history, one record per epoch.

    Raises:
        FileExistsError: if `checkpoint` holds a run and `resume` is False.
        FloatingPointError: if the loss stops being finite; the last checkpoint is intact.
        ConnectionError: if another process of the run has ended; ditto.
        KeyboardInterrupt, SystemExit: on SIGINT and SIGTERM, after the step under way; ditto.

    Example:
        >>> history = bl.fit(model, (x, y), likelihood=bl.Categorical(), epochs=20,
        ...                  kl_schedule=bl.schedules.warmup_linear(5, 15), seed=0)
    """
    check_kinds(model, optimizer, after_epoch)
    epochs, accumulate, samples, keep = check_counts(epochs=epochs, accumulate=accumulate, samples=samples, keep=keep)
    pretrain_epochs = check_pretraining(pretrain_epochs, epochs)
    validation_samples = check_zero_or_more("validation_samples", validation_samples, "0 scores the posterior mean")
    if patience is not None and validation is None:
        raise ValueError("`patience` needs `validation` data to judge by: pass validation=(x, y)")
    if patience is not None:
        (patience,) = check_counts(patience=patience)
    check_objective(kl_scaling, clip_norm, autocast)
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        raise RuntimeError("`fit` needs gradients: call it outside torch.no_grad() and torch.inference_mode()")
    check_trainable(model, likelihood_of(model, likelihood))
    kl_weight = schedules.checked("kl_schedule", kl_schedule)
    lr_factor = schedules.checked("lr_schedule", lr_schedule)
    ranks = join()
    if device is not None:
        model.to(device)
    likelihood_of(model, likelihood).to(device_of(model))
    batches = make_batches(data, batch_size, num_data, model, likelihood, ranks)
    if isinstance(validation, tuple | list):  # fail now, not after the first epoch
        make_batches(validation, batch_size, None, model, likelihood)
    own: dict[str, Any] = {"lr": None, "weight_decay": None} if optimizer else {"lr": lr}
    groups = param_groups(nn.ModuleList([model, likelihood]), scale_lr=scale_lr, **own)
    if not groups:
        raise ValueError("`model` has no parameters that require gradients: there is nothing to train")
    mixed = is_sharded(model) and any(True for _ in likelihood.parameters())  # of which fused kernels take one kind
    stepper = Stepper(
        model=model,
        likelihood=likelihood,
        optimizer=optimizer(groups)
        if optimizer
        else torch.optim.Adam(merged(groups), lr, fused=not mixed, capturable=cuda_graph),
        num_data=batches.num_data,
        kl_scaling=kl_scaling,
        samples=samples,
        clip_norm=clip_norm,
        autocast=autocast,
        compile=compile,
        cuda_graph=cuda_graph,
        ranks=ranks,
    )
    check_sampler(stepper.optimizer, batches.num_data)
    warn_of_decay(stepper.optimizer, model, likelihood)
    folder = None if checkpoint is None else Path(checkpoint)
    judged = None if patience is None else validation_samples
    own = {"accumulate": accumulate, "pretrain_epochs": pretrain_epochs, "validation_samples": judged}
    settings = run_settings(stepper, batches, **own)
    state = _begin(stepper, folder, resume, seed, settings)
    remember_likelihood_(model, likelihood)
    pruner = pruner_of(stepper.optimizer)
    steps, modes = math.ceil(len(batches) / accumulate), TrainingModes(model)

    bar = epoch_bar(epochs, steps, show=progress and ranks.first, done=state.epoch)
    kept = seeded(0, alone=False)
    with kept, in_run(model, state.run), stop_between_steps() as stop, ranks.explained(), bar as advance:
        check = ranks.checker(stop)
        while state.epoch < epochs and not patience_over(state, patience):
            epoch, pretraining = state.epoch, state.epoch < pretrain_epochs
            with TURN:
                torch.manual_seed(derived_seed(state.seed, epoch))
            batches.begin(epoch)
            modes.train_()
            with using(model, mean_only) if pretraining else nullcontext():
                for step, group in enumerate(_grouped(batches, accumulate)):
                    now = Progress(epoch * steps + step, steps, epochs)
                    beta = 0.0 if pretraining else kl_weight(now.since(pretrain_epochs))
                    factor = lr_factor(now)
                    with TURN:  # between steps other threads may predict, who restore the random state they find
                        if step == 0 and not (ranks.first or shared_noise):  # the order, equal on all ranks, is drawn
                            torch.manual_seed(derived_seed(state.seed, epoch, ranks.index))
                        stepper.step(group, beta, factor)
                    check()
                    advance()
            ranks.align_(model, likelihood)
            if after_epoch is not None:
                after_epoch(model, stepper.optimizer, Progress((epoch + 1) * steps - 1, steps, epochs))
            record = {"epoch": epoch, "phase": "pretrain" if pretraining else "bayes"}
            record |= stepper.epoch_summary()
            record["sparsity"] = sharded_sparsity(model) if stepper.sharded else named_sparsity(model)
            if validation is not None:
                judge = partial(evaluate, model, validation, samples=validation_samples, likelihood=likelihood)
                scores = _scores(stepper, judge, validation_samples)
                record |= {f"validation_{name}": value for name, value in scores.items()}
            state.epoch += 1
            state.history.records.append(record)
            state.scaler = stepper.scaler.state_dict()
            if patience is not None and not pretraining and (pruner is None or pruner.reached()):
                note_best(state, model, likelihood, record["validation_nll"])
            _save(folder, stepper, state, keep)
    modes.restore_()
    if patience is not None and state.best:
        restore_best_(state, model, likelihood, pruner)
    return state.history


def _begin(stepper: Stepper, folder: Path | None, resume: bool, seed: int | None, settings: dict[str, Any]) -> RunState:
    """A fresh run, written at once so that there is always a checkpoint; or the one to resume."""
    seed = None if seed is None else check_seed(seed)
    ranks = stepper.ranks
    exists = ranks.from_first(lambda: folder is not None and checkpoint_file(folder).exists())
    if exists and not resume:
        raise FileExistsError(
            f"{folder} already holds a training run: pass resume=True to continue it, or another folder"
        )
    optimizer, model, likelihood = stepper.optimizer, stepper.model, stepper.likelihood
    if folder is not None and exists:
        wanted = settings | ({} if seed is None else {"seed": seed})
        state = load_checkpoint_(folder, model, likelihood, optimizer, wanted)
        if state.scaler:
            stepper.scaler.load_state_dict(state.scaler)
        if ranks.first:
            state.history.write(folder / "history.jsonl")  # a kill may have come between the two files
        return state
    with TURN:
        drawn = int(torch.randint(2**31, ())) if seed is None and ranks.first else 0
    chosen = ranks.from_first(lambda: drawn if seed is None else seed)
    state = RunState(chosen, settings=settings, run=ranks.from_first(lambda: secrets.token_hex(8)))
    _save(folder, stepper, state)
    return state


def _save(folder: Path | None, stepper: Stepper, state: RunState, keep: int = 2) -> None:
    """Write a checkpoint, where one is wanted: rank 0 alone, to which all bring their shards."""
    if folder is not None and (stepper.ranks.first or stepper.sharded):
        save_checkpoint(folder, stepper.model, stepper.likelihood, stepper.optimizer, state, keep)


def _scores(stepper: Stepper, judge: Callable[[], dict[str, float]], samples: int) -> dict[str, float]:
    """Rank 0's scores, on every rank; a sharded network needs all of them for a forward pass."""
    if not stepper.sharded:
        return stepper.ranks.from_first(judge)
    with unsharded(stepper.model) if samples else nullcontext():
        own = judge()
    return stepper.ranks.from_first(lambda: own)


def _grouped(batches: Batches, size: int) -> Iterator[list[Batch]]:
    """Lists of `size` batches, the last one possibly shorter."""
    iterator = iter(batches)
    while group := list(itertools.islice(iterator, size)):
        yield group
