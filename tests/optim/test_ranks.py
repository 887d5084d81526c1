"""Two processes that train one network together keep the same weights."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from bayeslim.optim import CVAdam


def train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = CVAdam(model.parameters(), num_data=100, lr=0.1, seed=5)
    torch.manual_seed(rank)  # data and torch's own noise differ
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
    torch.save([parameter.detach() for parameter in model.parameters()], f"{folder}/weights-{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
def test_ranks_stay_together(tmp_path: Path) -> None:
    spawn(train, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"weights-{rank}") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
