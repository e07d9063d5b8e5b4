"""The title of a report: the study's question, its name, or a description of the comparison."""

from poslab.analysis.results import Results
from poslab.config.text import listing
from poslab.record.study_list import UNNAMED

NAMED = 3  # a title names up to three schemes; if there are more, the first two
FITTED = {"evaluate.": "context_length", "trainer.warmup_steps": "trainer.max_steps"}  # keys follow values


def title(results: Results) -> str:
    """Return the study's only question, else its name; for a study without either, what is compared."""
    if len(results.questions) == 1:
        return results.questions[0]
    return compared(results) if results.study == UNNAMED else results.study


def compared(results: Results) -> str:
    """Return what is compared: rope and alibi, one run each; rope, alibi and 4 more, 5 seeds each."""
    schemes = list(dict.fromkeys(item.arm.pos for item in results.arms))
    text = listing(schemes, NAMED if len(schemes) <= NAMED else NAMED - 1)
    if len(schemes) < len(results.arms):
        ways = ["attention" if key.startswith("attention.") else key for key in results.differing]
        ways = ["text" if key.startswith("data.") and results.texts else key for key in ways]
        if not results.has_losses:
            of_task = "objective.", "context_length", "trainer.max_steps", "trainer.warmup_steps"
            ways = ["task" if key.startswith(of_task) else key for key in ways]
        options = [key for key in ways if key.startswith("pos.") and key != "pos.name"]
        varied = [key for key in dict.fromkeys(ways) if not key.startswith("pos.")] or options
        fitted = [key for key, followed in FITTED.items() if followed in results.differing]
        tuned = ["trainer.learning_rate", "trainer.scheme_rate"] if results.tunings else []
        varied = [key for key in varied if not key.startswith((*fitted, *tuned))] or varied
        text += f" by {listing(varied, NAMED)}" if varied else f", {len(results.arms)} arms"
    return f"{text}, {_runs(results)}"


def _runs(results: Results) -> str:
    """Return the arms' number of finished runs in words."""
    counts = [len(item.rows) for item in results.arms]
    runs = "one run" if max(counts) == 1 else f"{max(counts)} seeds"
    return f"{'at most ' if min(counts) < max(counts) else ''}{runs}{' each' if len(counts) > 1 else ''}"
