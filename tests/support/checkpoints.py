"""Checkpoints as bytes, for tests that change them."""

import hashlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from poslab.record.manifest import read_manifest
from poslab.record.schema import FINAL
from poslab.record.writer import RunRecord
from poslab.training.checkpoints import writer


def to_bytes(content: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    writer(content)(buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def rewrite_weights(directory: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Apply `change` to a run's final weights, and update their checksum in the record."""
    data = to_bytes(change(from_bytes((directory / FINAL).read_bytes())))
    (directory / FINAL).write_bytes(data)
    record = RunRecord(directory, read_manifest(directory))
    record.update(files={**(record.manifest.files or {}), FINAL: hashlib.sha256(data).hexdigest()})
