"""What holds for every test."""

import pytest
import torch


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs CUDA: run make test-cuda on a machine with an NVIDIA GPU")
