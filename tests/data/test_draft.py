"""Drafted schemas: from the header and answers, never from rows."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from tacit import Binary, Category, Count, Number, Schema
from tacit.cli.main import main
from tacit.data.draft import Draft
from tacit.errors import InvalidArgument

HEADER = "patient,age,visits,ward,readmitted,note"


def answers(*said):
    left = list(said)
    questions = []

    def ask(question):
        questions.append(question)
        return left.pop(0)

    ask.left, ask.questions = left, questions
    return ask


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text(HEADER + "\n1,71.25,2,A,1,secret\n")
    return file


def test_answers_make_a_schema(table, tmp_path):
    ask = answers(
        *("person", "20"),
        *("number", "18", "100", "", "years"),
        *("COUNT ", "", "30", "0", ""),
        *("category", "A, B", "other", "other"),
        *("binary", "", ""),
        "skip",
    )
    schema = Draft.of(table).ask(ask)
    assert schema == Schema(
        {
            "age": Number(18, 100, measured_in="years"),
            "visits": Count(30, missing=0),
            "ward": Category(["A", "B"], other="other", missing="other"),
            "readmitted": Binary(),
        },
        person="patient",
        most_rows=20,
    )
    assert not ask.left
    assert not any("71.25" in question or "secret" in question for question in ask.questions)
    schema.to_yaml(tmp_path / "schema.yaml")
    assert Schema.from_yaml(tmp_path / "schema.yaml") == schema
    assert "18 to 100 years" in str(schema)
    schema.check_header(table)


def test_answers_that_will_not_do_are_asked_for_again(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text("age\n")
    ask = answers("numbr", "number", "young", "100", "18", "18", "100", "", "")
    assert Draft.of(file).ask(ask) == Schema({"age": Number(18, 100)})
    assert "Answer one of" in ask.questions[1]
    assert "Answer a number." in ask.questions[3]
    assert "low must be below high" in ask.questions[5]
    with pytest.raises(InvalidArgument, match="Answer one of"):
        Draft.of(file).ask(lambda _: "")
    with pytest.raises(InvalidArgument, match="skipped"):
        Draft.of(file).ask(lambda _: "skip")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            ["number", "18", "100", "old", "40", "years"],
            Number(18, 100, missing=40, measured_in="years"),
        ),
        (["count", "", "30", "31x", "0", ""], Count(30, missing=0)),
        (["binary", "Y", "N", "perhaps", "1"], Binary(yes="Y", no="N", missing=1)),
        (["binary", "Y", "", "Y", "N", ""], Binary(yes="Y", no="N")),
        (["category", "", "A, B", "A", "other", ""], Category(["A", "B"], other="other")),
        (["category", "A, B", "", "C", "B"], Category(["A", "B"], missing="B")),
    ],
    ids=["number", "count", "binary", "labels", "levels", "level"],
)
def test_a_wrong_answer_does_not_lose_the_others_about_its_column(said, kind, tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text("column\n")
    ask = answers(*said)
    assert Draft.of(file).ask(ask) == Schema({"column": kind})
    assert not ask.left


def test_the_beginning_of_an_answer_will_do_if_it_is_clear(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text("x;y\n")
    ask = answers("n", "c", "num", "0", "1", "", "", "b", "", "")
    assert Draft.of(file).ask(ask) == Schema({"x": Number(0, 1), "y": Binary()})
    assert ask.questions[2].startswith("Answer one of")  # a count, or a category


@pytest.mark.parametrize("stop", ["Ctrl-C", "five wrong answers"])
def test_what_was_answered_before_a_stop_is_kept_and_gone_on_with(
    stop, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text("age,ill\n")
    given = iter(["number", "18", "100", "", "years", *["what?"] * 5])

    def prompt(question):
        if stop == "Ctrl-C" and "ill" in question:
            raise KeyboardInterrupt
        return next(given)

    monkeypatch.setattr("tacit.cli.data._prompt", prompt)
    assert main(["schema", "draft", "visits.csv"]) == (130 if stop == "Ctrl-C" else 2)
    assert "Kept the answers in schema.yaml; 1 column is left." in capsys.readouterr().out
    monkeypatch.setattr("tacit.cli.data._prompt", answers("binary", "", ""))
    assert main(["schema", "draft", "visits.csv"]) == 0
    assert "Next: tacit schema check schema.yaml visits.csv --rows" in capsys.readouterr().out
    columns = {"age": Number(18, 100, measured_in="years"), "ill": Binary()}
    assert Schema.from_yaml("schema.yaml") == Schema(columns)


def test_rows_do_not_matter(table):
    before = Draft.of(table).to_text()
    table.write_text(HEADER + "\n" + "x,y\n" * 100)
    assert Draft.of(table).to_text() == before


def test_a_template_says_what_is_to_be_filled_in(table, tmp_path):
    file = tmp_path / "schema.yaml"
    text = Draft.of(table).to_text()
    file.write_text(text)
    with pytest.raises(InvalidArgument, match="column 'patient' is not filled in yet"):
        Schema.from_yaml(file)
    lines = [line for line in text.splitlines() if "patient" not in line and "note" not in line]
    given = ["number, low: 0, high: 1", "count, high: 9", "category, levels: [A]", "binary"]
    for kind in given:
        place = next(i for i, line in enumerate(lines) if line.endswith("{kind: TO FILL IN}"))
        lines[place] = lines[place].replace("TO FILL IN", kind)
    file.write_text("\n".join(lines))
    assert Schema.from_yaml(file).names == ("age", "visits", "ward", "readmitted")
    file.write_text("\n".join([*lines, "person: TO FILL IN", "most_rows: 3"]))
    with pytest.raises(InvalidArgument, match="person and most_rows are not filled in"):
        Schema.from_yaml(file)


def test_types_in_a_header_are_taken_up(tmp_path):
    file = tmp_path / "visits.parquet"
    fields = [
        ("age", pa.float64()),
        ("ward", pa.dictionary(pa.int8(), pa.string())),
        ("b", pa.bool_()),
        ("n", pa.int8()),
        ("SBP", pa.string()),  # 142 mmHg, perhaps
    ]
    parquet.write_table(pa.schema(fields).empty_table(), file)
    text = Draft.of(file).to_text()
    for kind in (
        "age: {kind: number, low: ",
        "ward: {kind: category, levels: ",
        "b: {kind: binary}",
    ):
        assert kind in text
    assert "n: {kind: TO FILL IN}" in text
    assert "SBP: {kind: TO FILL IN}" in text
    assert Draft.of(file).ask(answers("", "0", "9", "", "", *["skip"] * 4)).names == ("age",)


@pytest.mark.parametrize(
    "text",
    [
        "71.5,0.25,1\n",
        "",
        "\n\n",
        "a,b,a\n",
        ",,\n",
        "nurse,1e3\n",
        "nurse;71,5\n",
        "nurse,2020-03-17\n",
    ],
)
def test_headers_that_cannot_be_drafted_from_are_not_repeated(tmp_path, text):
    file = tmp_path / "visits.csv"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        Schema.draft(file)
    assert not any(cell in str(refused.value) for cell in ("71.5", "0.25", "nurse", "1e3", "17"))


def test_check_looks_at_the_header_only(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text("age,dose\n71.25\n")
    Schema({"age": Number(0, 1)}).check_header(file)
    with pytest.raises(InvalidArgument, match="no column 'doze'; did you mean 'dose'"):
        Schema({"age": Number(0, 1), "doze": Number(0, 1)}).check_header(file)
    with pytest.raises(InvalidArgument, match="no column 'who'"):
        Schema({"age": Number(0, 1)}, person="who", most_rows=2).check_header(file)
    with pytest.raises(InvalidArgument, match="arrays of shape"):
        Schema({"age": Number(0, 1, shape=(2,))}).check_header(file)
    dated = tmp_path / "visits.parquet"
    parquet.write_table(pa.schema([("age", pa.date32())]).empty_table(), dated)
    with pytest.raises(InvalidArgument, match="its type is that of dates"):
        Schema({"age": Number(0, 1)}).check_header(dated)
