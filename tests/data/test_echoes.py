"""What was passed is told in an error only if it cannot be anybody's row."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit import Binary, Budget, Model, Number, Schema, fit
from tacit.cli.main import main
from tacit.errors import InvalidArgument
from tacit.models import Parameter

SCHEMA = Schema({"age": Number(18, 100), "ill": Binary()})
ROW = "41.5,1,Smith"
TEXTS = {
    "a table": f"age,ill,name\n{ROW}\n",
    "a long table": "age,ill,name\n" + f"{ROW}\n" * 500,
    "a row": ROW,
    "a row with spaces": "41.5 1 Smith",
    "a row that ends like a file": f"{ROW}.csv",
    "another separator": "41.5;1;Smith.csv",
    "a zero byte": f"Smith\0{ROW}",
    "one long line": "Smith" * 500 + ".csv",
    "a long name": "Smith41.5" * 30 + ".csv",
    "tabs": "41.5\t1\tSmith.csv",
    "a path of a path": Path(f"age,ill\n{ROW}"),
}
MODEL = Model(
    parameters={"m": Parameter(())},
    log_prior=lambda p: -(p["m"] ** 2),
    log_likelihood=lambda p, row: -((row["age"] - p["m"]) ** 2),
)
OPENED = {
    "encode": SCHEMA.encode,
    "check": SCHEMA.check,
    "check header": SCHEMA.check_header,
    "new rows": lambda text: SCHEMA.encode_new(text, ["age"]),
    "draft": Schema.draft,
    "schema": Schema.from_yaml,
    "names": lambda text: SCHEMA.encode({"age": [1]}, names=str(text)),
    "fit": lambda text: fit(MODEL, text, schema=SCHEMA, budget=Budget(1, 1e-6)),
}


def refuse_cells(said):
    """Raises if a sentence has something of the row in it."""
    assert "Smith" not in said
    assert "41.5" not in said
    assert said.count("\n") <= 1


@pytest.mark.parametrize("place", OPENED)
@pytest.mark.parametrize("name", TEXTS)
def test_text_where_a_path_belongs_is_not_repeated(tmp_path, monkeypatch, place, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument) as refused:
        OPENED[place](TEXTS[name])
    refuse_cells(str(refused.value))
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("name", ["a table", "a long table", "a row"])
@pytest.mark.parametrize(
    "command",
    [
        ["fit", "TEXT", "--schema", "s.yaml", "--formula", "ill ~ age"],
        ["fit", "d.csv", "--schema", "TEXT", "--formula", "ill ~ age"],
        ["schema", "draft", "TEXT", "--no-input"],
        ["schema", "check", "s.yaml", "TEXT"],
    ],
)
def test_nor_by_a_command(tmp_path, monkeypatch, capsys, command, name):
    monkeypatch.chdir(tmp_path)
    SCHEMA.to_yaml(tmp_path / "s.yaml")
    Path("d.csv").write_text("age,ill\n1,1\n")
    budget = ["--epsilon", "1", "--delta", "1e-6"] if command[0] == "fit" else []
    assert main([TEXTS[name] if word == "TEXT" else word for word in [*command, *budget]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    refuse_cells(err)


@pytest.mark.parametrize("name", ["missing.csv", "no/such/folder/missing.parquet", "x.csv.gz"])
def test_a_path_is_named(name):
    with pytest.raises(InvalidArgument, match=f"There is no data file at {name}"):
        SCHEMA.encode(name)


FRAME = pd.DataFrame({"age": [41.5, 42.5], "ill": [1, 0]}, index=["Smith", "Jones"])
DATED = pd.DataFrame([[41.5, 1]], columns=["age", "1941-05-12"])
TURNED = {
    "transposed": FRAME.T,
    "levels": FRAME.set_axis(pd.MultiIndex.from_tuples([("a", "Smith"), ("b", "41.5")]), axis=1),
    "a mapping of people": {"Smith": [41.5], "Jones": [1]},
    "records by person": FRAME.T.to_dict(),
    "polars": pl.DataFrame(FRAME).transpose(column_names=["Smith", "Jones"]),
    "Arrow": pa.table({"Smith": [41.5, 1]}),
    "structured": np.zeros(2, [("Smith", float), ("41.5", float)]),
    "numbers beside": pd.DataFrame([[41.5, 1, 2]], columns=["age", 41.5, "Smith"]),
    "numbers as text beside": pd.DataFrame([[41.5, 1, 2]], columns=["age", "41.5", "Smith"]),
    "dates beside": DATED.assign(Smith=1),
}


@pytest.mark.parametrize("name", TURNED)
def test_names_of_columns_that_may_be_rows_are_not_told(name):
    with pytest.raises(InvalidArgument, match="no column") as refused:
        SCHEMA.encode(TURNED[name])
    refuse_cells(str(refused.value))
    assert "1941" not in str(refused.value)
    assert "Jones" not in str(refused.value)


@pytest.mark.parametrize("line", ["Smith,41.5,age", "age,1941-05-12,Smith", "Smith,age,1e5"])
def test_nor_those_of_a_file_without_a_header(tmp_path, line):
    (tmp_path / "data.csv").write_text(f"{line}\nJones,42.5,ill\n")
    with pytest.raises(InvalidArgument, match="no column") as refused:
        SCHEMA.encode(tmp_path / "data.csv")
    refuse_cells(str(refused.value))
    assert "1941" not in str(refused.value)


def test_a_misspelt_column_among_others_is():
    with pytest.raises(InvalidArgument, match=r"did you mean 'il'. it has age, il"):
        SCHEMA.encode(pd.DataFrame({"age": [41.5], "il": [1]}))
