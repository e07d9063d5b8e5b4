"""Documents in rows give the same tokens as in files, and errors name the row."""

import gzip
import json

import datasets
import pandas
import pytest

from poslab.config.schema import ConfigError
from poslab.data import sources
from poslab.data.cache import prepare
from support.texts import ODD, options, words

TEXTS = [f"document {index}\n{words(300, index)}\n" for index in range(19)] + [ODD]


def write(path, field):
    """Write the documents as rows, in the format of the file name."""
    rows = [{"id": index, field: text} for index, text in enumerate(TEXTS)]
    lines = [json.dumps(row) + "\n" for row in rows]
    match path.name:
        case "parts":
            path.mkdir()
            (path / "part-0.jsonl").write_text("".join(lines[:7]))
            (path / "part-1.ndjson").write_text("".join(lines[7:]))
        case "saved":
            datasets.Dataset.from_list(rows).save_to_disk(str(path))
        case "x.parquet":
            pandas.DataFrame(rows).to_parquet(path)
        case "x.jsonl.gz":
            path.write_bytes(gzip.compress("".join(lines).encode()))
        case "mark.jsonl":
            path.write_text("\ufeff" + "".join(lines))
        case "x.jsonl":
            path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("x.jsonl", "text"),
        ("x.jsonl.gz", "body"),
        ("mark.jsonl", "text"),
        ("x.parquet", "body"),
        ("saved", "text"),
        ("parts", "body"),
    ],
)
def test_rows_give_the_tokens_of_the_same_documents_in_files(name, field, tmp_path):
    (tmp_path / "files").mkdir()
    for index, text in enumerate(TEXTS):
        (tmp_path / "files" / f"{index:02}.txt").write_bytes(text.encode())
    write(tmp_path / name, field)
    changes = {} if field == "text" else {"field": field}
    by_rows = prepare(options("text", path=str(tmp_path / name), **changes))
    by_files = prepare(options("text", path=str(tmp_path / "files")))
    assert by_rows.fingerprint == by_files.fingerprint
    assert by_rows.documents == len(TEXTS)
    assert by_rows.name == name


def test_from_a_directory_with_both_the_requested_kind_is_read(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "of a row"}')
    (tmp_path / "file.txt").write_text("of a file")
    for field, expected in ((None, b"of a file"), ("text", b"of a row")):
        assert list(sources.find(options("text", path=str(tmp_path), field=field)).read()) == [expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.jsonl",
            b'{"text": "a"}\n{"txet": "b", "id": 1}\n',
            r"x\.jsonl: line 2 has no field 'text' \(did you mean txet\?\); it has txet, id",
        ),
        ("x.jsonl", b'{"text": "a"}\n\n{"text": null}\n', "line 3 has null in the field 'text'"),
        ("x.jsonl", b'{"text": ["a"]}\n', "line 1 has list in the field 'text', not text"),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("x.jsonl", b'"a"\n', "line 1 is not an object with fields but str"),
        ("x.jsonl", b'{"text": "a\\u0000b"}\n', "line 1 has a NUL character"),
        ("x.jsonl", b'{"text": "\\ud800"}\n', r"line 1 has half a character \(U\+D800\)"),
        ("x.jsonl", b'{"text": ""}\n', "is empty"),
        ("x.parquet", b"PAR1 and no more", "cannot be read as Parquet"),
        ("x.jsonl", b'{"text": "\xff"}\n', "line 1 is not JSON"),
        ("x.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0)[:-12], r"x\.jsonl\.gz is a damaged gzip"),
        ("file", b"", "is empty"),
        ("file", b"ab\0c", "is binary"),
        ("file", "żółw".encode("latin2"), "is not UTF-8"),
        ("file", "text".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        ("file", gzip.compress(b"text" * 99, mtime=0)[:-12], "is a damaged gzip file"),
    ],
)
def test_files_and_rows_without_text_are_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message) as raised:
        prepare(options("text", path=str(tmp_path / name)))
    assert "\n" not in str(raised.value)
    assert str(tmp_path / name) in str(raised.value)


def test_missing_splits_and_fields_are_refused(tmp_path):
    part = datasets.Dataset.from_list([{"text": text} for text in TEXTS])
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(
        ConfigError, match=r"in splits: choose data\.path=.*/both/test or data\.path=.*/both/train"
    ):
        prepare(options("text", path=str(tmp_path / "both")))
    assert prepare(options("text", path=str(tmp_path / "both" / "train"))).documents == len(TEXTS)
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises(ConfigError, match=r"data\.field=body is for files of rows"):
        prepare(options("text", path=str(tmp_path / "x.txt"), field="body"))
