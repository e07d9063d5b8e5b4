"""Check settings against their class. Each mistake becomes one line that says what to write instead."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from poslab.config.schema import ConfigError, Options

Section = TypeVar("Section", bound=Options)


def check(kind: type[Section], values: Any, where: str) -> Section:
    """Return `values` as `kind`. Raise a one-line ConfigError that names the wrong keys in `where`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # pydantic reports one error per type if a value may have several types.
        lines: dict[str, list[str]] = {}
        for item in error.errors():
            path, reason = _explain(item, kind, where)
            lines.setdefault(path, []).append(reason)
        joined = (
            f"{path}{' or '.join(dict.fromkeys(reasons)).replace(' or input should be ', ' or ')}"
            for path, reasons in lines.items()
        )
        raise ConfigError("; ".join(joined)) from None


# Names that papers and other repositories use, and poslab's own names.
OTHER_NAMES = {
    **dict.fromkeys(("n_layer", "n_layers", "num_layers", "depth"), "layers"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), "heads"),
    **dict.fromkeys(("n_embd", "d_model", "dim", "hidden_size", "embed_dim"), "width"),
    **dict.fromkeys(("block_size", "seq_len", "sequence_length", "max_seq_len"), "context_length"),
    **dict.fromkeys(("steps", "iters", "max_iters", "num_steps"), "max_steps"),
    **dict.fromkeys(("bs", "batch"), "batch_size"),
    **dict.fromkeys(("theta", "rope_theta"), "base"),
    **dict.fromkeys(("sdpa", "flash_attention"), "flash"),
    "lr": "learning_rate",
    "wd": "weight_decay",
    "grad_clip": "clip_norm",
    "warmup": "warmup_steps",
    "dataset": "data",
    "gpu": "cuda",
    "fp32": "float32",
    "bf16": "bfloat16",
    "rotary": "rope",
    "nope": "none",  # no positional encoding
    "absolute": "learned",
    **dict.fromkeys(("ref", "baseline"), "reference"),
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean rope?)` with the one or two nearest names, ignoring case, or ""."""
    names = {option.lower(): option for option in known}
    meant = OTHER_NAMES.get(name.lower(), name.lower())
    near = [meant] if meant in names else difflib.get_close_matches(name.lower(), names, n=2)
    return f" (did you mean {' or '.join(names[option] for option in near)}?)" if near else ""


def _explain(error: Any, kind: type[Options], where: str) -> tuple[str, str]:
    """Return the start of the line, which names the wrong setting, and the reason."""
    location, section = _location(error["loc"], kind)
    path = ".".join([where, *location] if where else location)
    if error["type"] == "extra_forbidden":
        inside, _, name = path.rpartition(".")
        known = list(section.model_fields)
        has = f"{inside or 'the configuration'} has {', '.join(known) or 'none'}"
        return path, f" is not a setting{did_you_mean(name, known)}; {has}"
    if error["type"] == "missing":
        return path, " is missing"
    if error["type"] == "value_error":
        return path, f": {error['ctx']['error']}" if path else str(error["ctx"]["error"])
    value = json.dumps(error["input"]) if isinstance(error["input"], bool | None) else repr(error["input"])
    reason = f"{error['msg'][0].lower()}{error['msg'][1:]}"
    if error["type"] == "list_type":
        first = "none," if path == "evaluate.rescale" and error["input"] != "none" else ""
        reason += f": write [{first}{error['input']}]"
    is_number = isinstance(error["input"], int | float) and not isinstance(error["input"], bool)
    if error["type"] == "string_type" and is_number and error["loc"][-1] != "str":  # not in a union
        key, where = ("", " in the list") if isinstance(error["loc"][-1], int) else (f"{path}=", "")
        reason += f""": write {key}'"{error["input"]}"'{where}"""
    if error["type"] == "literal_error":
        reason += did_you_mean(str(error["input"]), re.findall(r"'([^']+)'", error["ctx"]["expected"]))
    return f"{path}={value[:60]}: ", reason


def _location(location: tuple[str | int, ...], kind: type[Options]) -> tuple[list[str], type[Options]]:
    """Return the path of a setting (sections, then its name) and the class of the innermost section.

    Leave out the names of types that pydantic adds.
    """
    names: list[str] = []
    holder: Any = kind
    for part in location:
        known = isinstance(holder, type) and issubclass(holder, Options)
        if not known and not isinstance(part, int):
            break  # the name of a type in a union
        names.append(str(part))
        kind = holder if known else kind
        field = holder.model_fields.get(str(part)) if known else None
        holder = None if field is None else field.annotation
    return names, kind
