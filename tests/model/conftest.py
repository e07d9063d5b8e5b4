"""What the files on parity with the transformers library share."""

import pytest
import torch


@pytest.fixture
def in_float64(monkeypatch):
    """The library's code computes in float64, where it forces float32 too."""
    from support.parity import IN_FLOAT32, TorchInFloat64  # imports the library, which takes seconds

    for module in IN_FLOAT32:
        monkeypatch.setattr(module, "torch", TorchInFloat64())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def seeded():
    torch.manual_seed(0)
