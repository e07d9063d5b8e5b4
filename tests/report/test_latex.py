"""table.tex: a table that LaTeX sets, with the numbers of arms.csv, whatever the labels hold."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from poslab.report.render.latex import escape_latex
from poslab.report.write import write_report
from support.records import plan, read, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

HOSTILE = r"\input{/etc/passwd} 50% #1 a_b^c~d & {e} $x$ [f] * -- <g> é Δβ"
ENGINE = shutil.which("tectonic") or shutil.which("pdflatex")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.106 ± 0.008", r"2.106 $\pm$ 0.008"),
        ("−0.5", "$-$0.5"),
        ("≥ 1,024", r"$\geq$ 1,024"),
        ("×0.91 [0.8, 1]", r"$\times$0.91 {[}0.8, 1{]}"),
        ("–", "--"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("100 % of a_b & #1 {x} $y$", r"100 \% of a\_b \& \#1 \{x\} \$y\$"),
        ("\\def~^", r"\textbackslash{}def\textasciitilde{}\textasciicircum{}"),
        ("* |<>`", r"{*} \textbar{}\textless{}\textgreater{}\textasciigrave{}"),
        ("Zoë Łódź", "Zoë Łódź"),
        ("e\u0301", "é"),
        ("中\u1fb3", "{[}U+4E2D{]}{[}U+1FB3{]}"),
    ],
)
def test_every_character_prints_as_it_stands(text: str, expected: str) -> None:
    assert escape_latex(text) == expected


@pytest.fixture
def report(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for seed in (0, 1, 2):
        write_run(runs, f"rope-{seed}", seed=seed, shift=0.01 * seed)
        write_run(runs, f"other-{seed}", pos=HOSTILE, seed=seed, shift=0.3 + 0.02 * seed)
    write_run(runs, "dead", pos="t5", status="failed", reason="100 % of memory_")
    plan(runs, ["rope-0"], "rope")
    return write_report("made_up", runs, tmp_path / "reports").directory


def test_the_table_is_whole(report: Path) -> None:
    text = (report / "table.tex").read_text()
    assert r"\input" not in text
    # Every brace, dollar and percent sign that is not the label's own belongs to a pair or a comment.
    bare = re.sub(r"\\[\\{}$%&#_]", "", text)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    assert all(line.startswith("%") or "%" not in line for line in bare.splitlines())
    assert "#" not in bare

    (kinds,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 + 3
    for row in rows:
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + sum(spans) == len(kinds) - 1
    for begin, end in re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", body):
        assert 1 <= int(begin) <= int(end) <= len(kinds)


def test_numbers_and_what_they_are_worth_are_said(report: Path) -> None:
    text = (report / "table.tex").read_text()
    rope = next(row for row in read(report / "arms.csv") if row["arm"] == "rope")
    mean, half = float(rope["sliding_8x_mean"]), float(rope["sliding_8x_half_width"])
    assert rf"{mean:.3f} $\pm$ {half:.3f}" in text
    assert r"\label{tab:poslab-made-up}" in text
    assert "Means over at most 3 seeds per arm with 95 \\% Student-t intervals: exploratory." in text
    assert "% Note well. 1 of 7 runs do not count" in text
    assert r"\textbf" not in text


def test_one_seed_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a", study="a")
    write_run(tmp_path / "runs", "b", study="b")
    directory = write_report("a,b", tmp_path / "runs", tmp_path / "reports").directory
    text = (directory / "table.tex").read_text()
    assert "One seed per arm: no interval, no winner claimed." in text
    assert r"\label{tab:poslab-a+b}" in text


@pytest.mark.skipif(ENGINE is None, reason="no LaTeX here")
def test_latex_sets_it(report: Path, tmp_path: Path) -> None:
    lines = [r"\documentclass{article}\usepackage{booktabs}\begin{document}"]
    lines += [(report / "table.tex").read_text(), r"\end{document}"]
    (tmp_path / "paper.tex").write_text("\n".join(lines))
    mode = [] if str(ENGINE).endswith("tectonic") else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run(
        [str(ENGINE), *mode, "paper.tex"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "paper.pdf").is_file()
