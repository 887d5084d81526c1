"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from bayeslim.kernels.onednn import processor

__all__ = ["machine"]


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Processor, threads and versions, for the record of a measurement.

    Args:
        device: what was measured on.

    Example:
        >>> machine()["threads"]
        2
    """
    place = torch.device(device)
    return {
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
        "cpu": processor("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
