"""`bayeslim train`."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslim.checks.names import check_name
from bayeslim.checks.text import visible
from bayeslim.cli.parsing import parsed
from bayeslim.train_config import TrainConfig, kl_epochs, read_config, rows_per_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from bayeslim.data.problems import Problem
    from bayeslim.runs import Run

__all__ = ["Train", "constant_note", "main"]

QUICK_ROWS, QUICK_EPOCHS, QUICK_SAMPLES = 1000, 5, 10


@dataclass(frozen=True, kw_only=True)
class Train(TrainConfig):
    """Train a network and keep everything about it in a folder.

    Try:
      bayeslim train --data digits --out runs/a
      bayeslim train --data mnist --model lenet-300-100 --method molchanov --epochs 30 --out runs/b
      bayeslim train --data houses.csv --target price --impute --out runs/c
      bayeslim train --config runs/a/config.toml --seed 1 --out runs/d     (as run a, with another seed)
      bayeslim train --resume --out runs/a                                 (go on after Ctrl-C)
      torchrun --nproc-per-node 2 -m bayeslim train --data digits --out runs/e   (two processes, the same steps)
    """

    out: Path
    """Folder of the run; new or empty."""
    config: Path | None = None
    """Take the settings from this file; options given besides it win."""
    samples: int = 100
    """Posterior samples for the scores at the end."""
    resume: bool = False
    """Continue the run in `--out` where it stopped; it ends as if it had never stopped. With `--data` or `--config`
    besides, a run that is not there yet is begun."""
    quick: bool = False
    """A few epochs on a few rows, to see that everything fits together."""

    def settings(self) -> TrainConfig:
        """The settings of the run, quick ones written out."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(TrainConfig)}
        if self.quick:
            if self.epochs > QUICK_EPOCHS:  # not so where a quick run is resumed
                values |= {"epochs": QUICK_EPOCHS, "kl_warmup": None, "kl_ramp": None}
            values["rows"] = min(self.rows or QUICK_ROWS, QUICK_ROWS)
        return TrainConfig(**values)


def main(args: list[str]) -> None:
    """Parse, train, and say how to go on after Ctrl-C, or after the end of another process of the run."""
    chosen = parsed(Train, "train", args, default=_starting_point(args))
    if chosen.resume and not _holds_run(chosen.out) and _value(args, "--data") is None and chosen.config is None:
        raise FileNotFoundError(
            f"{chosen.out} holds no run to resume: check --out; if the run was stopped before it began, give its whole "
            "command again, with --data"
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launcher = f"torchrun --nproc-per-node {processes} -m " if processes > 1 else ""
    try:
        train(chosen, f"{launcher}bayeslim train {shlex.join(args)}")
    except (KeyboardInterrupt, SystemExit, ConnectionError):
        if (chosen.out / "checkpoint.safetensors").is_file():
            resume = f"{launcher}bayeslim train --resume --out {shlex.quote(str(chosen.out))}"
            print(f"\nstopped; the finished epochs are kept. Continue by: {resume}", file=sys.stderr)
        raise


def _starting_point(args: list[str]) -> Train | None:
    """The settings that hold where nothing is typed: those of the resumed run or of `--config`, else the defaults."""
    out, config = _value(args, "--out"), _value(args, "--config")
    if out is not None and "--resume" in args and _holds_run(Path(out)):
        found = read_config(Path(out) / "config.toml")
    elif out is not None and config is not None:
        found = read_config(Path(config))
    else:
        return None
    return Train(**dataclasses.asdict(found), out=Path(out))


def _holds_run(folder: Path) -> bool:
    """Whether a run began there; its run.json is written last."""
    return (folder / "run.json").is_file()


def _value(args: list[str], option: str) -> str | None:
    """What was typed after an option, as `--option value` or `--option=value`."""
    for index, argument in enumerate(args):
        if argument == option and index + 1 < len(args):
            return args[index + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def train(chosen: Train, command: str) -> Run:
    """Train as chosen, or continue; print what happens; return the run."""
    from bayeslim import schedules
    from bayeslim.cli.overflow import overflow_explained, refuse_held_out
    from bayeslim.data.named import NAMED
    from bayeslim.methods import METHODS
    from bayeslim.named_models import MODELS, build_network, likelihood_for, resolved_device
    from bayeslim.pruning import footprint
    from bayeslim.runs import Run, check_free, differences, problem_of
    from bayeslim.training import fit
    from bayeslim.training.ranks import join

    ranks = join()
    config = chosen.settings()
    check_name("--model", config.model, MODELS)
    check_name("--method", config.method, [*METHODS, "none"])
    if config.data not in NAMED and Path(config.data).exists():
        config = dataclasses.replace(config, data=str(Path(config.data).resolve()))
    device = resolved_device(config.device)
    if ranks.from_first(lambda: chosen.resume and _holds_run(chosen.out)):
        run = Run(chosen.out)
        if changed := differences(run.config, config):
            raise ValueError(f"the run in {chosen.out} has other settings: {'; '.join(changed)}. Leave them out")
        problem = run.problem()
        network = build_network(config, problem.preprocessing)
    else:
        ranks.from_first(lambda: check_free(chosen.out))
        warmup, ramp = kl_epochs(config)
        config = dataclasses.replace(config, kl_warmup=warmup, kl_ramp=ramp)
        problem = problem_of(config)
        config = dataclasses.replace(config, batch_size=rows_per_step(config, len(problem.splits.train[0])))
        network = build_network(config, problem.preprocessing)
        refuse_held_out(network, problem.splits, problem.preprocessing)
        run = ranks.from_first(lambda: Run.create(chosen.out, config, problem.preprocessing, command))
    if ranks.first:
        weights = f"{footprint(network).weights:,} weights"
        processes = "" if ranks.count == 1 else f", {ranks.count} processes"
        print(f"data: {visible(config.data)}", *problem.notes, sep="\n  ")
        print(f"network: {config.model} with {weights}, method {config.method}, on {device}{processes}")
        if note := _kl_note(config):
            print(note)
    refuse = partial(refuse_held_out, network, problem.splits, problem.preprocessing)
    with overflow_explained(refuse):
        fit(
            network,
            problem.splits.train,
            likelihood=likelihood_for(problem.preprocessing),
            epochs=config.epochs,
            batch_size=rows_per_step(config, len(problem.splits.train[0])),
            lr=config.lr,
            lr_schedule=schedules.constant_then_linear(0.5),
            kl_schedule=schedules.warmup_linear(*kl_epochs(config), config.kl_weight),
            validation=problem.splits.validation,
            checkpoint=run.folder,
            resume=chosen.resume,
            seed=config.seed,
            device=device,
        )
    if ranks.first:
        _finish(chosen, run, network, problem, refuse)
    return run


def _kl_note(config: TrainConfig) -> str | None:
    """What to say if the KL does not get its whole weight before training ends."""
    from bayeslim.schedules import Progress, warmup_linear

    warmup, ramp = kl_epochs(config)
    last = warmup_linear(warmup, ramp)(Progress(config.epochs - 1, 1, config.epochs))
    if last == 1 or config.method == "none":
        return None
    return (
        f"note: the weight of the KL ends at {100 * last:.3g} % of --kl-weight: --kl-warmup {warmup} and --kl-ramp "
        f"{ramp} do not fit into {config.epochs} epochs; leave them out, or train longer"
    )


def _finish(chosen: Train, run: Run, network: nn.Module, problem: Problem, refuse: Callable[[], None]) -> None:
    """Keep the trained network, then its scores, and print them."""
    from bayeslim.cli.overflow import overflow_explained
    from bayeslim.cli.tables import print_scores
    from bayeslim.pruning import sparsity

    run.save_model(network)
    plain = run.config.method == "none"
    samples = 0 if plain else QUICK_SAMPLES if chosen.quick else chosen.samples
    parts = {"validation": problem.splits.validation, "test": problem.splits.test}
    try:
        with overflow_explained(refuse):
            found = {part: run.scores(network, pair, samples) for part, pair in parts.items()}
    except ValueError as error:
        raise ValueError(
            f"{error}. The trained network is kept in {run.folder}, only its scores are missing"
        ) from error
    run.write_metrics({"trained": found | {"sparsity": sparsity(network)}})
    print_scores("after training", found)
    if note := constant_note(problem, found["test"]):
        print(note)
    if plain:
        print(f"run: {run.folder}")
    else:
        print(f"{sparsity(network):.1%} of the weights are noise (log alpha > 3)")
        print(f"run: {run.folder}    next: bayeslim prune {shlex.quote(str(run.folder))}")


def constant_note(problem: Problem, scores: dict[str, float]) -> str | None:
    """What to say of a network that does no better on the test rows than one answer for all of them.

    That answer is the frequency of every class among the training rows, or their mean.
    """
    y, known, target = problem.splits.test[1], problem.splits.train[1], problem.preprocessing.target
    if target.task == "regression":
        name, constant = "rmse", target.std * (y - known.mean()).double().square().mean().sqrt().item()
    else:
        counts = known.bincount(minlength=int(y.max()) + 1).double() + 0.5  # so that none is impossible
        name, constant = "nll", -(counts / counts.sum()).log()[y].mean().item()
    if scores[name] < constant:
        return None
    return (
        f"note: on the test rows this is no better than one answer for all of them ({name} {scores[name]:.4g}, that "
        f"has {constant:.4g}): train longer (--epochs), in smaller batches (--batch-size) or at another --lr"
    )
