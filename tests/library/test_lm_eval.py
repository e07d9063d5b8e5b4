"""Runs under the lm-evaluation-harness, by its own program, on tasks of local files."""

import importlib
import json
import runpy
import sys

import lm_eval
import numpy as np
import pytest
import torch
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

import poslab
from poslab.lm_eval import PoslabLM
from support.runs import make, request

CHOICES = [
    {"question": "the whale", "choices": [" said", " of the ship"], "gold": 0},
    {"question": "a", "choices": ["hab and the sea", "b"], "gold": 1},
    {"question": "x" * 70, "choices": ["y" * 50, "z"], "gold": 0},  # longer than a window of 32
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder / "lm" / make(request("lm", trainer__max_steps=6), folder).run


@pytest.fixture
def task(tmp_path):
    """Three tasks of local files: choices by likelihood, the loss of a text, and an answer to generate."""
    (tmp_path / "choices.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CHOICES))
    files = {"data_files": {"test": str(tmp_path / "choices.jsonl")}}

    def asked(task, output_type, metric, **more):
        common = {"dataset_path": "json", "dataset_kwargs": files, "test_split": "test"}
        own = {"task": task, "output_type": output_type, "metric_list": [{"metric": metric}]}
        return {**common, **own, "doc_to_text": "{{question}}", **more}

    choices = {"doc_to_choice": "{{choices}}", "doc_to_target": "gold", "target_delimiter": ""}
    answer = {"doc_to_target": "{{choices[0]}}", "generation_kwargs": {"until": ["\n"], "max_gen_toks": 3}}
    whole = {"doc_to_text": "", "doc_to_target": "{{question}}"}
    return [
        asked("chosen", "multiple_choice", "acc", **choices),
        asked("text", "loglikelihood_rolling", "bits_per_byte", **whole),
        asked("written", "generate_until", "exact_match", **answer),
    ]


def likelihood(gpt, context, continuation):
    """Return the log-likelihood of a continuation that fits into one window."""
    whole = list((context + continuation).encode())
    with torch.inference_mode():
        logs = gpt(torch.tensor([whole[:-1]]))[0].double().log_softmax(-1)
    asked = whole[len(context.encode()) :]
    return sum(float(logs[len(whole) - 1 - len(asked) + i, token]) for i, token in enumerate(asked))


def test_answers_are_those_of_the_model(run, task):
    assert get_model("poslab") is PoslabLM
    results = lm_eval.simple_evaluate(
        model="poslab",
        model_args=f"run={run}",
        tasks=task,
        task_manager=TaskManager(include_defaults=False),  # reading the harness's own tasks takes seconds
        log_samples=True,
        bootstrap_iters=0,
    )
    gpt = poslab.load(run)
    chosen, rolled, written = (results["samples"][name] for name in ("chosen", "text", "written"))
    assert len(chosen) == len(rolled) == len(written) == 3
    for sample, each in zip(chosen[:2], CHOICES, strict=False):
        found = [response[0] for response in sample["filtered_resps"]]
        expected = [likelihood(gpt, each["question"], choice) for choice in each["choices"]]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert sample["acc"] == float(np.argmax(expected) == each["gold"])
    assert all(np.isfinite(response[0]) for response in chosen[2]["filtered_resps"])
    expected = likelihood(gpt, "\0", CHOICES[0]["question"])
    assert rolled[0]["filtered_resps"][0] == pytest.approx(expected, abs=1e-5)
    tokens = list(CHOICES[0]["question"].encode())
    with torch.inference_mode():
        for _ in range(3):
            tokens.append(int(gpt(torch.tensor([tokens]))[0, -1].argmax()))
    text = bytes(tokens[-3:]).decode(errors="replace").split("\n")[0]
    assert written[0]["filtered_resps"][0].rstrip("\0") == text.rstrip("\0")


def test_without_the_harness_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    monkeypatch.delitem(sys.modules, "poslab.lm_eval")
    with pytest.raises(SystemExit, match=r"^poslab: poslab.lm_eval needs lm-eval: uv run --extra eval "):
        runpy.run_module("poslab.lm_eval", run_name="__main__")
    with pytest.raises(ImportError, match="needs lm-eval"):
        importlib.import_module("poslab.lm_eval")
