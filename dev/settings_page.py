"""Write docs/settings.md: every setting with its default and its description in the schema.

`python dev/settings_page.py`, in the project's folder, prints the page.
"""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from poslab.config.compose import arms
from poslab.config.installation import conf_folder
from poslab.config.option_files import Conf
from poslab.config.request import flat_settings
from poslab.study.settings import BY_OPTION, settings


def page(conf: Path) -> str:
    """Return docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every setting of `python train.py` with its meaning and its default, which is that of `model=nano`.",
        "`python train.py --help settings` prints the same in the terminal, and `--help trainer` one group.",
        "`python dev/settings_page.py > docs/settings.md` writes this page.",
        "An option of a group sets several settings at once: `pos=alibi` is the file conf/pos/alibi.yaml.",
        "",
        "| option of several groups | what it is | sets |",
        "|---|---|---|",
    ]
    for group in ("task", "recipe", "callbacks"):
        lines += [_option(group, conf / group / f"{option}.yaml") for option in arms(conf / group)]
    for group, rows in settings(Conf((conf,))).items():
        lines += ["", f"## {group or 'At the top'}", ""]
        if group:
            lines += [f"Options: {', '.join(f'`{group}={option}`' for option in arms(conf / group))}.", ""]
        owned = any(row.owners for row in rows)
        lines += [
            f"| setting | values | default |{' of |' if owned else ''} meaning |",
            "|---" * (5 if owned else 4) + "|",
        ]
        for row in rows:
            cells = [
                f"`{row.name}`",
                row.values,
                _in_code(row.default),
                *([", ".join(row.owners)] if owned else []),
                row.description,
            ]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _option(group: str, path: Path) -> str:
    """Return the row for an option of several groups: its first comment, and the settings that it sets."""
    text = path.read_text()
    about = next(line[2:] for line in text.splitlines() if line.startswith("# ") and "@package" not in line)
    content: dict[str, Any] = dict(OmegaConf.to_container(OmegaConf.create(text)))  # type: ignore[arg-type]
    defaults = content.pop("defaults", [])
    chosen = {name.removeprefix("override /"): value for item in defaults for name, value in item.items()}
    chosen |= flat_settings(content)
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in chosen.items()}
    sets = [f"`{key}={value}`" for key, value in values.items()]
    return f"| `{group}={path.stem}` | {about} | {', '.join(sets)} |"


def _in_code(default: str) -> str:
    return f"`{default}`" if default and default != BY_OPTION else default


if __name__ == "__main__":
    print(page(conf_folder()), end="")
