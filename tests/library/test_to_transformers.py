"""A model is the same in transformers: its logits, gradients, and generated text with and without a cache."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import poslab
from poslab.config.schema import ConfigError
from poslab.library.to_transformers import CODE, in_transformers
from poslab.library.weights import check_next_token
from poslab.model.gpt import build
from support.commands import called
from support.models import ATTENTIONS, POSITIONS
from support.packages import write_package
from support.runs import make, plan, request

OF_THEIR_OWN = {
    "gpt2": ["pos=learned"],
    "gpt_neox": ["pos=rope", "pos.pairing=interleaved", "model.tied=false"],
    "llama": ["pos=rope_2k", "model=llama_nano", "model.query_groups=2"],
    "smollm3": ["recipe=as_smollm3"],
    "llama4_text": ["recipe=as_llama4", "pos.schemes.none.start=9"],
    "qwen3_next": ["recipe=as_qwen3_next"],
    "qwen3": ["pos.pairing=interleaved", "model=llama_nano", "model.qk_norm=true", "model.query_groups=1"],
}


def composed(*settings):
    small = ["model.layers=4", "model.width=32", "model.heads=4", "context_length=64"]
    return poslab.compose(*settings, *small).config


DEFAULT = composed("attention=softmax")


def with_section(setting):
    """Return the default configuration with another option's section, which is faster than composing it."""
    group, option = setting.split("=")
    return DEFAULT.model_copy(update={group: {"pos": POSITIONS, "attention": ATTENTIONS}[group][option]})


def drawn(config):
    """Return a model with random weights everywhere, also where training begins with 0 or 1."""
    gpt = build(config, 256)
    stream = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream) * 0.2)
    return gpt.eval()


def opened(gpt, config, folder, kind, **options):
    """Return the model that transformers reads from the exported files with these options."""
    settings, tensors = in_transformers(gpt, config)
    assert settings["model_type"] == kind
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "modeling_poslab.py").write_text(CODE)
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model, found = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=kind == "poslab", output_loading_info=True, **options
    )
    assert not any(found[kept] for kept in ("missing_keys", "unexpected_keys", "mismatched_keys")), found
    return model


def assert_same(gpt, model, tolerance=1e-5):
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, gpt(tokens), rtol=tolerance, atol=tolerance)
        loss = torch.nn.functional.cross_entropy(gpt(tokens)[:, :-1].mT, tokens[:, 1:])
        torch.testing.assert_close(model(tokens, labels=tokens).loss, loss)
    of_poslab = model.config.model_type == "poslab"  # which has no cache
    count, caches = (3, (False,)) if of_poslab else (10, (True, False))
    written = [
        model.generate(tokens[:1, :8], max_new_tokens=count, do_sample=False, use_cache=cache, pad_token_id=0)
        for cache in caches
    ]
    assert torch.equal(written[0], written[-1])
    text = tokens[:1, :8]
    with torch.no_grad():
        for _ in range(count):
            text = torch.cat([text, gpt(text)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(written[0], text)


@pytest.mark.parametrize(
    ("kind", "attention"), [*((kind, "flash") for kind in OF_THEIR_OWN), ("llama", "softmax")]
)
def test_a_model_that_transformers_has_is_exported_as_its_own(kind, attention, tmp_path, in_float64):
    """Gradients are exported in place of their weights, so that they are converted in the same way."""
    config = composed(*OF_THEIR_OWN[kind], f"attention={attention}")
    gpt = drawn(config).double()
    options = {"dtype": torch.float64, "attn_implementation": "eager"}
    model = opened(gpt, config, tmp_path, kind, **options)
    assert_same(gpt, model, tolerance=1e-9)
    tokens = torch.randint(256, (3, 40), generator=torch.Generator().manual_seed(2))
    for logits in (gpt(tokens), model(tokens).logits):
        torch.nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:]).backward()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(parameter.grad)
    expected = opened(gpt, config, tmp_path, kind, **options)
    for (name, gradient), parameter in zip(expected.named_parameters(), model.parameters(), strict=True):
        if kind == "qwen3_next" and "norm" in name:
            gradient = gradient + 1  # which it subtracts from the weights of its norms
        torch.testing.assert_close(gradient.detach(), parameter.grad, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("bias", ["learned", "rope"])
def test_biases_that_a_model_lacks_are_0(bias, tmp_path):
    config = composed(f"pos={bias}", "model.bias=false", "attention=softmax")
    gpt = drawn(config)
    assert_same(gpt, opened(gpt, config, tmp_path, {"learned": "gpt2", "rope": "gpt_neox"}[bias]))


# Schemes with fixed factors, of tokens, by content, with drawn positions and with a table of parameters.
OTHERS = [f"pos={name}" for name in ("alibi", "bipe_alibi", "fox", "rope_randomised", "t5")]
RECIPE = "recipe=as_gpt_oss"


@pytest.mark.parametrize("setting", [*OTHERS, RECIPE, "attention=linear", "attention=gated_delta"])
def test_every_other_model_opens_with_poslab(setting, tmp_path):
    config = composed(setting, "attention=softmax") if setting == RECIPE else with_section(setting)
    gpt = drawn(config)
    assert_same(gpt, opened(gpt, config, tmp_path, "poslab"))


def test_a_mask_of_ones_is_accepted_and_padding_is_refused(tmp_path):
    config = with_section("pos=alibi")
    model = opened(drawn(config), config, tmp_path, "poslab")
    tokens = torch.zeros(1, 4, dtype=torch.long)
    arguments = {"max_new_tokens": 3, "do_sample": False}
    masked = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), **arguments)
    assert torch.equal(masked, model.generate(tokens, **arguments))
    with pytest.raises(ValueError, match="equal length"):
        model(tokens, attention_mask=torch.tensor([[0, 1, 1, 1]]))
    with pytest.raises(ValueError, match="position_ids"):
        model(tokens, position_ids=torch.arange(4)[None])
    # What transformers' Trainer reads: with True it leaves the mean over accumulated batches to the model.
    assert model.accepts_loss_kwargs is False


@pytest.mark.parametrize("vocabulary", ["bytes", 300])
def test_the_command_writes_a_folder_with_its_tokenizer(vocabulary, tmp_path):
    wanted = request(
        pos=POSITIONS["learned"], data__vocabulary=vocabulary, trainer__max_steps=2, trainer__warmup_steps=1
    )
    assert make(wanted, tmp_path).status == "done"
    directory = plan(wanted, tmp_path).directory
    called("export", f"checkpoint={directory}", "format=transformers", cwd=tmp_path, script="poslab")
    folder = directory / "transformers"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokens = tokenizer("a b", return_tensors="pt").input_ids
    assert tokenizer.decode(tokens[0]) == "a b"
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, poslab.load(directory)(tokens), rtol=1e-5, atol=1e-5)
    if vocabulary == "bytes":
        assert tokens.tolist() == [list(b"a b")]


def test_a_model_that_does_not_predict_the_next_token_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(write_package(tmp_path))
    with pytest.raises(ConfigError, match="does not predict each next token"):
        check_next_token({"kind": "mine.later", "ahead": 2})


def test_a_masked_model_is_refused(tmp_path):
    masked = {"kind": "masked", "share": 0.3, "replaced": 0.1, "kept": 0.1}
    run = make(request(objective=masked, trainer__max_steps=2, trainer__warmup_steps=1), tmp_path).run
    asked = (f"checkpoint={tmp_path / 'test' / run}", "format=transformers")
    ended = called("export", *asked, cwd=tmp_path, script="poslab", status=2)
    assert "format=safetensors" in ended.stderr
