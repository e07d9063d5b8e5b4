"""How much context a trained model makes use of: python benchmarks/context_used.py runs/STUDY/RUN ...

The same targets are scored with 2, 4, 8, ... tokens before them and no more. The loss less that with the
training length is what the missing context costs; the least context within 0.01 nats is what the model uses.
"""

import sys
from pathlib import Path

import numpy as np

import poslab
from poslab.config.checking import check
from poslab.config.request import Config
from poslab.data.cache import prepare
from poslab.data.segments import extrapolation_segments
from poslab.evaluation.losses import token_losses
from poslab.training.trained import read_trained_model

SCORED = 8  # targets at the end of a window, so one scored "with c tokens" has c to c + 7 before it
WINDOWS = 4_096
TOLERANCE = 0.01  # nats


def losses_by_context(run: Path) -> dict[int, float]:
    """Mean loss of the same targets by the number of tokens before them, up to the training length."""
    config = check(Config, read_trained_model(run).settings, "")
    length = config.context_length
    segments, _ = extrapolation_segments(prepare(config.data), config.evaluate.segments, 8 * length)
    random = np.random.default_rng(0)
    rows = random.integers(len(segments), size=WINDOWS)
    ends = random.integers(8 * length + SCORED, segments.shape[1], size=WINDOWS)
    gpt = poslab.load(run)
    losses = {}
    for context in [2**power for power in range(1, length.bit_length()) if 2**power + SCORED <= length] + [
        length - SCORED
    ]:
        window = ends[:, None] - np.arange(context + SCORED, -1, -1)
        windows = segments[rows[:, None], window]
        losses[context] = float(token_losses(gpt, windows[:, :-1], windows[:, 1:], SCORED).mean())
    return losses


def main(runs: list[str]) -> None:
    if not runs:
        raise SystemExit(__doc__)
    for run in map(Path, runs):
        losses = losses_by_context(run)
        whole = losses[max(losses)]
        enough = min(context for context, loss in losses.items() if loss <= whole + TOLERANCE)
        print(f"{run.name}: {whole:.3f} nats with {max(losses)} tokens before a target; what fewer cost:")
        print("  " + "  ".join(f"{context}: {loss - whole:+.3f}" for context, loss in losses.items()))
        print(f"  within {TOLERANCE} nats from {enough} tokens on")


if __name__ == "__main__":
    main(sys.argv[1:])
