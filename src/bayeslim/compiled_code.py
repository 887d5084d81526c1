"""Whether code is being compiled, as opposed to run or exported."""

from __future__ import annotations

import torch

__all__ = ["compiling"]


def compiling() -> bool:
    """Whether `torch.compile` follows the code; an exporter does not count, which wants plain operations."""
    # Not `torch.compiler.is_exporting()`, which torch 2.11 answers by True in everything that it compiles.
    return torch.compiler.is_compiling() and not torch.compiler._is_exporting_flag
