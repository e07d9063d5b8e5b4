"""Made-up records of a study with every kind of arm."""

from pathlib import Path

from support.records import FLAT, LINES, STEEP, plan, write_rescaled, write_run

HOSTILE = "<script>window.poslabCanary=1</script>|[x](javascript:alert(1))"


def write_study(runs: Path) -> None:
    """Write arms with three seeds: rescaled, never or sometimes at the target, undefined past L, hostile."""
    same = {"config": {"evaluate": {"longest": 8}}}
    for seed in range(3):
        write_rescaled(runs, f"rope-{seed}", LINES, shift=0.01 * seed, seed=seed)
        write_run(runs, f"alibi-{seed}", "alibi", seed, sliding=FLAT, shift=0.9 + 0.02 * seed**2, **same)
        write_run(runs, f"late-{seed}", "late", seed, sliding=STEEP, shift=-0.1 + 0.5 * seed, **same)
        short = {"max_length": 8, "sliding": {1.0: 1.7}, "shift": 0.05 + 0.03 * seed, **same}
        write_run(runs, f"learned-{seed}", "learned", seed, **short)
        write_run(runs, f"hostile-{seed}", HOSTILE, seed, shift=-0.02 * seed, **same)
    write_run(runs, "gone", "t5", status="failed", reason="out of memory", **same)
    names = [f"{arm}-{seed}" for arm in ("rope", "alibi", "late", "learned", "hostile") for seed in range(3)]
    plan(runs, names, "rope")
