"""The model that a finished run has left."""

from pathlib import Path
from typing import Any

from poslab.checkpoint import unpacked
from poslab.config import Config, ConfigError, check
from poslab.model import GPT, build
from poslab.record import FINAL, DamagedError, damaged_files, read_manifest


def load(directory: Path) -> GPT:
    """The trained model of a run directory, in evaluation mode on the CPU. Raises DamagedError."""
    manifest = read_manifest(directory)
    if manifest is None or FINAL not in (manifest.get("files") or {}):
        raise ConfigError(f"{directory} holds no finished run")
    if FINAL in damaged_files(directory, manifest):
        raise DamagedError(f"{directory / FINAL} is damaged")
    saved = unpacked((directory / FINAL).read_bytes())
    sections: dict[str, Any] = {
        "study": "loaded",
        "question": None,
        "tune": {"factors": [], "seeds": []},
        "reference": None,
        "logger": {"name": "local"},
        "launcher": {"name": "local"},
    }
    trainer = {**saved["config"]["trainer"], "checkpoint_seconds": 0}
    earlier = {"probe": {"tasks": []}, "part": "comparison"}  # what checkpoints from before them stand for
    config = check(Config, {**earlier, **saved["config"], **sections, "trainer": trainer}, "")
    gpt = build(config, saved["weights"]["embedding.weight"].shape[0])
    gpt.load_state_dict(saved["weights"])
    return gpt.eval()
