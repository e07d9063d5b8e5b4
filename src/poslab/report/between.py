"""What makes arms hard to compare where not all runs share it; told by study where there are several."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from poslab.config.text import listing, plain
from poslab.record.reader import Run


@dataclass(frozen=True)
class Question:
    """Something of a run that all should share, and what is said where they do not."""

    value: Callable[[Run], object]
    within: str  # {} stands for the values
    between: str  # of several studies, which come first in the sentence; {} stands for the values of each
    but: str = ""  # what follows from it


QUESTIONS = (
    Question(
        lambda run: run.data_fingerprint,
        "The data differ (fingerprints {})",
        "have data of different fingerprints ({})",
        ": no difference or target is taken across them",
    ),
    Question(
        lambda run: run.manifest.code,
        "The runs were made by different code ({})",
        "were made by different code ({})",
    ),
    Question(
        lambda run: run.manifest.code_evaluation,
        "The runs were evaluated by different code ({})",
        "were evaluated by different code ({})",
        ": evaluate them again by their studies' commands",
    ),
    Question(
        lambda run: run.context_length,
        "The training lengths differ (L = {})",
        "trained at different lengths L ({})",
        ": lengths are shown as multiples of L",
    ),
    Question(
        lambda run: run.budget,
        "The budgets differ ({} training tokens)",
        "had different budgets ({} training tokens)",
    ),
    Question(
        lambda run: run.vocabulary,
        "The vocabularies differ ({} tokens)",
        "have different vocabularies ({} tokens)",
        ": compare bits per byte, not nats a token",
    ),
    Question(
        lambda run: run.manifest.device,
        "The devices differ ({})",
        "ran on different devices ({})",
        ": speeds and seconds do not compare",
    ),
    Question(
        lambda run: run.manifest.precision,
        "The precisions differ ({})",
        "ran in different precisions ({})",
    ),
)


def differences(runs: Sequence[Run]) -> list[str]:
    """A sentence for each question that not all `runs` answer alike."""
    found = [_differing(question, runs) for question in QUESTIONS]
    return [said for said in found if said is not None] + _parts(runs)


def _differing(question: Question, runs: Sequence[Run]) -> str | None:
    values = list(dict.fromkeys(question.value(run) for run in runs))
    if len(values) < 2:
        return None
    by_study = _by_study(runs, question.value)
    if _alike(by_study):
        return f"{question.within.format(_shown(values))}{question.but}."
    return f"{_names(by_study)} {question.between.format(_told(by_study))}{question.but}."


def _parts(runs: Sequence[Run]) -> list[str]:
    """Schemes and attentions whose own code is not the same in all studies, where what all share is."""
    if len({run.manifest.code for run in runs}) > 1:
        return []  # said already
    wholes: dict[str, list[Run]] = {}
    for run in runs:
        wholes.setdefault(f"{plain(run.pos, 80)} / {plain(run.attention, 80)}", []).append(run)
    found = []
    for whole, made in wholes.items():
        by_study = _by_study(made, lambda run: run.manifest.code_parts)
        mixed = {study: answers for study, answers in by_study.items() if len(answers) > 1}
        if mixed and _alike(by_study):
            found.append(
                f"The runs of {whole} were made by different code ({_shown(by_study[made[0].study])})."
            )
        if not _alike(by_study):
            found.append(f"{_names(by_study)} made {whole} by different code ({_told(by_study)}).")
    return found


def _by_study(runs: Iterable[Run], value: Callable[[Run], object]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for run in runs:
        answers = found.setdefault(run.study, [])
        if (answer := value(run)) not in answers:
            answers.append(answer)
    return found


def _alike(by_study: Mapping[str, Sequence[object]]) -> bool:
    return len({frozenset(answers) for answers in by_study.values()}) == 1


def _names(by_study: Iterable[str]) -> str:
    return listing([plain(study, 80) for study in by_study])


def _told(by_study: Mapping[str, Sequence[object]]) -> str:
    """a and b: c0de; c: beef and f00d"""
    studies: dict[frozenset[object], list[str]] = {}
    for study, answers in by_study.items():
        studies.setdefault(frozenset(answers), []).append(study)
    return "; ".join(f"{_names(names)}: {_shown(by_study[names[0]])}" for names in studies.values())


def _shown(values: Sequence[object]) -> str:
    return listing([f"{value:,}" if isinstance(value, int) else plain(value, 60) for value in values])
