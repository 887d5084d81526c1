"""What decides how a run ends, and which a resumed one must therefore share.

Left out are learning rates and schedules, `epochs` and `patience`, which say how far to go, and how a step is computed:
`device`, `compile`, `cuda_graph`, the number of processes, `shared_noise`. They may change.
"""

from __future__ import annotations

from typing import Any

import torch

from bayeslim.training.batches import Batches
from bayeslim.training.checkpoint_checks import describe_settings
from bayeslim.training.step import Stepper

__all__ = ["run_settings"]

MAY_CHANGE = {"params", "name", "lr", "initial_lr", "lr_decay", "fused", "foreach", "capturable", "differentiable"}
"""Options of optimisers that are learning rates, or how and on what they compute."""


def run_settings(
    stepper: Stepper, batches: Batches, *, accumulate: int, pretrain_epochs: int, validation_samples: int | None
) -> dict[str, Any]:
    """The settings of a run that are kept in its checkpoints, as JSON has them.

    Args:
        stepper: which knows the objective, the network and the optimiser.
        batches: the training data.
        accumulate: see `bl.fit`.
        pretrain_epochs: ditto.
        validation_samples: ditto; None where nothing is decided by the validation data.

    Example:
        >>> run_settings(stepper, batches, accumulate=1, pretrain_epochs=0, validation_samples=None)["kl_scaling"]
        'elbo'
    """
    found: dict[str, Any] = {"num_data": batches.num_data, "batches": len(batches)}
    if batches.batch_size:
        found["batch_size"] = min(batches.batch_size, batches.num_data)
    found |= {
        "accumulate": accumulate,
        "samples": stepper.samples,
        "kl_scaling": stepper.kl_scaling,
        "pretrain_epochs": pretrain_epochs,
        "clip_norm": None if stepper.clip_norm is None else float(stepper.clip_norm),
        "autocast": None if stepper.autocast is None else str(stepper.autocast),
    }
    if validation_samples is not None:
        found["validation_samples"] = validation_samples
    found["optimizer"] = type(stepper.optimizer).__name__
    return found | _options(stepper.optimizer) | {"chosen": describe_settings(stepper.model, stepper.likelihood)}


def _options(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Its plain settings by name, such as "optimizer momentum"; a list where groups of parameters differ."""
    found: dict[str, list[Any]] = {}
    for group in optimizer.param_groups:
        for name, value in group.items():
            value = list(value) if isinstance(value, tuple) else value
            plain = all(
                isinstance(part, bool | int | float | str | None)
                for part in (value if isinstance(value, list) else [value])
            )
            if name not in MAY_CHANGE and plain and value not in found.setdefault(f"optimizer {name}", []):
                found[f"optimizer {name}"].append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
