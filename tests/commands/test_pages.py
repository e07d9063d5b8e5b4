"""Links, settings and commands in the README and docs/ are valid."""

import re
import shlex

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from poslab.commands.command_line import OF_TRAIN
from poslab.commands.dashboard import KEYS as DASHBOARD
from poslab.commands.evaluate import KEYS as EVALUATE
from poslab.commands.report import KEYS as REPORT
from poslab.config.arguments import read_options
from poslab.config.compose import arms, request_from
from poslab.config.mistakes import WHOLE
from poslab.config.overrides import evaluation_overrides
from poslab.config.request import flat_settings
from poslab.config.sweep import Composer
from support.commands import ROOT
from support.models import CONF

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("*/README.md")),
    )
}
# Arguments with which train.py does not train.
OTHERS = {"--help", "--cfg", "sweep=NAME"}
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|`)(?:uv run (?:--extra \w+ )*|python )(train|report)\.py\b(.*)", re.MULTILINE)


def anchors(text):
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands():
    """Yield every command on the pages: the page, its name and its arguments, without comments."""
    for page, text in PAGES.items():
        if page.startswith("docs/schemes/"):  # generated from the option files
            continue
        for script, rest in COMMAND.findall(text.replace("\\\n", " ")):
            in_line = re.split(r"`|\s#|(?<=\S)\s{3,}(?=\S)", rest)[0]
            words = [word for word in shlex.split(in_line) if word != "..."]
            named = next((word for word in words if word in OF_TRAIN), None)
            yield page, named or script, [word for word in words if word != named]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_project_leads_to_a_file_and_heading(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", PAGES[page]))
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target


def test_every_setting_on_a_page_exists():
    sections = {group.name: arms(group).values() for group in CONF.iterdir() if group.is_dir()}
    known = {
        key
        for group, options in sections.items()
        for section in options
        for key in flat_settings(dict(section) if group in WHOLE else {group: dict(section)})
    }
    shared = {name: value for name, value in arms(CONF)["config"].items() if name in sections}
    known |= set(flat_settings({name: value for name, value in shared.items() if value}))
    groups = "|".join(sorted(sections))
    for page, text in PAGES.items():
        if page == "docs/settings.md":  # generated from the schemas: study/test_settings.py
            continue
        named = set(re.findall(rf"(?<![\w./+])((?:{groups})\.[a-z_]+)(?=[=`])", text))
        assert {
            name for name in named if not name.endswith((".py", ".csv", ".svg", ".safetensors"))
        } <= known, page


def test_every_training_command_on_a_page_is_valid():
    tried = 0
    parser = OverridesParser.create()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composer = Composer(lambda run: compose("config", overrides=run, return_hydra_config=True))
        for page, name, arguments in commands():
            if name != "train" or OTHERS & {*arguments}:
                continue
            overrides = [each for each in arguments if each != "-m"]
            written = re.findall(r"^# conf/\w+/(\w+)\.yaml$", PAGES[page], re.MULTILINE)  # by the page itself
            if any(name in " ".join(overrides) for name in written):
                continue
            swept = [
                [value for (value,) in BasicSweeper.split_arguments(parser.parse_overrides([each]), None)[0]]
                for each in overrides
            ]
            most = max(map(len, swept), default=1)
            assert "-m" in arguments or most == 1, (page, overrides)
            for place in range(most):  # every value once, not every combination
                composed = composer.composed([values[place % len(values)] for values in swept])
                # from=RUN on a page is a placeholder for a run of the reader.
                settings = {key: value for key, value in composed.settings.items() if key != "from"}
                request_from(settings, composed.choices, composed.conf)  # raises if a setting is wrong
            tried += 1
    assert tried > 20


def test_every_other_command_on_a_page_has_valid_arguments():
    keys = {"report": REPORT, "dashboard": DASHBOARD}
    tried = set()
    for _, name, arguments in commands():
        arguments = [each for each in arguments if not each.startswith("--")]
        if name == "evaluate":
            evaluation_overrides([each for each in arguments if each.partition("=")[0] not in EVALUATE])
        elif name in keys:
            read_options(arguments, keys[name])
        tried.add(name)
    assert {"evaluate", *keys} <= tried
