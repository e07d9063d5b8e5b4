"""The paper kit: numbers are those of arms.csv, all sources are cited, and LaTeX sets it in two columns."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from poslab.analysis.results import Results, gather
from poslab.analysis.sheets import arms_sheet
from poslab.paper.latex import escape_latex
from poslab.paper.panels import panels
from poslab.paper.references import cited, references
from poslab.paper.table import choices, paper_table
from poslab.paper.write import write_paper
from poslab.record.reader import ReportError
from support.commands import ROOT
from support.records import BATCH, STEPS, L, contents, write_run

HOSTILE = r"\input{/etc/passwd} 50% #1 a_b^c~d & {e} $x$ [f] * -- <g> é Δβ"
TEX = shutil.which("pdflatex") and shutil.which("bibtex")


def _config(scheme: str) -> dict[str, Any]:
    return {"pos": {"scheme": scheme}, "attention": {"kind": "softmax"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.106 ± 0.008", r"2.106 $\pm$ 0.008"),
        ("−0.5", "$-$0.5"),
        ("×0.91 [0.8, 1]", r"$\times$0.91 {[}0.8, 1{]}"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("100 % of a_b & #1 {x} $y$", r"100 \% of a\_b \& \#1 \{x\} \$y\$"),
        ("\\def~^", r"\textbackslash{}def\textasciitilde{}\textasciicircum{}"),
        ("* |<>`", r"{*} \textbar{}\textless{}\textgreater{}\textasciigrave{}"),
        ("e\u0301", "é"),
        ("中\u1fb3", "{[}U+4E2D{]}{[}U+1FB3{]}"),
    ],
)
def test_every_character_is_printed_literally(text, expected):
    assert escape_latex(text) == expected


@pytest.fixture
def results(tmp_path):
    """Three arms over three seeds: t5 is clearly the best, the one with a hostile name the worst."""
    runs = tmp_path / "runs"
    for seed in (0, 1, 2):
        write_run(runs, f"rope-{seed}", seed=seed, shift=0.01 * seed, config=_config("rope"))
        write_run(runs, f"t5-{seed}", pos="t5", seed=seed, shift=-1.0 + 0.011 * seed, config=_config("t5"))
        write_run(runs, f"other-{seed}", HOSTILE, seed, shift=0.3 + 0.02 * seed, config=_config("mine"))
    return gather("made_up", runs, "rope")


def test_a_study_of_learning_has_its_validation_losses_in_the_figure(tmp_path):
    """Also if they are the first figure of its report."""
    for seed in (0, 1):
        for pos in ("rope", "t5"):
            curve = [3 - i / 100 for i in range(101)]
            write_run(tmp_path, f"{pos}-{seed}", pos, seed, sliding={1.0: 2.0 + 0.001 * seed}, curve=curve)
    results = gather("made_up", tmp_path, "rope")
    assert results.is_about_learning
    assert [chart.name for chart in panels(results)][::2] == ["sliding_loss_by_length", "validation_loss"]


def undrawn(results: Results, folder: Path, columns: list[str] | None = None) -> Path:
    """Write the kit without its figure, which takes seconds to draw."""
    with patch("poslab.paper.write.draw", return_value={}):
        return write_paper(results, folder, columns)


def _rows(kit: Path) -> list[list[str]]:
    body = (kit / "table.tex").read_text().split(r"\midrule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    return [line.removesuffix(r"\\").strip().split(" & ") for line in lines]


def test_the_methods_describe_training_and_measured_lengths(tmp_path):
    trainer = {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": 0.002}
    config = {"trainer": trainer, "model": {"layers": 1, "width": 32, "heads": 2}}
    texts = {}
    for optimizer in ("adamw", "muon"):
        config["trainer"] = {**trainer, "optimizer": optimizer}
        write_run(tmp_path / optimizer, "a", config=config, sliding={1.0: 2.0, 2.0: 2.1})
        kit = undrawn(gather("made_up", tmp_path / optimizer, None), tmp_path / f"kit of {optimizer}")
        texts[optimizer] = (kit / "methods.tex").read_text() + (kit / "references.bib").read_text()
    assert ["Muon" in text for text in texts.values()] == [False, True]
    assert all(f"{{{key}," in texts["muon"] for key in cited("optimizer", "muon"))
    assert "at lengths of L and 2 L" in texts["muon"]
    assert "with 1 layer, width 32 and 2 heads" in texts["muon"]
    assert "with the positional scheme rope, under " in texts["muon"]  # no other arm differs from it


def test_the_table_has_the_numbers_of_arms_csv(results, tmp_path):
    rows = _rows(undrawn(results, tmp_path, ["sliding_1x", "loss_8x", "difference", "seeds"]))
    by_arm = {str(row["arm"]): row for row in arms_sheet(results)[1]}
    (hostile,) = by_arm.keys() - {"rope", "t5"}
    assert [row[4] for row in rows] == ["3"] * 3
    for row in rows:
        figures = by_arm[row[0] if row[0] in by_arm else hostile]
        for text, key in ((row[1], "sliding_1x"), (row[2], "loss_8x")):
            assert f"{figures[f'{key}_mean']:.3f} $\\pm$ {figures[f'{key}_half_width']:.3f}" in text
    table = paper_table(results, list(choices(results)))  # every column can be typeset
    assert {len(row) for _, rows in table.blocks for row in rows} == {len(choices(results)) + 1}
    with pytest.raises(ReportError, match=r"columns=nope: .*there are rank, .*tokens_to_target"):
        paper_table(results, ["rank", "nope"])


def test_bold_and_stars_follow_the_tests(results, tmp_path):
    rows = _rows(undrawn(results, tmp_path))
    assert [row[0] for row in rows][:2] == ["t5", "rope"]  # by rank
    assert all(("bfseries" in cell) == (row[0] == "t5") for row in rows for cell in row[2:4])
    starred = {row[0] for row in rows if row[4].endswith("$^{*}$")}
    tested = [item for item in results.comparisons if item.p_holm is not None]
    claimed = {item.arm.label for item in tested if item.p_holm < 0.05}
    assert "t5" in claimed
    assert len(starred) == len(claimed)
    for run in (tmp_path / "runs" / "made_up").glob("*-[12]"):
        shutil.rmtree(run)
    kit = undrawn(gather("made_up", tmp_path / "runs", "rope"), tmp_path / "one seed")
    assert "bfseries" not in (kit / "table.tex").read_text()
    assert "no winner claimed" in (kit / "table.tex").read_text()


def test_an_uncompared_arm_is_not_bold(tmp_path):
    """One has another length; another, undefined at 8 L, has the lowest loss at L."""
    runs = tmp_path / "runs"
    for seed in (0, 1, 2):
        write_run(runs, f"rope-{seed}", "rope", seed, shift=0.01 * seed)
        write_run(runs, f"t5-{seed}", "t5", seed, shift=-1.0 + 0.011 * seed)
        longer = {"context_length": 2 * L}
        write_run(runs, f"none-{seed}", "none", seed, config=longer, sliding={1.0: 0.1, 8.0: 0.1})
        write_run(runs, f"learned-{seed}", "learned", seed, shift=0.01 * seed, sliding={1.0: 0.1})
    kit = undrawn(gather("made_up", runs, f"rope L={L}"), tmp_path, ["sliding_1x", "sliding_8x"])
    assert [row[0] for row in _rows(kit) if "bfseries" in "".join(row)] == [f"t5 L={L}"]
    told = "Bold: the lowest mean of a column among the arms that have a rank"
    assert told in (kit / "table.tex").read_text()


def test_every_scheme_and_attention_has_a_source():
    """Those built from others cite these."""
    for kind, folder in (("scheme", "positions"), ("attention", "attention")):
        for path in (ROOT / "src/poslab/model" / folder).glob("[!_]*.py"):
            assert cited(kind, path.stem) or path.stem in {"log_scaled", "schedule"}, path.name


def test_every_citation_is_in_the_bibliography(results, tmp_path):
    kit = undrawn(results, tmp_path)
    groups = re.findall(r"\\cite\{([^}]*)\}", (kit / "methods.tex").read_text())
    keys = {key for group in groups for key in group.split(",")}
    bibliography = (kit / "references.bib").read_text()
    entries = set(re.findall(r"^@\w+\{([^,]+),", bibliography, re.MULTILINE))
    cited_here = {"radford2019language", "poslab", "holm1979simple", "su2021roformer", "raffel2020exploring"}
    assert cited_here <= keys <= entries
    assert "keywords" not in bibliography
    assert len({one.key for one in references()}) == len(references())


def test_there_are_no_sentences_for_other_objectives(tmp_path):
    objective = {"kind": "masked", "share": 0.3, "replaced": 0.1, "kept": 0.1}
    write_run(tmp_path, "a", config={**_config("rope"), "objective": objective})
    with pytest.raises(ReportError, match="predict the next token"):
        undrawn(gather("made_up", tmp_path, None), tmp_path / "kit")


def test_the_same_records_give_the_same_bytes(results, tmp_path):
    first, second = (contents(write_paper(results, tmp_path / name)) for name in "ab")
    assert first == second
    parts = ("figure.pdf", "methods.tex", "paper.tex", "references.bib", "settings.tex", "table.tex")
    assert first.keys() >= {*parts}


@pytest.mark.skipif(not TEX, reason="no LaTeX here")
def test_latex_sets_it_in_two_columns_without_overfull_boxes(results, tmp_path):
    kit = write_paper(results, tmp_path, list(choices(results)))
    text = (kit / "paper.tex").read_text()
    # The figure in LaTeX's own font as well.
    text = text.replace(
        r"\end{document}",
        "\\clearpage\\onecolumn\\noindent\\resizebox{\\textwidth}{!}{\\input{figure.pgf}}\n\\end{document}",
    )
    (kit / "paper.tex").write_text(text.replace("microtype}", "microtype,pgf}"))
    for command in ("pdflatex", "bibtex", "pdflatex", "pdflatex"):
        mode = ["-interaction=nonstopmode", "-halt-on-error"] if command == "pdflatex" else []
        done = subprocess.run([command, *mode, "paper"], cwd=kit, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    log = (kit / "paper.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "undefined" not in log
