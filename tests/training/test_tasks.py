"""Tasks: each sample has one right answer, and no test sample occurs in training."""

import re
from itertools import permutations

import numpy as np
import pytest

from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.objectives import UNSCORED, build_objective
from poslab.objectives.tasks import Draw, Task, TaskOptions, asked
from poslab.study.run.plan import plan
from support.models import CONF
from support.runs import request

TASKS = {name: option["objective"] for name, option in arms(CONF / "task").items()}


def text_of(tokens):
    return bytes(tokens.astype(np.uint8)).decode()


def read(tokens, targets):
    """Return the input before the first scored token, the expected answer, and the whole text."""
    whole = text_of(np.append(tokens, targets[-1] if targets[-1] != UNSCORED else ord(" ")))
    answer = "".join(chr(target) for target in targets if target != UNSCORED)
    first = np.flatnonzero(targets != UNSCORED)[0]
    return whole[: first + 1], answer, whole


def plain_sum(prompt):
    first, second = prompt[:-1].split("+")
    total = int(first[::-1]) + int(second[::-1])
    return str(total)[::-1].ljust(len(first) + 1, "0")


def followed(prompt):
    """Return 12345 after each permutation of a prompt, one swap table at a time."""
    orders = ["".join(order) for order in permutations("01234")]
    things = "12345"
    for first, second in re.findall("([A-J])([a-l])", prompt):
        order = orders[(ord(first) - ord("A")) * 12 + ord(second) - ord("a")]
        things = "".join(things[int(place)] for place in order)
    return things


def recalled(whole):
    stated, asked = whole.rstrip().split("|", 1) if whole.count("|") == 1 else whole.split("|", 1)
    value = dict(zip(stated[::2], stated[1::2], strict=True))
    return "".join(value[key] for key in asked.rstrip()[::2])


def flipped(whole):
    memory, answer = "", ""
    for instruction, bit in re.findall("([wir])([01])", whole):
        if instruction == "w":
            memory = bit
        if instruction == "r":
            answer += memory
    return answer


SOLVED = {  # the expected answer from the prompt, or from the whole text
    "copy": lambda prompt, whole: prompt[:-1] + "\n",
    "reverse": lambda prompt, whole: "".join(reversed(prompt[:-1])) + "\n",
    "sort": lambda prompt, whole: "".join(sorted(prompt[:-1])) + "\n",
    "addition": lambda prompt, whole: plain_sum(prompt) + "\n",
    "parity": lambda prompt, whole: str(sum(bit == "1" for bit in prompt[:-1]) % 2) + "\n",
    "recall": lambda prompt, whole: recalled(whole),
    "permutations": lambda prompt, whole: followed(prompt[:-1]) + "\n",
    "flip_flop": lambda prompt, whole: flipped(whole),
}


@pytest.mark.parametrize("name", TASKS)
def test_an_independent_solver_agrees_with_every_answer(name):
    """3,000 samples of training of all its sizes, and 100 of each of three test sizes."""
    objective = build_objective({**TASKS[name], "samples": 100})
    windows = np.zeros((3_000, objective.needs() + 1), dtype=np.int64)
    batches = [objective.of_step(windows, 257, seed=0, step=0)]
    batches += [objective.tests(size) for size in (objective.options.shortest, 9, objective.options.tested)]
    lengths = set()
    for tokens, targets in batches:
        for row, target in zip(tokens, targets, strict=True):
            prompt, answer, whole = read(row, target)
            assert SOLVED[name](prompt, whole) == answer, whole
            lengths.add(len(whole.rstrip(" ")))
    assert len(lengths) > 5


def test_hints_name_the_place_of_each_digit():
    objective = build_objective({**TASKS["addition"], "hints": True, "samples": 200})
    for row, target in zip(*objective.tests(4), strict=True):
        prompt, answer, _ = read(row, target)
        terms = re.fullmatch(r"((?:[a-d]\d){4})\+((?:[a-d]\d){4})=", prompt)
        assert "".join(re.findall("[a-z]", answer)) == "abcde"
        bare = "+".join(re.sub("[a-z]", "", term) for term in terms.groups()) + "="
        assert re.sub("[a-z]", "", answer) == plain_sum(bare) + "\n"


def test_recall_asks_for_keys_in_another_order_than_in_the_text():
    objective = build_objective({**TASKS["recall"], "samples": 50})
    same = 0
    for sample in zip(*objective.tests(6), strict=True):
        stated, asked_for = read(*sample)[2].rstrip().split("|", 1)
        assert sorted(stated[::2]) == sorted(asked_for[::2])
        same += stated[::2] == asked_for[::2]
    assert same < 5


@pytest.mark.parametrize("name", TASKS)
def test_no_test_sample_occurs_in_training(name):
    """At the smallest sizes, where nearly all samples are drawn more than once."""
    shortest = TASKS[name]["shortest"]
    section = {**TASKS[name], "longest": shortest + 1, "tested": shortest + 1}
    objective = build_objective(section)
    tested = set()
    for size in (shortest, shortest + 1):
        tested |= {read(*sample)[2].strip(" ") for sample in zip(*objective.tests(size), strict=True)}
    width = objective.needs() + 1
    trained, validated = (
        {read(*sample)[2].strip(" ") for sample in zip(*batch, strict=True)}
        for batch in (
            objective.of_step(np.zeros((4000, width), dtype=np.int64), 257, 3, 1),
            objective.of_evaluation(np.zeros((200, width), dtype=np.int64), 257),
        )
    )
    assert not trained & (tested | validated)


def test_samples_begin_anywhere_if_requested():
    objective = build_objective({**TASKS["copy"], "offset": True})
    tokens, targets = objective.of_step(np.zeros((300, 50), dtype=np.int64), 257, 0, 0)
    begins = [len(text) - len(text.lstrip()) for text in map(text_of, tokens)]
    assert min(begins) == 0
    assert max(begins) > 30
    for row, target in zip(tokens, targets, strict=True):
        prompt, answer, _ = read(row, target)
        assert prompt.strip()[:-1] + "\n" == answer


def test_a_task_needs_no_text(tmp_path):
    copy = {"objective": TASKS["copy"], "data": arms(CONF / "data")["none"]}
    assert plan(request(**copy, context_length=8192, evaluate__longest=8), tmp_path)


def test_a_task_with_too_few_samples_to_keep_some_for_tests_is_refused():
    class One(Task):
        def sample(self, size, draw):
            return asked(b"a=", b"b")

    options = TaskOptions(shortest=1, longest=2, tested=3, samples=4, offset=False)
    random = np.random.Philox(0)
    with pytest.raises(ConfigError, match="too few different samples"):
        [One(options).drawn(1, Draw(random), for_tests) for for_tests in (True, False)]
