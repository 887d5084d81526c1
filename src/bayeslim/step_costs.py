"""What a training step of each method costs, against the deterministic network."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim import methods, models
from bayeslim.estimators import flipout, local_reparam
from bayeslim.kernels import linear
from bayeslim.likelihoods import Categorical
from bayeslim.optim.param_groups import merged, param_groups
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.timing import Timing, interleaved, peak_memory
from bayeslim.training.step import Stepper

__all__ = [
    "NUM_DATA",
    "ONE_GRAPH",
    "OUR_PRODUCTS",
    "StepCost",
    "as_record",
    "costs_of",
    "networks",
    "step_costs",
    "train_step",
]

NUM_DATA = 60_000
"""Training examples that the KL is divided by: those of MNIST."""
ONE_GRAPH = "deterministic, one graph"
"""The plain network by the compiled update that the others take on a CPU, beside torch's own."""
OUR_PRODUCTS = "deterministic, our products"
"""The plain network by the products of matrices that the others use on a CPU, and compiled by the same update."""


@dataclass(frozen=True)
class StepCost:
    """Time and memory of one training step."""

    time: Timing
    memory: int
    """Bytes at the peak: parameters, optimiser state, gradients and whatever the step needs."""
    memory_ratio: float
    """Against the first network."""


def networks(sizes: Sequence[int]) -> dict[str, Callable[[], nn.Module]]:
    """Builders of the perceptron as a plain network, by every named method, and `graves` by the other estimators.

    Args:
        sizes: widths from input to output.

    Example:
        >>> list(networks([784, 300, 100, 10]))[:3]
        ['deterministic', 'deterministic, our products', 'graves']
    """
    found: dict[str, Callable[[], nn.Module]] = {"deterministic": functools.partial(models.mlp, sizes)}
    found[OUR_PRODUCTS] = functools.partial(_by_our_products, sizes)
    for name in methods.METHODS:
        found[name] = functools.partial(methods.mlp, sizes, method=name)
        if name == "graves":
            for estimator in (local_reparam, flipout):
                title = f"graves, {estimator.__name__}"
                found[title] = functools.partial(methods.mlp, sizes, method=name, estimator=estimator)
    return found


class _Linear(nn.Linear):
    """A plain layer by `kernels.linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def _by_our_products(sizes: Sequence[int]) -> nn.Module:
    """The plain perceptron, its linear layers replaced."""
    model = models.mlp(sizes)
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = _Linear
    return model


def train_step(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    compile: bool = False,
    one_graph: bool = True,
    cuda_graph: bool = False,
    autocast: torch.dtype | None = None,
) -> Callable[[], None]:
    """A step of `fit` on one fixed batch: forward, KL, backward and the optimiser.

    Args:
        model: a classifier.
        x: inputs of the batch.
        y: their classes.
        optimizer: fused Adam when None.
        compile: by `torch.compile`.
        one_graph: and that with the optimiser, as `fit` does on a CPU; else the optimiser is torch's.
        cuda_graph: as one CUDA graph.
        autocast: precision of the forward pass.

    Example:
        >>> step = train_step(bl.mlp([4, 8, 2]), torch.randn(16, 4), torch.zeros(16, dtype=torch.long))
        >>> step()
    """
    chosen = optimizer or torch.optim.Adam(merged(param_groups(model)), 1e-3, fused=True, capturable=cuda_graph)
    ways: dict[str, Any] = {"compile": compile, "one_graph": one_graph, "cuda_graph": cuda_graph}
    stepper = Stepper(model, Categorical(), chosen, NUM_DATA, autocast=autocast, **ways)

    def step() -> None:
        stepper.step([(x, y)], 1.0, 1.0)
        stepper.seen.clear()

    return step


def step_costs(
    sizes: Sequence[int],
    batch_size: int,
    *,
    names: Sequence[str] | None = None,
    rounds: int = 30,
    device: torch.device | str = "cpu",
    compile: bool = False,
    cuda_graph: bool = False,
    autocast: torch.dtype | None = None,
) -> dict[str, StepCost]:
    """Measure one training step of perceptrons of the same sizes, all taking turns.

    Args:
        sizes: widths from input to output.
        batch_size: rows per step.
        names: which of `networks`; None takes all. The first is what the others are compared with. A deterministic
            network is compiled as one does without this library, with torch's own Adam; one like the others is
            "deterministic, one graph".
        rounds: measurements of each.
        device: where to measure.
        compile: by `torch.compile`, all of them.
        cuda_graph: each as one CUDA graph.
        autocast: precision of the forward pass, e.g. `torch.bfloat16`.

    Returns:
        A `StepCost` per name.

    Raises:
        ValueError: for a name that `networks` has not.

    Example:
        >>> step_costs([784, 300, 100, 10], 256, names=["deterministic", "ard"])["ard"].time.ratio
        2.9
    """
    known = networks(sizes)
    if compile:
        known[ONE_GRAPH] = known["deterministic"]
    chosen = list(known if names is None else names)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"unknown `names` {unknown}: choose from {', '.join(map(repr, known))}")
    with seeded(0):
        x = torch.randn(batch_size, sizes[0], device=device)
        y = torch.randint(0, sizes[-1], (batch_size,), device=device)

        def build(name: str) -> Callable[[], None]:
            ways: dict[str, Any] = {"compile": compile, "cuda_graph": cuda_graph, "autocast": autocast}
            return train_step(known[name]().to(device), x, y, one_graph=name != "deterministic", **ways)

        builders = {name: functools.partial(build, name) for name in chosen}
        return costs_of(builders, rounds=rounds, device=device)


def costs_of(
    builders: Mapping[str, Callable[[], Callable[[], object]]],
    *,
    rounds: int = 30,
    turn_seconds: float = 0.02,
    device: torch.device | str = "cpu",
) -> dict[str, StepCost]:
    """Time and memory of any steps, all taking turns.

    Args:
        builders: by name, what makes a network with its optimiser and returns a function that takes a step. The first
            is what the others are compared with.
        rounds: measurements of each.
        turn_seconds: the least time of a turn. Each starts with an idle device.
        device: where the steps run.

    Example:
        >>> costs_of({"mine": lambda: train_step(model, x, y)})["mine"].time.seconds
        0.003
    """
    built = {name: peak_memory(build, device) for name, build in builders.items()}
    steps = {name: step for name, (step, _) in built.items()}
    times = interleaved(steps, rounds=rounds, turn_seconds=turn_seconds, device=device)
    base = next(iter(built.values()))[1]
    return {name: StepCost(times[name], memory, memory / base) for name, (_, memory) in built.items()}


def as_record(costs: Mapping[str, StepCost]) -> dict[str, dict[str, float]]:
    """What `step_costs` found, one flat dictionary per network, as JSON holds it.

    Example:
        >>> list(as_record(step_costs([4, 8, 2], 16, names=["ard"]))["ard"])
        ['seconds', 'ratio', 'ratio_low', 'ratio_high', 'memory', 'memory_ratio']
    """
    return {
        name: {**asdict(cost.time), "memory": cost.memory, "memory_ratio": cost.memory_ratio}
        for name, cost in costs.items()
    }
