"""Variable selection among a thousand correlated inputs: table 4 of the CV-Adam and EM-MCMC paper.

    bayeslim reproduce variable-selection --example 1 --device cuda --out results/variable_selection_1.json

Three simulated problems (`bayeslim.data.sparse_regression`; training and test data from seeds of their own), small
ReLU networks, CV-Adam with a spike-and-slab prior on input units, pruning without (DFP) and with feedback (DPF), the
settings of the paper's notebooks. Every seed has its own data and several restarts, all trained as one stack; of the
restarts the one with the smallest loss on held-out training rows is chosen. "single" is the first restart alone.

The paper's code for DPF is not public. Here one input per epoch and network may come back, in the first three quarters
of the run (see `SpikeAndSlab`): without these limits hundreds of correlated inputs come back at once, and stay.

Results are written after each of the two, and a run with the same --out goes on where it stopped.

The paper has 5 and 4 selected inputs swapped between examples 1 and 3: the supports are x1..x5, x1..x5 and x1..x4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor, nn

from bayeslim.data.sparse_examples import Ex1Variant, sparse_regression
from bayeslim.feature_selection import Recipe
from bayeslim.feature_selection.selection import selection_errors, zero_part
from bayeslim.feature_selection.stack import Task, fit_stack, inputs_used, network_of, stack_losses, stacked_mlp
from bayeslim.runtime.seeds import derived_seed, seeded
from bayeslim_papers import method_runs
from bayeslim_papers.arguments import add_seeds, common_parser
from bayeslim_papers.record import Record, begun, join_files, read_record, write_record

__all__ = ["EXAMPLES", "PAPER", "Config", "main", "merged", "run", "table"]

Example = Literal[1, 2, 3]

PAPER: dict[int, dict[str, tuple[float, float, float, float]]] = {
    1: {"SPLBNN": (1.4, 0, 0, 4), "SVBNN": (1.6, 0.383, 0, 6.3), "DFP": (1.32, 0, 0, 4), "DPF": (1.29, 0, 0, 4)},
    2: {"SPLBNN": (2.43, 0, 0, 5), "SVBNN": (3.12, 0.51, 0, 10.2), "DFP": (2.46, 0, 0, 5), "DPF": (2.49, 0, 0, 5)},
    3: {"SPLBNN": (91.2, 0, 0, 5), "SVBNN": (86.0, 0.399, 0, 8.2), "DFP": (94.7, 0, 0, 5), "DPF": (94.5, 0, 0, 5)},
}
"""Table 4: mean squared error or accuracy in %, FDR, FNDR, number of selected inputs."""


@dataclass(frozen=True)
class Config:
    """Settings of one example, those of the notebooks."""

    example: Example = 1
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


EXAMPLES: dict[int, Config] = {
    1: Config(),
    2: Config(2, (6, 4, 3), Recipe(epochs=6000, decay=5e-4)),
    3: Config(3, (6, 4, 3), Recipe(lr=0.1, decay=5e-4, soft_threshold=2e-2)),
}
"""The paper's settings by example."""


def load(config: Config, device: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], list[int]]:
    """Training and test data of all seeds, x (seeds, N, p) and y (seeds, N), and the support."""
    parts: list[tuple[Tensor, Tensor]] = []
    support: list[int] = []
    for number, rows in enumerate((config.train_rows, config.test_rows)):
        drawn = [
            sparse_regression(config.example, rows, derived_seed(seed, number), config.variant) for seed in config.seeds
        ]
        x, y = torch.stack([d.x for d in drawn]), torch.stack([d.y[:, 0] for d in drawn])
        parts.append((x.to(device), y.to(device)))
        support = drawn[0].support.tolist()
    return parts[0], parts[1], support


METHODS = ("DFP", "DPF")


def run(
    config: Config,
    device: str = "cpu",
    *,
    earlier: Record | None = None,
    save: Callable[[Record], None] = lambda record: None,
    console: Console | None = None,
) -> Record:
    """DFP and DPF for all seeds and restarts of one example.

    Args:
        config: settings.
        device: where to train.
        earlier: a record of this configuration; a method that it holds is not run again.
        save: called with the record after every method.
        console: where to say how long it took.

    Returns:
        A record for JSON.

    Raises:
        ValueError: if `earlier` was made with other settings.
    """
    (x, y), test, support = load(config, device)
    facts = {"config": asdict(config), "paper": PAPER[config.example], "support": support}
    record = begun(facts, torch.device(device), earlier, merged)
    held = max(1, round(config.held_out * config.train_rows))
    for method in METHODS:
        if any(one["method"] == method for one in record["runs"]):
            continue
        start = time.perf_counter()
        recipe = replace(config.recipe, feedback=method == "DPF")
        with seeded(config.seeds[0]):
            stack = stacked_mlp((x.shape[2], *config.hidden, 1), len(config.seeds), config.restarts).to(device)
        fit_stack(stack, x[:, held:], y[:, held:], config.task, recipe, seed=config.seeds[0], progress=True)
        seconds = time.perf_counter() - start
        losses = stack_losses(stack, x[:, :held], y[:, :held], config.task).cpu()
        scores = _scores(stack, *test, config.task)
        used = inputs_used(stack).cpu()
        for number, seed in enumerate(config.seeds):
            restarts: list[dict[str, Any]] = []
            for restart in range(config.restarts):
                selected = used[number, restart].nonzero()[:, 0].tolist()
                fdr, fndr = selection_errors(selected, support, x.shape[2])
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
            facts = {"method": method, "seed": seed, "seconds_of_all": seconds, "chosen": chosen}
            record["runs"].append(facts | {"restarts": restarts})
        save(record)
        if console is not None:
            console.print(f"example {config.example} {method}: {seconds:.0f} s")
    return record


def merged(records: Sequence[Record]) -> Record:
    """One record with the methods of all; seeds must agree as all settings do: they are trained as one stack."""
    return method_runs.merged(records, choices=())


def table(record: Record) -> str:
    """The results beside the paper's, as Markdown; means over seeds, and on how many the support is found exactly."""
    score = "accuracy %" if record["config"]["example"] == 3 else "MSE"
    lines = [f"| method | {score} | FDR | FNDR | inputs | exact | sparsity |", "|---|---|---|---|---|---|---|"]
    for name, values in record["paper"].items():
        lines.append(f"| {name} (paper) | {' | '.join(f'{value:g}' for value in values)} | | |")
    count = record["config"]["restarts"]
    for method in METHODS:
        runs = [run for run in record["runs"] if run["method"] == method]
        for label, index in ((f"best of {count}", "chosen"), ("single", None)):
            rows = [run["restarts"][0 if index is None else run[index]] for run in runs]
            exact = sum(row["selected"] == record["support"] for row in rows)
            means = [mean(row[key] for row in rows) for key in ("score", "fdr", "fndr")]
            means.append(mean(len(row["selected"]) for row in rows))
            cells = " | ".join(f"{value:.4g}" for value in means)
            sparsity = mean(row["sparsity"] for row in rows)
            lines.append(f"| {method}, {label} | {cells} | {exact}/{len(rows)} | {sparsity:.4f} |")
    return "\n".join(lines)


@torch.no_grad()
def _scores(stack: nn.Sequential, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """Mean squared error, or accuracy in %, of each network: (seeds, restarts)."""
    if task == "regression":
        return stack_losses(stack, x, y, task).cpu()
    right = (stack(x.mT)[:, :, 0] > 0) == (y[:, None] > 0.5)
    return 100 * right.float().mean(-1).cpu()


def main(arguments: list[str] | None = None) -> None:
    """Run one example from the command line."""
    quick, out = "two data sets, few rows and epochs", "JSON file to write, and to go on from"
    parser = common_parser(__doc__, root="nothing: the data are simulated", quick=quick, out=out)
    parser.add_argument("--example", type=int, choices=[1, 2, 3], default=1)
    parser.add_argument("--variant", choices=["code", "paper", "sun"], default=None, help="which function of example 1")
    add_seeds(parser, default=Config.seeds, what="data sets")
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=None, help="default: the paper's")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = join_files(chosen.merge, merged, chosen.out)
    else:
        config = EXAMPLES[chosen.example]
        config = replace(config, variant=chosen.variant, seeds=tuple(chosen.seeds), restarts=chosen.restarts)
        if chosen.quick:
            few = {"train_rows": 1200, "test_rows": 200, "seeds": config.seeds[:2], "restarts": 1}
            config = replace(
                config, recipe=replace(config.recipe, epochs=100, batch_size=100, cycles=2, warm_up=50), **few
            )
        if chosen.epochs is not None:
            config = replace(config, recipe=replace(config.recipe, epochs=chosen.epochs))
        earlier = read_record(chosen.out)
        record = run(
            config, chosen.device, earlier=earlier, save=lambda found: write_record(chosen.out, found), console=console
        )
    console.print(table(record), markup=False)


if __name__ == "__main__":
    main()
