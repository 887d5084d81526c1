"""Whether code is being compiled or recorded, and what torch knows about its own transforms."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["compiling", "inside", "recorded"]

inside: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
"""What torch knows about its own transforms, such as `torch.vmap`."""


def compiling() -> bool:
    """Whether `torch.compile` follows the code; an exporter does not count, which wants plain operations."""
    # Not `torch.compiler.is_exporting()`, which torch 2.11 answers by True in everything that it compiles.
    return torch.compiler.is_compiling() and not torch.compiler._is_exporting_flag


def recorded() -> bool:
    """Whether somebody writes down which functions of torch run: a compiler, an exporter, a tracer or a mode."""
    return torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0
