"""Checkpoints as bytes, for tests that change them."""

import io
from collections.abc import Mapping
from typing import Any

import torch

from poslab.training.checkpoints import writer


def to_bytes(content: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    writer(content)(buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
