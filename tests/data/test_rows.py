"""Documents in rows: the same tokens as the same documents in files, and errors that name the row."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from poslab.config.schema import ConfigError
from poslab.data import sources
from poslab.data.cache import prepare
from support.texts import ODD, options, words, write_documents

TEXTS = [f"document {index}\n{words(300, index)}\n" for index in range(19)] + [ODD]


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def rows_of(field: str = "text") -> list[dict[str, Any]]:
    return [{"id": index, field: text} for index, text in enumerate(TEXTS)]


def saved(folder: Path, field: str) -> Path:
    import datasets

    datasets.Dataset.from_list(rows_of(field)).save_to_disk(str(folder))
    datasets.enable_progress_bars()
    return folder


def in_parquet(path: Path, field: str) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows_of(field)), path)
    return path


def in_lines(path: Path, field: str) -> Path:
    return write_lines(path, rows_of(field))


def zipped(path: Path, field: str) -> Path:
    path.write_bytes(gzip.compress(in_lines(path.with_name("plain.jsonl"), field).read_bytes()))
    return path


def with_mark(path: Path, field: str) -> Path:
    path.write_bytes(b"\xef\xbb\xbf" + in_lines(path, field).read_bytes())
    return path


def folder_of_parts(folder: Path, field: str) -> Path:
    folder.mkdir()
    write_lines(folder / "part-0.jsonl", rows_of(field)[:7])
    write_lines(folder / "part-1.ndjson", rows_of(field)[7:])
    return folder


FORMS = {
    "x.jsonl": in_lines,
    "x.jsonl.gz": zipped,
    "mark.jsonl": with_mark,
    "x.parquet": in_parquet,
    "saved": saved,
    "parts": folder_of_parts,
}


@pytest.mark.parametrize(("name", "field"), list(zip(FORMS, 3 * ("text", "body"), strict=True)))
def test_rows_give_the_tokens_of_the_same_documents_in_files(name, field, tmp_path):
    files = write_documents(tmp_path / "files", 0)
    for index, text in enumerate(TEXTS):
        (files / f"{index:02}.txt").write_bytes(text.encode())
    path = FORMS[name](tmp_path / name, field)
    changes = {} if field == "text" else {"field": field}
    by_rows = prepare(options("text", path=str(path), **changes))
    by_files = prepare(options("text", path=str(files)))
    assert by_rows.fingerprint == by_files.fingerprint
    assert by_rows.documents == len(TEXTS)
    assert by_rows.name == name


def test_a_directory_of_both_is_read_for_what_is_asked(tmp_path):
    write_lines(tmp_path / "rows.jsonl", [{"text": "of a row"}])
    (tmp_path / "file.txt").write_text("of a file")
    texts = {
        field: list(sources.find(options("text", path=str(tmp_path), field=field)).read())
        for field in (None, "text")
    }
    assert texts == {None: [b"of a file"], "text": [b"of a row"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"text": "a"}\n{"txet": "b", "id": 1}\n',
            r"x\.jsonl: line 2 has no field 'text' \(did you mean txet\?\); it has txet, id",
        ),
        ('{"text": "a"}\n\n{"text": null}\n', "line 3 holds null in the field 'text'"),
        ('{"text": ["a"]}\n', "line 1 holds list in the field 'text', not text"),
        ('{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ('"a"\n', "line 1 is no object with fields but str"),
        ('{"text": "a\\u0000b"}\n', "line 1 holds a NUL character"),
        ('{"text": "\\ud800"}\n', r"line 1 holds half a character \(U\+D800\)"),
        ("", "is empty"),
        ('{"text": ""}\n', "is empty"),
    ],
)
def test_a_row_without_text_is_named(content, message, tmp_path):
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        prepare(options("text", path=str(tmp_path / "x.jsonl")))
    assert "\n" not in str(raised.value)


def test_files_that_are_not_what_their_names_say(tmp_path):
    for name, content, message in [
        ("x.parquet", b"PAR1 and no more", "cannot be read as Parquet"),
        ("x.jsonl.gz", b'{"text": "a"}', "is named .gz but is no gzip file"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=message) as raised:
            prepare(options("text", path=str(tmp_path / name)))
        assert "\n" not in str(raised.value)


def test_saved_splits_and_fields_that_nothing_has_are_refused(tmp_path):
    import datasets

    parts = {"train": datasets.Dataset.from_list(rows_of()), "test": datasets.Dataset.from_list(rows_of())}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(
        ConfigError, match=r"in splits: choose data\.path=.*/both/test or data\.path=.*/both/train"
    ):
        prepare(options("text", path=str(tmp_path / "both")))
    assert prepare(options("text", path=str(tmp_path / "both" / "train"))).documents == len(TEXTS)
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises(ConfigError, match=r"data\.field=body is for files of rows"):
        prepare(options("text", path=str(tmp_path / "x.txt"), field="body"))
