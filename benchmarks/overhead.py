"""Measure processor time of a four-step run: a bare Lightning script, `poslab.train`, the whole command.

    python benchmarks/overhead.py rounds=5

The same model, steps and text, each in a separate process, in turns, on one thread. Ratios are to the
script; most of the time of all three is for importing PyTorch and Lightning.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = [
    *("pos=rope", "data=copy", "data.tokens=60000", "logger=local", "trainer.accelerator=cpu"),
    *("trainer.max_steps=4", "evaluate.validations=1", "evaluate.validation_windows=4"),
    *("evaluate.longest=2", "evaluate.segments=2", "evaluate.sliding_windows=2"),
]

BARE = """
import pytorch_lightning as lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import poslab
from poslab.model.gpt import build

config = poslab.compose(*SETTINGS).config

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt = build(config, 256)

    def training_step(self, windows, index):
        return cross_entropy(self.gpt(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    def validation_step(self, windows, index):
        self.log("loss", self.training_step(windows, index))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)

size, length = config.trainer.batch_size, config.context_length
batches = [torch.randint(256, (size, length + 1)) for _ in range(4)]
trainer = lightning.Trainer(accelerator="cpu", max_steps=4, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer.fit(Model(), DataLoader(batches, batch_size=None), DataLoader([batches[0][:4]], batch_size=None))
"""
TRAIN = """
import poslab

poslab.train(poslab.compose(*SETTINGS), "runs/mine")
"""


def seconds(*command: str) -> float:
    """Return the processor time of a command and its child processes, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        child = os.fork()
        if not child:
            os.chdir(folder)
            out = os.open(os.devnull, os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.execv(command[0], command)
        _, status = os.waitpid(child, 0)
        after = os.times()
    if status:
        raise SystemExit(f"{' '.join(command)[:200]} ended with status {os.waitstatus_to_exitcode(status)}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def main(rounds: int) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    listed = f"SETTINGS = {SETTINGS!r}\n"
    commands = {
        "bare": (sys.executable, "-W", "ignore", "-c", listed + BARE),
        "train": (sys.executable, "-c", listed + TRAIN),
        "command": (sys.executable, str(ROOT / "train.py"), "launcher.cores_per_run=1", *SETTINGS),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            measured = seconds(*command)
            if number:  # the first round prepares the text and Python's bytecode
                taken[name].append(measured)
    for name in ("train", "command"):
        ratios = [measured / bare for measured, bare in zip(taken[name], taken["bare"], strict=True)]
        print(
            f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the script"
        )


if __name__ == "__main__":
    main(int(sys.argv[1].removeprefix("rounds=")) if sys.argv[1:] else 5)
