"""poslab's protocols give models of transformers the losses that transformers itself computes."""

import math
import re
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

import poslab
from poslab.analysis.results import gather
from poslab.commands.evaluate import main as evaluate
from poslab.config.schema import ConfigError
from poslab.data.cache import prepare
from poslab.data.needles import Needle, room
from poslab.data.segments import extrapolation_segments
from poslab.library import from_transformers
from poslab.library.evaluate_transformers import evaluate_transformers, show
from poslab.measures import Trained
from poslab.measures.needles import Needles
from poslab.objectives import UNSCORED
from poslab.paper.methods import paragraph
from poslab.record.reader import load_run
from poslab.report.write import write_report
from poslab.study.display.run_bar import RunDisplay
from poslab.study.run.plan import resolve
from support.commands import read
from support.texts import trained_tokenizer, words, write_documents

L, LONGEST = 16, 4
DRAWN = {"vocab_size": 320, "initializer_range": 0.3}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ROTARY = {**DRAWN, **SMALL, "intermediate_size": 32, "max_position_embeddings": L}
DENSE = {"intermediate_size_mlp": 32, "moe_layers": [], "pad_token_id": 0}
SPECIAL = {f"{kind}_token_id": 0 for kind in ("pad", "bos", "eos", "cls", "sep")}
GPT = {**DRAWN, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": L}
XGLM = {"ffn_dim": 32, "max_position_embeddings": L}
FAMILIES = {
    family: AutoConfig.for_model(family, **settings)
    for family, settings in {
        "llama": ROTARY,
        "qwen3": {**ROTARY, "num_key_value_heads": 1, "head_dim": 8},
        "llama4_text": {**ROTARY, **DENSE, "num_key_value_heads": 2, "head_dim": 8},
        "gpt_neox": {**ROTARY, "rotary_pct": 0.5},
        "bloom": {**DRAWN, "hidden_size": 16, "n_layer": 2, "n_head": 2},
        "mpt": {**DRAWN, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": L},
        "mamba": {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
        "modernbert-decoder": {**ROTARY, **SPECIAL},
        "gptj": {**GPT, "rotary_dim": 4},
        "ctrl": {**GPT, "dff": 32},
        "xglm": {"vocab_size": 320, "d_model": 16, "num_layers": 2, "attention_heads": 2, **XGLM},
        "gpt2": GPT,
    }.items()
}
SPREAD = " ".join(f"{number:04}" for number in range(2_000))
FEW = ["evaluate.segments=3", "evaluate.sliding_windows=6"]


@pytest.fixture(scope="module", autouse=True)
def composed_once():
    """Compose the same settings only once, since composing takes as long as measuring."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poslab.library.evaluate_transformers.compose", cache(poslab.compose))
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("texts") / "text", 30)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Write a model with random weights as transformers does, once; return its folder."""
    models = tmp_path_factory.mktemp("models")

    @cache
    def written(family):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(FAMILIES[family]).save_pretrained(models / family)
        return models / family

    return written


@pytest.fixture
def folder(tmp_path, saved):
    """Copy such a model for a test, once; return the copy."""
    return cache(lambda family: Path(shutil.copytree(saved(family), tmp_path / family)))


def measured(folder, text, *settings, lengths=(L, LONGEST * L)):
    of_text = ["data=text", f"data.path={text}"]
    runs = folder.parent / "runs"
    return evaluate_transformers(str(folder), [*of_text, *FEW, *settings], runs, lengths=lengths)


def corpus_of(text, vocabulary="bytes"):
    return prepare({"source": "text", "path": str(text), "field": None, "vocabulary": str(vocabulary)})


def segments_of(corpus, longest=LONGEST * L, documents="single"):
    return extrapolation_segments(corpus, 3, longest, documents)[0]


def own_losses(model, segments, length):
    """Return transformers' loss of each target in the segments' second halves, in adjacent windows."""
    longest = segments.shape[1] // 2
    losses = []
    for segment in torch.from_numpy(segments):
        for end in range(longest + length, 2 * longest + 1, length):
            window = segment[end - length : end + 1][None]
            logits = model(input_ids=window[:, :-1]).logits
            losses.append(torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="none"))
    return torch.cat(losses).double().numpy().reshape(len(segments), longest)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_equal_those_of_transformers_at_every_length(family, folder, text, monkeypatch):
    monkeypatch.setattr(from_transformers, "LOGITS", 7 * 320)  # logits for seven tokens at a time
    directory = measured(folder(family), text)
    longer = {"max_seq_len": LONGEST * L} if family == "mpt" else {}  # the reach of its biases
    model = AutoModelForCausalLM.from_pretrained(folder(family), **longer)
    segments = segments_of(corpus_of(text))
    tiled = [row for row in read(directory / "extrapolation.csv") if row["protocol"] == "non_overlapping"]
    has_table = family in ("gpt2", "gptj", "ctrl")  # of positions, which ends at L
    reached = [L // 2, L] if has_table else [L // 2, L, 2 * L, 4 * L]
    assert list(dict.fromkeys(int(row["length"]) for row in tiled)) == reached
    for length in reached:
        with torch.no_grad():
            expected = own_losses(model, segments, length).mean(axis=1)
        found = [float(row["nll"]) / int(row["tokens"]) for row in tiled if int(row["length"]) == length]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_rotations_are_rescaled_as_transformers_rescales_them(family, folder, text):
    directory = measured(folder(family), text, "evaluate.rescale=[none,pi,ntk,dynamic,yarn]")
    segments = segments_of(corpus_of(text))
    table = pandas.read_csv(directory / "rescaled.csv")
    table = table[table.protocol == "non_overlapping"]
    width = 8 if family == "llama" else 4
    own = FAMILIES[family].rope_parameters["rope_theta"]
    ropes = {
        "pi": {"rope_type": "linear", "factor": 4.0},
        "ntk": {"rope_type": "default", "rope_theta": own * 4 ** (width / (width - 2))},
        "dynamic": {"rope_type": "dynamic", "factor": 1.0},
        "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": L},
    }
    for method, changed in ropes.items():
        config = AutoConfig.from_pretrained(folder(family))
        config.rope_parameters = {**config.rope_parameters, **changed}
        model = AutoModelForCausalLM.from_pretrained(folder(family), config=config)
        for length in (L // 2, L, 2 * L, 4 * L):  # upwards, as their dynamic frequencies are updated
            with torch.no_grad():
                expected = own_losses(model, segments, length).mean(axis=1)
            found = table[(table.rescale == method) & (table.length == length)]
            np.testing.assert_allclose(found.nll / found.tokens, expected, rtol=0, atol=1e-6, err_msg=method)


def test_a_models_own_tokenizer_encodes_the_text_and_bits_are_per_byte_of_it(folder, tmp_path):
    path = folder("llama")
    trained_tokenizer(path / "tokenizer.json", [words(2_000, 0)])
    short = write_documents(tmp_path / "short", 200, size=40)
    directory = measured(path, short, "evaluate.documents=joined", "evaluate.needles=4", lengths=(64, 256))
    corpus = corpus_of(short, path / "tokenizer.json")
    run = load_run(directory)
    assert run.vocabulary == corpus.vocabulary
    assert run.context_length == 64
    segments = segments_of(corpus, 256, "joined")
    spelled = corpus.decode(segments[:, -256:].flatten())
    assert (segments == corpus.separator).any()  # which the model reads as its own end of text
    segments[segments == corpus.separator] = FAMILIES["llama"].eos_token_id
    with torch.no_grad():
        nll = own_losses(AutoModelForCausalLM.from_pretrained(path), segments, 64).sum()
    tiled = run.segments["non_overlapping", 1.0].values()
    assert sum(part.nll for part in tiled) == pytest.approx(nll, abs=1e-3)
    assert sum(part.bytes for part in tiled) == len(spelled)
    assert {row["multiple"] for row in read(directory / "needles.csv")} == {"2", "4"}  # shorter: no room


def test_a_model_without_an_end_of_text_token_is_measured_in_single_documents(folder, text):
    """As in models exported by poslab, which read no separator."""
    path = folder("llama")
    change(path / "config.json", '"eos_token_id": 2', '"eos_token_id": null')
    trained_tokenizer(path / "tokenizer.json", [SPREAD], 320)
    assert measured(path, text).is_dir()
    with pytest.raises(ConfigError, match="documents=single"):
        measured(path, text, "evaluate.documents=joined")


def test_needles_are_in_the_tokens_of_the_tokenizer(text, tmp_path, monkeypatch):
    path = trained_tokenizer(tmp_path / "tokenizer.json", [words(2_000, 0), "The key of 48 31 20 95"])
    corpus, asked = corpus_of(text, path), []

    def spied(model, tokens, targets, last):
        asked.append((np.append(tokens, targets[:, -1:], axis=1), targets[:, -last:]))
        return np.zeros((len(tokens), last))

    monkeypatch.setattr("poslab.evaluation.losses.token_losses", spied)
    settings = "context_length=128", "evaluate.longest=1", "evaluate.needles=4", f"data.vocabulary={path}"
    config = poslab.compose(*settings).config
    model = SimpleNamespace(scheme=SimpleNamespace(max_length=None), to=lambda device: None)
    trained = Trained(model, resolve(config), corpus, RunDisplay("", quiet=True), lambda: None)
    drawn = [row for row in Needles().measure(trained) if row["multiple"] == "1"]
    assert len(drawn) == len(asked) == 2 * 5
    assert not any(row["right"] for row in drawn)  # all are equally likely, and a tie is wrong
    for windows, scored in asked[5:]:  # several facts
        for number, (window, tokens) in enumerate(zip(windows, scored, strict=True)):
            spelled = corpus.decode(window[window != UNSCORED])
            answer = corpus.decode(tokens[tokens != UNSCORED]).decode()
            *facts, (name, _) = re.findall(rb"\nThe key of (\w) is (\d+)", spelled)
            assert len(facts) == 4
            assert (dict(facts)[name].decode() == answer.strip()) == (number % 4 == 0)


def test_a_report_has_intervals_over_documents_and_no_sentence_on_training(folder, text, tmp_path, capsys):
    for family in ("llama", "gpt_neox"):
        directory = measured(folder(family), text, "evaluate.rescale=[none,yarn]")
    show(directory)
    assert "YaRN s=4" in capsys.readouterr().out
    report = write_report("hf", tmp_path / "runs", tmp_path / "reports")
    page = (report.directory / "report.md").read_text()
    assert "Pretrained models" in page
    of_training = "Learning rate", "per parameter", "callback", "Budget", "Tokens to target", "of its budget"
    assert not [said for said in of_training if said in page]
    methods = "".join(paragraph(gather("hf", tmp_path / "runs", None)))
    assert not [said for said in ("We trained", "optimizer", "AdamW", "learning rate") if said in methods]
    table = pandas.read_csv(report.directory / "pretrained.csv")
    yarn = table[(table.arm == "gpt_neox") & (table.rescale == "yarn")].iloc[0]
    run = load_run(directory)
    changes = [
        sum(part.nll for part in found.values()) / sum(part.bytes for part in found.values()) / math.log(2)
        for found in (run.rescaled["yarn"].segments["sliding", 4.0], run.segments["sliding", 4.0])
    ]
    assert yarn.change_4x_mean == pytest.approx(changes[0] - changes[1])
    assert yarn.change_4x_half_width > 0


@pytest.mark.parametrize(
    ("family", "settings", "lengths", "said"),
    [
        ("bloom", [], (), "lengths="),
        ("bloom", ["evaluate.rescale=[none,yarn]"], (L,), "no RoPE"),
        ("llama", ["evaluate.rescale=[none,drop]"], (L,), "drop"),
        ("llama", [], (L, 3 * L), "times one of 1, 2"),
        ("gpt2", [], (2 * L,), f"has {L} positions: choose lengths={L} or less"),
        ("llama", ["model.width=4"], (L,), "cannot be set"),
        ("llama", ["logger=wandb"], (L,), "logger"),
        ("llama", ["evaluate.longest=2"], (L, 4 * L), "evaluate.longest"),
        ("llama", ["evaluate.needles=4"], (L, 2 * L), "evaluate.needles"),
    ],
)
def test_unmeasurable_models_are_refused_in_one_line(family, settings, lengths, said, folder, text):
    with pytest.raises(ConfigError, match=said) as refused:
        measured(folder(family), text, *settings, lengths=lengths)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        (AutoModel, FAMILIES["llama"], "lm_head.weight"),  # its head would have random weights
        (AutoModelForMaskedLM, AutoConfig.for_model("bert", **ROTARY), "later tokens"),
        (AutoModel, AutoConfig.for_model("vit", **SIZE), "no causal language model of vit"),
    ],
    ids=["headless", "bert", "vit"],
)
def test_models_that_do_not_predict_the_next_token_are_refused(kind, config, said, text, tmp_path):
    kind.from_config(config).save_pretrained(tmp_path / "model")
    with pytest.raises(ConfigError, match=said):
        measured(tmp_path / "model", text)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda model: cut_off(model / "model.safetensors"), "llama"),
        (lambda model: change(model / "config.json", '"vocab_size": 320', '"vocab_size": 310'), "llama"),
        (lambda model: (model / "model.safetensors").rename(model / "pytorch_model.bin"), "safetensors"),
        (lambda model: (model / "tokenizer_config.json").write_text("{}"), "has a tokenizer, but"),
        (lambda model: trained_tokenizer(model / "tokenizer.json", [SPREAD], 330), "330 tokens, but the"),
    ],
    ids=["damaged", "of another size", "pickled", "unread tokenizer", "more tokens than the model"],
)
def test_weights_and_tokenizers_that_do_not_fit_are_refused(damage, said, folder, text):
    damage(folder("llama"))
    with pytest.raises(ConfigError, match=said):
        measured(folder("llama"), text)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-100])


def change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def test_two_models_of_one_name_are_two_arms_measured_once_each(folder, text, tmp_path, monkeypatch):
    first = measured(folder("llama"), text)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(FAMILIES["llama"]).save_pretrained(tmp_path / "llama")
    other = measured(tmp_path / "llama", text)
    assert other != first
    monkeypatch.setattr(from_transformers.TransformersModel, "forward", None)
    assert measured(tmp_path / "llama", text) == other
    results = gather("hf", tmp_path / "runs", None)
    assert [len(item.arm.finished) for item in results.arms] == [1, 1]
    assert len({item.arm.label for item in results.arms}) == 2


def test_the_command_measures_a_model_and_refuses_arguments_without_effect(folder, text, tmp_path, capsys):
    of_text = ["data=text", f"data.path={text}", *FEW, f"runs={tmp_path / 'runs'}"]
    assert evaluate([f"hf={folder('qwen3')}", f"lengths={L},{2 * L}", "study=mine", *of_text]) == 0
    assert load_run(next((tmp_path / "runs" / "mine").iterdir())).context_length == L
    out = capsys.readouterr().out
    assert f"L = {L} tokens" in out
    assert f" study=mine runs={tmp_path / 'runs'}\n" in out
    assert evaluate(["checkpoint=runs/a/b", f"lengths={L}"]) == 2
    assert evaluate([f"hf={tmp_path}", "lengths=a"]) == 2
    assert evaluate([f"hf={tmp_path / 'absent'}", "lengths=16"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_room_for_needles_is_that_of_the_widest_answer():
    narrow = Needle(np.arange(9), np.arange(3), np.zeros((4, 1), int))
    wide = Needle(np.arange(5), np.arange(3), np.zeros((4, 4), int))
    assert room([narrow, wide]) == 1 + 9 + 3 + 4
