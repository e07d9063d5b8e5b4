"""Tables of records: new columns, and the digits of numbers."""

import pytest

import poslab
from poslab.library import run_directory
from poslab.record.facts import Manifest
from poslab.record.files import read_tables, table_rows
from poslab.record.frames import frame
from poslab.record.manifest import read_manifest
from poslab.record.reader import Run
from poslab.record.schema import METRICS, POSITION, TableSchema
from poslab.record.seal import DamagedError
from poslab.record.writer import RunRecord
from support.records import write_run


def test_a_new_column_is_empty_in_older_tables(tmp_path, monkeypatch):
    directory = write_run(tmp_path, "rope-0")
    manifest = read_manifest(directory)
    tables = read_tables(directory, manifest.tables)
    grown = METRICS._replace(optional=("grams",))
    older = table_rows(tables, METRICS)
    assert table_rows(tables, grown) == [{**row, "grams": ""} for row in older]
    with pytest.raises(DamagedError, match="no column grams"):
        table_rows(tables, METRICS._replace(columns=(*METRICS.columns, "grams")))
    monkeypatch.setattr(run_directory, "METRICS", grown)
    table = poslab.RunDirectory(directory).table("metrics")
    assert table.grams.isna().all()
    assert [f"{step:g}" for step in table.step] == [row["step"] for row in older]


def test_floats_have_the_digits_of_float32_but_large_ones_and_counts_have_all(tmp_path):
    row = {"position": 123_456_789, "nll": 2 / 3, "tokens": 1, "bytes": 1}
    record = RunRecord(tmp_path)
    record.write_table(POSITION, [row, row | {"nll": 1_383_452.25}])
    tables = read_tables(tmp_path, record.files)
    losses = [(row["position"], row["nll"]) for row in table_rows(tables, POSITION)]
    assert losses == [("123456789", "0.6666667"), ("123456789", "1383452.25")]


@pytest.mark.parametrize(
    "first",
    [
        b"a,b\n3,4.5\n",
        b"b,a\n4.5,3\n",
        b"a,b\n\n3,4.5\n",
        b"a,b\n3,4.5",
        b'a,b,text\n3,4.5,"of two\nlines"\n',
    ],
)
def test_rows_keep_their_run_however_the_files_are_written(first):
    files = {"x": first, "none": b"a,b\n", "y": b"a,b\n1,2\n5,6\n"}
    runs = [
        Run(name, "done", "", Manifest(pos=name, seed=seed), tables={"made_up.csv": content})
        for seed, (name, content) in enumerate(files.items())
    ]
    found = frame(runs, TableSchema("made_up.csv", ("a", "b"), ("c",)))
    rows = [["x", 0, 3, 4.5], ["y", 2, 1, 2], ["y", 2, 5, 6]]
    assert found[["run", "seed", "a", "b"]].values.tolist() == rows
    assert found.c.isna().all()
