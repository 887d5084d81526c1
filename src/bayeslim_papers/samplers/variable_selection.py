"""Variable selection among a thousand correlated inputs: table 4 of the CV-Adam and EM-MCMC paper."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from bayeslim.data.sparse_examples import Ex1Variant, sparse_regression
from bayeslim.feature_selection import Recipe
from bayeslim.feature_selection.selection import selection_errors, zero_part
from bayeslim.feature_selection.stack import Task, fit_stack, inputs_used, network_of, stack_losses, stacked_mlp
from bayeslim.runtime.seeds import derived_seed, seeded
from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Experiment, Log, Member, Options, seeds_together
from bayeslim_papers.record import Record
from bayeslim_papers.tables import by_method, markdown

__all__ = ["EXAMPLES", "Selection", "Simulated", "main", "table"]

PAPER: dict[int, dict[str, tuple[float, float, float, float]]] = {
    1: {"SPLBNN": (1.4, 0, 0, 4), "SVBNN": (1.6, 0.383, 0, 6.3), "DFP": (1.32, 0, 0, 4), "DPF": (1.29, 0, 0, 4)},
    2: {"SPLBNN": (2.43, 0, 0, 5), "SVBNN": (3.12, 0.51, 0, 10.2), "DFP": (2.46, 0, 0, 5), "DPF": (2.49, 0, 0, 5)},
    3: {"SPLBNN": (91.2, 0, 0, 5), "SVBNN": (86.0, 0.399, 0, 8.2), "DFP": (94.7, 0, 0, 5), "DPF": (94.5, 0, 0, 5)},
}
"""Table 4: mean squared error or accuracy in %, FDR, FNDR, number of selected inputs."""


@dataclass(frozen=True)
class Simulated:
    """Data of all seeds, x (seeds, N, p) and y (seeds, N), and which inputs matter."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    support: list[int]


@dataclass(frozen=True)
class Selection(Experiment):
    """Variable selection among a thousand correlated inputs: table 4 of the CV-Adam and EM-MCMC paper.

        bayeslim reproduce variable-selection --example 1 --device cuda --out results/variable_selection_1.json

    Three simulated problems (`bayeslim.data.sparse_regression`; training and test data from seeds of their own), small
    ReLU networks, CV-Adam with a spike-and-slab prior on input units, pruning without (DFP) and with feedback (DPF),
    the settings of the paper's notebooks. Every seed has its own data and several restarts, all trained as one stack;
    of the restarts the one with the smallest loss on held-out training rows is chosen. "single" is the first restart
    alone.

    The paper's code for DPF is not public. Here one input per epoch and network may come back, in the first three
    quarters of the run (see `SpikeAndSlab`): without these limits hundreds of correlated inputs come back at once, and
    stay.

    Results are written after each of the two, and a run with the same --out goes on where it stopped.

    The paper has 5 and 4 selected inputs swapped between examples 1 and 3: the supports are x1..x5, x1..x5 and x1..x4.
    """

    name: ClassVar[str] = "variable-selection"
    root: ClassVar[str] = "nothing: the data are simulated"
    choices: ClassVar[tuple[str, ...]] = ()  # seeds too must agree: they are trained as one stack
    options: ClassVar[Options] = {
        "example": {"choices": (1, 2, 3)},
        "variant": {"choices": ("code", "paper", "sun"), "help": "which function of example 1"},
        "seeds": {},
        "restarts": {},
        "epochs": {"type": int, "help": "default: the paper's"},
    }

    example: Literal[1, 2, 3] = 1
    hidden: tuple[int, ...] = (5, 3)
    recipe: Recipe = field(default_factory=Recipe)
    train_rows: int = 10_240
    test_rows: int = 1024
    held_out: float = 0.1
    """Part of the training rows that chooses among restarts; the paper, which has none, trains on all."""
    variant: Ex1Variant | None = None
    """Which function of example 1; None is the notebooks'."""
    seeds: tuple[int, ...] = tuple(range(10))
    restarts: int = 5

    @property
    def task(self) -> Task:
        """Example 3 is a classification."""
        return "binary" if self.example == 3 else "regression"

    def load(self, root: Path | None, device: str) -> Simulated:
        """The data of all seeds."""
        pairs: list[tuple[Tensor, Tensor]] = []
        support: list[int] = []
        for number, rows in enumerate((self.train_rows, self.test_rows)):
            seeds = [derived_seed(seed, number) for seed in self.seeds]
            drawn = [sparse_regression(self.example, rows, seed, self.variant) for seed in seeds]
            x, y = torch.stack([one.x for one in drawn]), torch.stack([one.y[:, 0] for one in drawn])
            pairs.append((x.to(device), y.to(device)))
            support = drawn[0].support.tolist()
        return Simulated(pairs[0], pairs[1], support)

    @classmethod
    def begin(cls, chosen: argparse.Namespace) -> tuple[Selection, Simulated]:
        """The example's settings; in the quick form two data sets, few rows and epochs."""
        config = EXAMPLES[chosen.example or 1]
        given = {key: getattr(chosen, key) for key in ("variant", "restarts") if getattr(chosen, key) is not None}
        config = replace(config, **given, seeds=tuple(chosen.seeds or config.seeds))
        if chosen.quick:
            few = replace(config.recipe, epochs=100, batch_size=100, cycles=2, warm_up=50)
            config = replace(config, recipe=few, train_rows=1200, test_rows=200, seeds=config.seeds[:2], restarts=1)
        if chosen.epochs is not None:
            config = replace(config, recipe=replace(config.recipe, epochs=chosen.epochs))
        return config, config.load(None, chosen.device)

    def variants(self) -> list[tuple[str]]:
        """Pruning without and with feedback."""
        return [("DFP",), ("DPF",)]

    def facts(self, data: Simulated) -> dict[str, Any]:
        """What the paper has for the example, and its support."""
        return super().facts(data) | {"paper": PAPER[self.example], "support": data.support}

    def stacks(self, left: Sequence[Member]) -> Iterable[Sequence[Member]]:
        """All data sets of a method."""
        return seeds_together(left)

    def measured_together(self, members: Sequence[Member], data: Simulated, log: Log = SILENT) -> list[Record]:
        """Train and judge all restarts on all data sets by one method."""
        start, (x, y) = time.perf_counter(), data.train
        held = max(1, round(self.held_out * self.train_rows))
        recipe = replace(self.recipe, feedback=members[0][0] == ("DPF",))
        with seeded(self.seeds[0]):
            stack = stacked_mlp((x.shape[2], *self.hidden, 1), len(self.seeds), self.restarts).to(x.device)
        fit_stack(stack, x[:, held:], y[:, held:], self.task, recipe, seed=self.seeds[0], progress=True)
        seconds = time.perf_counter() - start
        losses = stack_losses(stack, x[:, :held], y[:, :held], self.task).cpu()
        scores, used = _scores(stack, *data.test, self.task), inputs_used(stack).cpu()
        runs: list[dict[str, Any]] = []
        for number in range(len(self.seeds)):
            restarts: list[dict[str, Any]] = []
            for restart in range(self.restarts):
                selected = used[number, restart].nonzero()[:, 0].tolist()
                fdr, fndr = selection_errors(selected, data.support, x.shape[2])
                restarts.append(
                    {
                        "validation_loss": losses[number, restart].item(),
                        "score": scores[number, restart].item(),
                        "fdr": fdr,
                        "fndr": fndr,
                        "selected": selected,
                        "sparsity": zero_part(network_of(stack, number, restart)),
                    }
                )
            chosen = int(losses[number].nan_to_num(torch.inf).argmin())
            runs.append({"seconds_of_all": seconds, "chosen": chosen, "restarts": restarts})
        return runs


EXAMPLES: dict[int, Selection] = {
    1: Selection(),
    2: Selection(example=2, hidden=(6, 4, 3), recipe=Recipe(epochs=6000, decay=5e-4)),
    3: Selection(example=3, hidden=(6, 4, 3), recipe=Recipe(lr=0.1, decay=5e-4, soft_threshold=2e-2)),
}
"""The paper's settings by example."""


@torch.no_grad()
def _scores(stack: nn.Sequential, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """Mean squared error, or accuracy in %, of each network: (seeds, restarts)."""
    if task == "regression":
        return stack_losses(stack, x, y, task).cpu()
    right = (stack(x.mT)[:, :, 0] > 0) == (y[:, None] > 0.5)
    return 100 * right.float().mean(-1).cpu()


def table(record: dict[str, Any]) -> str:
    """The results beside the paper's, as Markdown; means over seeds, and on how many the support is found exactly."""
    score = "accuracy %" if record["config"]["example"] == 3 else "MSE"
    rows = [[f"{name} (paper)", *(f"{one:g}" for one in own), "", ""] for name, own in record["paper"].items()]
    for method, runs in by_method(record).items():
        for label in (f"best of {record['config']['restarts']}", "single"):
            own = [run["restarts"][0 if label == "single" else run["chosen"]] for run in runs]
            exact = sum(one["selected"] == record["support"] for one in own)
            means = [mean(one[key] for one in own) for key in ("score", "fdr", "fndr")]
            means.append(mean(len(one["selected"]) for one in own))
            sparsity = f"{mean(one['sparsity'] for one in own):.4f}"
            rows.append([f"{method}, {label}", *(f"{one:.4g}" for one in means), f"{exact}/{len(own)}", sparsity])
    return markdown(["method", score, "FDR", "FNDR", "inputs", "exact", "sparsity"], rows)


main = command(Selection, table)
"""What `bayeslim reproduce` runs."""
