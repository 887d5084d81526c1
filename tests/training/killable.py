"""A training run that may be killed at any moment; `python killable.py FOLDER EPOCHS` starts or resumes it."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=generator)
    return x, x[:, :2] + 0.3 * torch.randn(64, 2, generator=generator)


def network() -> nn.Sequential:
    """Sampled weights, dropout and batch statistics: all the state that a run can have."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    bl.bayesianize_(model, estimator=bl.weight_sample)
    return model


def run(folder: Path | None, epochs: int) -> tuple[nn.Sequential, Gaussian]:
    """Train, from the checkpoint in `folder` if there is one."""
    model, likelihood = network(), Gaussian(learn_noise=True)
    loader = DataLoader(TensorDataset(*data()), 16, shuffle=True)
    bl.fit(
        model,
        loader,
        likelihood=likelihood,
        epochs=epochs,
        lr=0.01,
        lr_schedule=bl.schedules.cosine_cycles(2),
        kl_schedule=bl.schedules.warmup_linear(5, 20),
        pretrain_epochs=3,
        clip_norm=5.0,
        checkpoint=folder,
        resume=True,
        seed=0,
    )
    return model, likelihood


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
