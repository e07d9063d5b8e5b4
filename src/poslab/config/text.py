"""Text for people: configuration and record values as one printable line, lists, rates and names."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

# Valid names of studies and runs: folder names that every file system and shell accepts.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Names that W&B accepts for a project or entity.
IN_A_URL = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069/\\#?%:]{1,128}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
# Two slashes after a colon belong to a URL, such as https://host.
_ABSOLUTE = re.compile(
    r"(?<![\w./~-])(?:(?<!:)|(?!//))(?:~|file://)?/+(?:[^\s:/'\"<>,;()]+/+)+([^\s:/'\"<>,;()]*)"
)

# A path may contain spaces inside quotes (also as the value of a setting), lists and sections.
_QUOTED = re.compile(
    r"""(?<=(['"]))((?:[\w.+~-]+=)?)(?:~|file://)?/(?:(?!\1)[^\[\]{},])*?((?:(?!\1)[^/\[\]{},])+)/?(?=\1)"""
)
_LISTED = re.compile(
    r"""((?:(?<=[\[,{=])|(?<=:)(?=\s))\s*)(?:~|file://)?/[^\[\]{},'"]*?([^/\[\]{},'"]+)/?(?=\s*[\],}])"""
)

# Settings with hidden values: those that set environment variables or are named like a secret (but not
# `data.tokens`, a number of tokens).
_SECRET_NAME = r"key|token|signature|(?:secret|passw(?:or)?d|credential)s?"
_SECRET_SETTING = re.compile(
    rf"[+~]*(?:hydra\.job\.env_.*|.*(?:{_SECRET_NAME})|(?:.*[._-])?(?:sig|auth|pwd))", re.IGNORECASE
)
# In any other text: values assigned to such names, a URL's user and password, and secrets in headers.
_ASSIGNED = re.compile(
    r"([\w-]*(?:key|token(?!s\b)|signature|secret|passw(?:or)?d|credential)[\w-]*=)\S+"
    r"|((?<![^\W_])(?:sig|auth|pwd)=)\S+|(?<=://)[^/@\s]+(?=@)"
    r"|(\bbearer\s+|\bauthorization\s*[:=]\s*(?:\w+\s+)?)[^\s'\"]+",
    re.IGNORECASE,
)
# In the value of a setting: {save_dir: x, api_key: SECRET}.
_IN_BRACES = re.compile(
    rf"""([{{,]\s*["']?(?:[\w-]*(?:{_SECRET_NAME})|(?:[\w-]*[_-])?(?:sig|auth|pwd))["']?\s*:\s*)"""
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[[^\]]*\]|\{[^}]*\}|[^,}]+)""",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r".*(?:(?:api|access|private|secret)_?key|token|(?:secret|passw(?:or)?d|credential)s?|pwd)", re.IGNORECASE
)


def without_secrets(text: str) -> str:
    """Return the text with `...` in place of values assigned to names of secrets."""
    return _ASSIGNED.sub(r"\1\2\3...", _encodable(text))


def override_text(override: str) -> str:
    """Return a setting of a command, `key=value`, with `...` in place of a secret."""
    key, is_set, value = _encodable(override).partition("=")
    if _SECRET_SETTING.fullmatch(key):
        return f"{key}{is_set}..."
    value = without_secrets(_IN_BRACES.sub(r"\1...", value))
    return f"{key}{is_set}{value}"


def is_secret(key: str) -> bool:
    """Return whether a setting's name is almost only used for secrets."""
    return _CREDENTIAL.fullmatch(key) is not None


def _encodable(text: str) -> str:
    """Return the text with question marks for command-line bytes that are not UTF-8."""
    return text.encode(errors="replace").decode()


def one_line(text: object, limit: int | None = None) -> str:
    """Return `text` on one line of at most `limit` characters, with spaces for unprintable ones."""
    visible = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return " ".join(visible.split())[:limit]


def plain(text: object, limit: int = 300) -> str:
    """Return one line for a published page: control characters become spaces, paths their last names."""
    line = without_paths(CONTROL.sub(" ", str(text))).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def without_paths(text: str) -> str:
    """Return the text with each absolute path cut to its last name; a second call changes nothing."""
    text = _LISTED.sub(r"\1\2", _QUOTED.sub(r"\2\3", text))
    while (shorter := _ABSOLUTE.sub(r"\1", text)) != text:
        text = shorter
    return text


def published(value: Any) -> Any:
    """Return a JSON value with each absolute path cut to its last name; other strings do not change."""
    if isinstance(value, dict):
        return {key: published(item) for key, item in value.items()}
    if isinstance(value, list):
        return [published(item) for item in value]
    if not isinstance(value, str):
        return value
    visible = CONTROL.sub(" ", value)  # as a page shows it
    shorter = without_paths(visible)
    return value if shorter == visible else shorter


def visible(value: Any) -> Any:
    """Return a JSON value for display, with control characters in strings and keys escaped (`\\n`)."""
    if isinstance(value, dict):
        return {visible(str(key)): visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible(item) for item in value]
    return CONTROL.sub(_escaped, value) if isinstance(value, str) else value


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def is_file_name(name: object) -> TypeGuard[str]:
    """Return whether `name` is a single file or folder name, not a path and not hidden."""
    if not isinstance(name, str) or "\0" in name or name.startswith("."):
        return False
    return bool(name) and Path(name).name == name


def error_text(error: Exception) -> str:
    """Return an error's message on one line; for an OSError, the reason and the file name."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        return without_secrets(one_line(named))
    return without_secrets(one_line(error))


def listing(items: list[str], limit: int = 6) -> str:
    """Return `a, b and c`; beyond `limit` items, `a, b and 3 more`."""
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def counted(number: int | str, noun: str) -> str:
    """Return `1 run`, `2 runs`, `3 to 5 runs`."""
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


def rate_text(rate: float) -> str:
    """Return a learning rate with all its digits and no exponent: 0.00025."""
    return f"{Decimal(repr(rate)):f}"
