"""`bayeslim export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from bayeslim.data.preprocessing import Inputs

__all__ = ["command"]

FILES = {
    "onnx": "network.onnx",
    "program": "network.pt2",
    "safetensors": "network.plain.safetensors",
    "slim": "network.slim.safetensors",
}
"""Format -> name of the file in the run's folder."""


def command(
    run: Path,
    /,
    *,
    format: Literal["onnx", "program", "safetensors", "slim"] = "onnx",
    out: Path | None = None,
    samples: int | None = None,
    moments: bool = False,
    bits: Literal[16, 8] = 16,
    network: Literal["auto", "trained", "pruned"] = "auto",
) -> None:
    """Write the network of a run for use without bayeslim.

    The exported network takes prepared inputs; how to prepare them stands in preprocessing.json of the run.

    Args:
        run: folder of the run.
        format: onnx; program (torch.export, .pt2); safetensors (plain torch weights); slim (16 or 8 bit, for
            bayeslim's own load_slim).
        out: the file; default: in the folder of the run.
        samples: onnx only: hold this many posterior samples and output mean, epistemic and aleatoric variance; default
            is the mean network.
        moments: onnx only: output mean and variance of the raw output, in one pass.
        bits: slim only: bits per weight.
        network: the trained or the pruned one; auto takes the pruned one where there is one.
    """
    from bayeslim import export
    from bayeslim.runs import Run

    if format != "onnx" and (samples is not None or moments):
        raise ValueError(f"--samples and --moments are for --format onnx, not {format}: leave them out")
    opened = Run(run)
    model = opened.model(network)
    path = out or run / FILES[format]
    if format == "slim":
        export.save_slim(model, path, bits=bits)
    elif format == "safetensors":
        export.export_torch(model, path)
    else:
        example = _example(opened.preprocessing.inputs)
        if format == "program":
            export.export_program(model, path, example)
        else:
            export.export_onnx(model, path, example, samples=samples, moments=moments)
    print(f"{path}: {path.stat().st_size / 1024:.1f} KiB")


def _example(inputs: Inputs) -> Tensor:
    """Two rows such as the network takes, made up: the data may be gone. Not zeros, which would hide lost options."""
    import torch

    from bayeslim.data.text_inputs import TextInputs

    generator = torch.Generator().manual_seed(0)
    if isinstance(inputs, TextInputs):
        return torch.randint(inputs.vocabulary, (2, *inputs.shape), generator=generator)
    return torch.randn(2, *inputs.shape, generator=generator)
