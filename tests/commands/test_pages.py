"""What a reader of the README and of docs/ follows leads somewhere: links, settings, commands."""

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
# Arguments of train.py with which it trains nothing.
OTHERS = {"--help", "--cfg", "sweep=NAME"}
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|`)(?:uv run (?:--extra \w+ )*|python )(train|report)\.py\b(.*)", re.MULTILINE)


def anchors(text):
    """What GitHub calls the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands():
    """Every command on the pages: the page, its name and its arguments, without the words beside it."""
    for page, text in PAGES.items():
        if page.startswith("docs/schemes/"):  # made from the option files
            continue
        for script, rest in COMMAND.findall(text.replace("\\\n", " ")):
            in_line = re.split(r"`|\s#|(?<=\S)\s{3,}(?=\S)", rest)[0]
            words = [word for word in shlex.split(in_line) if word != "..."]
            named = next((word for word in words if word in OF_TRAIN), None)
            yield page, named or script, [word for word in words if word != named]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_project_leads_to_a_file_and_a_heading(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", PAGES[page]))
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target


def test_every_setting_that_a_page_names_is_one():
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
        if page == "docs/settings.md":  # made from the schemas: study/test_settings.py
            continue
        named = set(re.findall(rf"(?<![\w./+])((?:{groups})\.[a-z_]+)(?=[=`])", text))
        assert {
            name for name in named if not name.endswith((".py", ".csv", ".svg", ".safetensors"))
        } <= known, page


def test_every_training_command_on_a_page_asks_for_runs_that_there_are():
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
                # A page's from=RUN stands for a run that a reader has.
                settings = {key: value for key, value in composed.settings.items() if key != "from"}
                request_from(settings, composed.choices, composed.conf)  # raises where a setting is wrong
            tried += 1
    assert tried > 20


def test_every_other_command_on_a_page_has_arguments_that_it_takes():
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
