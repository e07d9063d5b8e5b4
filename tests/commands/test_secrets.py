"""No secret that a study receives is in a file that it writes, and none is sent."""

import base64
import os
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

import poslab
from poslab.config.compose import command_line
from poslab.config.schema import ConfigError
from poslab.config.text import error_text, override_text, plain, without_secrets
from poslab.loggers.send.run import save_file
from poslab.record.seal import sealed, unsealed
from support.commands import ROOT, TINY, called, environment, tiny
from support.forks import forked
from support.models import CONF
from support.runs import own_cache
from support.wandb_server.server import serve

VARIABLES = ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SOME_PASSWORD")
ELSEWHERE = Path("/tmp")  # where a program that ignores TMPDIR may write


@pytest.fixture(scope="module", params=["offline", "online"])
def study(request, tmp_path_factory):
    """An offline run, or an online study and a refused command, with secrets in their environment."""
    cwd = tmp_path_factory.mktemp(request.param)
    hidden = {name: secrets.token_hex(20) for name in (*VARIABLES, "history", "netrc", "command", "question")}
    (cwd / ".bash_history").write_text(f"export HF_TOKEN={hidden['history']}\npython train.py\n")
    hosts = ("api.wandb.ai", "huggingface.co")
    (cwd / ".netrc").write_text(
        "".join(f"machine {host} login user password {hidden['netrc']}\n" for host in hosts)
    )
    own_cache(cwd / "cache")
    before = set(ELSEWHERE.iterdir())
    with serve(cwd / "client") if request.param == "online" else nullcontext() as server:
        known = {name: hidden[name] for name in VARIABLES} | {"WANDB_MODE": request.param}
        if server is not None:
            server.key = hidden["WANDB_API_KEY"]
            known = {**server.environment, **known}
        known = {**environment(cwd), **known, "NETRC": str(cwd / ".netrc")}
        multirun = [] if server is None else ["-m"]
        token = f"+hydra.job.env_set.MY_TOKEN={hidden['command']}"
        question = f"is {cwd}/notes.md at https://host/a?sig={hidden['question']} right?"
        ended = told(cwd, known, *multirun, token, f"question='{question}'")
        assert ended.returncode == 0, ended.stderr
        if multirun:
            refused = told(cwd, known, *multirun, f"+data.token={hidden['command']}")
            assert refused.returncode == 2, refused.stderr
            assert "data.token is not a setting" in refused.stderr
            assert hidden["command"] not in refused.stderr
    new = set(ELSEWHERE.iterdir()) - before
    return SimpleNamespace(cwd=cwd, hidden=hidden, server=server, elsewhere=new)


def told(cwd: Path, known: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command with its own cache, since a variable set by Hydra counts in both kinds of command."""
    cache = f"+hydra.job.env_set.POSLAB_CACHE={cwd / 'cache'}"
    copied = "hydra.job.env_copy=[SOME_PASSWORD]"
    asked = [str(ROOT / "train.py"), *arguments, cache, copied, "study=hidden", *TINY]
    return forked(asked, cwd, known, timeout=300)


def files(*places: Path) -> Iterator[tuple[Path, bytes]]:
    for place in places:
        # W&B's process may still be removing a folder, which os.walk skips.
        inside = (Path(above, name) for above, _, names in os.walk(place) for name in names)
        for path in (place, *inside):
            if path.is_file():
                yield path, path.read_bytes()


def forms(hidden: dict[str, str]) -> dict[str, bytes]:
    """Return the secrets as they are, and the key as W&B's client encodes it."""
    basic = base64.b64encode(f"api:{hidden['WANDB_API_KEY']}".encode())
    return {**{name: secret.encode() for name, secret in hidden.items()}, "basic": basic}


def test_no_secret_is_written(study):
    own = {study.cwd / ".bash_history", study.cwd / ".netrc"}
    written = {path: content for path, content in files(study.cwd) if path not in own}
    for path, content in (*written.items(), *files(*study.elsewhere)):
        found = [name for name, secret in forms(study.hidden).items() if secret in content]
        assert not found, path
    kinds = {path.suffix for path, content in written.items() if b"hidden" in content}
    assert kinds >= {".json", ".md", ".html", ".wandb", ".log"}  # these have the study's name
    assert list((study.cwd / "cache" / "data").iterdir())


def test_no_secret_and_no_path_of_the_user_is_sent(study):
    kept = {**forms(study.hidden), "a path": str(study.cwd).encode()}
    requests = study.server.requests if study.server else []
    for seen in requests:
        sent = b"\n".join([seen.path.encode(), str(seen.headers).encode(), seen.body])
        found = [name for name, secret in kept.items() if secret in sent]
        assert not found, (seen.method, seen.path)
    assert any(b"hidden" in seen.body for seen in requests) == bool(study.server)


def test_no_path_is_in_a_sent_record(tmp_path):
    opened = SimpleNamespace(dir=str(tmp_path), save=lambda path, **options: sent.append(Path(path)))
    sent: list[Path] = []
    facts = {"notes": ["/home/somebody/runs/a/checkpoints/1.pt is damaged"], "reason": "no /etc/there/x"}
    save_file(opened, "manifest.json", sealed(facts).encode())
    assert unsealed(sent[0].read_bytes(), "") == {"notes": ["1.pt is damaged"], "reason": "no x"}


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (
            '+logger.csv={_target_: x.Y, "api_key": abc, save_dir: d}',
            '+logger.csv={_target_: x.Y, "api_key": ..., save_dir: d}',
        ),
        ("+callbacks.mine={password:'a b',steps:3}", "+callbacks.mine={password:...,steps:3}"),
        ("+l={auth: a, api_token: [a,b], n: 1}", "+l={auth: ..., api_token: ..., n: 1}"),
        (r"+l={password: 'it\'s me', pwd: c d}", "+l={password: ..., pwd: ...}"),
        ("question='the key: abc'", "question='the key: abc'"),
        ("+hydra.job.env_set.MY_TOKEN=abc", "+hydra.job.env_set.MY_TOKEN=..."),
        ("hydra.job.env_set={OTHER: abc}", "hydra.job.env_set=..."),
        ("+data.sig=abc", "+data.sig=..."),
        ("+data.api_key=abc", "+data.api_key=..."),
        ("launcher.setup=[export HF_TOKEN=abc]", "launcher.setup=[export HF_TOKEN=..."),
        ("launcher.address=ray://user:abc@host:1", "launcher.address=ray://...@host:1"),
        ("question=is sig=abc here?", "question=is sig=... here?"),
        ("data.tokens=60000", "data.tokens=60000"),
    ],
)
def test_a_stored_command_names_a_secret_without_its_value(setting, shown):
    assert override_text(setting) == shown
    assert command_line([setting], multirun=False) == shlex.join(["python", "train.py", shown])


def test_a_secret_that_a_record_would_store_is_refused():
    stop = "pytorch_lightning.callbacks.EarlyStopping"
    mine = f"+callbacks.mine={{_target_: {stop}, monitor: x, deep: {{KEY: abc}}}}"
    with pytest.raises(ConfigError, match=r"callbacks\.mine\.deep\.api_key .* environment variable"):
        poslab.compose(mine.replace("KEY", "api_key"))
    poslab.compose(mine.replace("KEY", "metric_key"))


SIGNED = "https://host/file?X-Amz-Credential=abc/s3&X-Amz-Signature=abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot read {SIGNED} now", "cannot read https://host/file?X-Amz-Credential=... now"),
        ("sig=abc auth=abc pwd=abc DB_PWD=abc", "sig=... auth=... pwd=... DB_PWD=..."),
        ("X-Amz-Signature=abc", "X-Amz-Signature=..."),
        ("curl -H 'Authorization: Bearer abc'", "curl -H 'Authorization: Bearer ...'"),
        ("Bearer abc", "Bearer ..."),
        ("authorization: Basic abc", "authorization: Basic ..."),
        ("https://user:abc@host/x", "https://...@host/x"),
        ("author=me design=plain data.tokens=60000: too few", None),
        ("does RoPE bear a longer context? See https://host/a@b", None),
    ],
)
def test_secrets_are_removed_from_texts(text, shown):
    assert without_secrets(text) == (text if shown is None else shown)
    assert error_text(OSError(5, text)) == without_secrets(text)


def test_a_command_that_fails_does_not_print_its_secrets(tmp_path):
    """Its folder cannot be created, so the error is the only output that could contain the command."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "ablation").write_text("no folder")
    ended = called("+hydra.job.env_set.MY_TOKEN=abcdef", *tiny(logger="local"), cwd=tmp_path, status=1)
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "runs/ablation" in ended.stderr
    assert "abcdef" not in ended.stderr


def test_bytes_that_are_not_text_become_question_marks():
    """As Python reads them from a command line; no record could store them."""
    assert command_line(["question=caf\udce9"], multirun=False) == "python train.py 'question=caf?'"
    assert without_secrets("caf\udce9 \ud83d") == "caf? ?"
    assert plain("caf\udce9") == "caf"


def test_no_setting_is_mistaken_for_a_secret():
    """Their stored values could not be used again."""
    for path in CONF.rglob("*.yaml"):
        section = {} if path.parent == CONF else OmegaConf.to_container(OmegaConf.load(path))
        for key, value in section.items():
            override = f"{path.parent.name}.{key}={value}"
            assert command_line([override], multirun=False) == shlex.join(["python", "train.py", override])
