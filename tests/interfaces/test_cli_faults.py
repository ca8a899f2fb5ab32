"""Faults of schema, header, argument and formula: one sentence, exit code 2, nothing spent.

And bad cells: nothing at all, but what the declared rule says.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.cli.main import main

SCHEMA = """\
columns:
  age: {kind: number, low: 18, high: 100}
  dose: {kind: number, low: 0, high: 50, missing: 25}
  visits: {kind: count, high: 9}
  ward: {kind: category, levels: [medical, surgical], other: other, missing: other}
  ill: {kind: binary}
"""
PEOPLE = SCHEMA + "person: patient\nmost_rows: 3\n"
HEADER = "patient,age,dose,visits,ward,ill"
RNG = np.random.default_rng(0)
# Every cell that could be told is one that nothing else prints.
LINES = [
    f"77{i:04d},{41.137 + i / 7:.5f},{RNG.uniform(3, 47):.6f},{i % 9},{w},{i % 2}"
    for i, w in enumerate(RNG.choice(["medical", "surgical", "qzxward"], 300))
]
CLEAN = "\n".join([HEADER, *LINES]) + "\n"
FORMULA = "ill ~ age + dose + ward"
QUICK = "--method variational --set num_steps=5 --set sampling_rate=1".split()
BARKER = ["--method", "barker", "--set", "ratio_bound=0.1"]
LINKED = {"there": None, "run": Path("there")}


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder with all that a fit needs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(CLEAN)
    (tmp_path / "s.yaml").write_text(SCHEMA)
    tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(3, 1e-5), unit="row")
    # Libraries that other tests load allow deeper recursion than a command has.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield tmp_path
    sys.setrecursionlimit(limit)


def arguments(**changed):
    """A command that works, with some of its options changed; None leaves one out."""
    options = {
        "schema": "s.yaml",
        "formula": "ill ~ age",
        "epsilon": "1",
        "delta": "1e-6",
        "ledger": "l.db",
        "out": "run",
    } | changed
    data = options.pop("data", "visits.csv")
    pairs = [("--" + name.replace("_", "-"), value) for name, value in options.items()]
    return ["fit", data, *(word for pair in pairs if pair[1] is not None for word in pair)]


def faulty(name, said, /, *more, files=(), code=2, **changed):
    """A fault: what is changed of a command that works, and words of the complaint."""
    return pytest.param([*arguments(**changed), *more], dict(files), said, code, id=name)


def schema(name, said, text):
    """A fault of the schema."""
    return faulty(f"schema: {name}", said, files={"s.yaml": text}.items())


def header(name, said, text, file="visits.csv", **changed):
    """A fault of the table as a whole."""
    return faulty(f"header: {name}", said, files={file: text}.items(), data=file, **changed)


def formula(name, said, text, **changed):
    """A fault of the formula or its family."""
    return faulty(f"formula: {name}", said, formula=text, **changed)


def replaced(old, new, text=SCHEMA):
    """A text with one change that must be there to make."""
    assert old in text
    return text.replace(old, new)


FAULTS = [
    schema(
        "bounds reversed",
        "low must be below high",
        replaced("low: 18, high: 100", "low: 100, high: 18"),
    ),
    schema("no low", "must have a key 'low'", replaced("low: 18, ", "")),
    schema(
        "unknown kind",
        "'kind' that is one of",
        replaced("kind: number, low: 18", "kind: nummer, low: 18"),
    ),
    schema("unknown key", "found 'lowest'", replaced("low: 18", "low: 18, lowest: 3")),
    schema("column twice", "'age' repeated", replaced("  dose:", "  age:")),
    schema("not YAML", "valid YAML", "columns: [age: {"),
    schema("empty", "key 'columns'", ""),
    schema("a list", "key 'columns'", "columns: [age, dose]"),
    schema("not text", "not text in UTF-8", b"\xff\xfe\x00columns"),
    schema("nested deeply", "too deeply", "columns: " + "[" * 1000 + "]" * 1000),
    schema("nested deeply, unfinished", "too deeply", "{a: " * 1000),
    schema("no levels", "one level or more", replaced("[medical, surgical]", "[]")),
    schema("level twice", "must differ", replaced("[medical, surgical]", "[medical, medical]")),
    schema("a Boolean level", "quotes", replaced("[medical, surgical]", "[yes, no]")),
    schema("person alone", "both person", SCHEMA + "person: patient\n"),
    schema("no rows of a person", "most_rows", replaced("most_rows: 3", "most_rows: 0", PEOPLE)),
    schema("many rows", "at most", replaced("most_rows: 3", f"most_rows: {10**9}", PEOPLE)),
    schema("rows beyond", "most_rows", replaced("most_rows: 3", "most_rows: 1.0e+400", PEOPLE)),
    schema(
        "person is a column",
        "cannot be a column",
        replaced("person: patient", "person: age", PEOPLE),
    ),
    schema("filler out of bounds", "missing must be", replaced("missing: 25", "missing: 99")),
    schema("bounds of text", "low must be", replaced("low: 18", "low: young")),
    schema("infinite bounds", "high must be", replaced("high: 100", "high: .inf")),
    schema("unknown filler", "missing must be", replaced("missing: other", "missing: elsewhere")),
    schema(
        "half of two labels", "both yes and no", replaced("kind: binary", "kind: binary, yes: Y")
    ),
    schema("released nothing", "released must be", SCHEMA + "released:\n"),
    faulty("schema: no file", "cannot be read", schema="missing.yaml"),
    faulty("schema: a folder", "cannot be read", schema="."),
    header("misspelt column", "did you mean", replaced("age,", "agee,", CLEAN)),
    header("column twice", "several columns named 'age'", replaced("visits,", "age,", CLEAN)),
    faulty("header: no file", "missing.csv", data="missing.csv"),
    faulty(
        "header: a folder",
        "run_of_files",
        data="run_of_files",
        files={"run_of_files/x": ""}.items(),
    ),
    header("empty", "names the columns", ""),
    header("rows only", "must name the columns", "\n".join(LINES)),
    header("not a table", ".xlsx", "PK", file="visits.xlsx"),
    header("not Parquet", "Parquet", CLEAN, file="visits.parquet"),
    faulty(
        "header: nobody's rows",
        "'patient'",
        files={"s.yaml": PEOPLE, "visits.csv": replaced("patient", "person_id", CLEAN)}.items(),
    ),
    faulty("epsilon: zero", "epsilon", epsilon="0"),
    faulty("epsilon: negative", "epsilon", epsilon="-1"),
    faulty("epsilon: not a number", "epsilon", epsilon="nan"),
    faulty("epsilon: text", "epsilon", epsilon="one"),
    faulty("epsilon: left out", "epsilon", epsilon=None),
    faulty("delta: one", "delta", delta="1"),
    faulty("delta: negative", "delta", delta="-1e-6"),
    faulty("formula: left out", "formula", formula=None),
    faulty("schema: left out", "schema", schema=None),
    faulty("unknown option", "--epsilonn", "--epsilonn", "1"),
    faulty("a second file that is not there", "no data file at more.csv", "more.csv"),
    faulty("unknown method", "method must be", method="hmc"),
    faulty("unknown setting", "no setting 'steps'", "--set", "steps=3"),
    faulty("setting without a value", "name=value", "--set", "num_steps"),
    faulty("setting out of range", "num_steps", "--set", "num_steps=0"),
    faulty("setting twice", "twice", "--set", "num_steps=3", "--set", "num_steps=4"),
    faulty("setting of text", "not a number", "--set", "num_steps=many"),
    faulty("setting that must be there", "size", "--set", "clip=1.0", method="langevin"),
    faulty("more steps than floats count", "num_steps", "--set", "num_steps=1e400"),
    faulty("more steps than matter", "num_steps must be at most", "--set", f"num_steps={10**18}"),
    faulty("as many, by another method", "at most", *BARKER, "--set", f"num_steps={10**300}"),
    faulty("a setting nested deeply", "not a number", "--set", "num_steps=" + "[" * 1000),
    faulty("negative seed", "seed", seed="-1"),
    faulty("unknown adjacency", "adjacency", adjacency="remove"),
    faulty("another adjacency", "adjacency", *QUICK, adjacency="replace"),
    faulty("folder in use", "not empty", *QUICK, files={"run/notes.txt": "mine"}.items()),
    faulty("folder is a file", "cannot be written", *QUICK, files={"run": "mine"}.items()),
    faulty("folder is a link", "adjacency", *QUICK, files=LINKED.items(), adjacency="replace"),
    faulty(
        "folder is a link, not empty",
        "not empty",
        *QUICK,
        files={**LINKED, "there/x": ""}.items(),
    ),
    faulty(
        "folder is a link to nothing",
        "cannot be written",
        *QUICK,
        files={"run": Path("no")}.items(),
    ),
    faulty(
        "folder is a link to itself",
        "cannot be written",
        *QUICK,
        files={"run": Path("run")}.items(),
    ),
    faulty("a config that is not there", "cannot be read", "--config", "study.yaml"),
    faulty(
        "a config with an unknown option",
        "'epsilonn', which is not an option",
        *("--config", "study.yaml"),
        files={"study.yaml": "epsilonn: 1"}.items(),
    ),
    faulty("no such ledger", "tacit ledger new", ledger="other.db"),
    faulty("not a ledger", "is not a ledger", ledger="visits.csv"),
    faulty("another unit", "protects a row", *QUICK, files={"s.yaml": PEOPLE}.items()),
    faulty("beyond the ledger", "left", *QUICK, epsilon="3.5", code=3),
    formula("empty", "formula", ""),
    formula("no outcome", "outcome", "age + dose"),
    formula("syntax", "formula", "ill ~ age +"),
    formula("brackets", "formula", "ill ~ (age + dose"),
    formula("unknown column", "did you mean 'age'", "ill ~ agee"),
    formula("unknown outcome", "'sick'", "sick ~ age"),
    formula("outcome predicts itself", "ill", "ill ~ age + ill"),
    formula("unknown function", "frobnicate", "ill ~ frobnicate(age)"),
    formula("code", "formula", "ill ~ __import__('os').getcwd()"),
    formula("a number as a category", "C(age)", "ill ~ C(age)"),
    formula("logarithm of zero", "dose", "ill ~ np.log(dose)"),
    formula("groups by a number", "age", "ill ~ dose + (1|age)"),
    formula("unknown family", "family", FORMULA, family="cauchy"),
    formula("family of another kind", "age", "age ~ dose", family="bernoulli"),
    formula("counts of yes and no", "ill", FORMULA, family="poisson"),
]


def write(path, content):
    """A file, or a link if its content is a path, or a folder without any."""
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, Path):
        path.symlink_to(content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def spent(folder):
    """What the ledger has booked."""
    return tacit.Ledger(folder / "l.db").charges


@pytest.mark.parametrize(("command", "files", "said", "code"), FAULTS)
def test_one_sentence_and_nothing_spent(table, capsys, command, files, said, code):
    for name, content in files.items():
        write(table / name, content)
    before = {path.name for path in table.iterdir()}
    assert main(command) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    refuse_cells(err)
    assert spent(table) == []
    assert {path.name for path in table.iterdir()} <= before | {".tacit"}


def test_there_are_enough_of_them():
    assert len(FAULTS) >= 50


def refuse_cells(text, lines=LINES):
    """Raises if a text has a cell in it; cells that are short could be anything's."""
    cells = {cell for line in lines for cell in line.split(",") if len(cell) > 5}
    assert len(cells) > 300
    found = [cell for cell in cells - {"medical", "surgical"} if cell in text]
    assert not found, found


def cells(*changes):
    """The clean table with other values in some cells, each in a row of its own."""
    lines = [line.split(",") for line in LINES]
    for place, (column, value) in enumerate(changes):
        lines[5 + 3 * place][HEADER.split(",").index(column)] = value
    return "\n".join([HEADER, *(",".join(line) for line in lines)]) + "\n"


BAD = {
    "numbers": cells(
        ("age", "zzz-unheard-of"),
        ("age", ""),
        ("age", "nan"),
        ("dose", "inf"),
        ("dose", "-Infinity"),
        ("dose", "1e400"),
        ("age", "9" * 6000),
        ("age", "123456.78125"),
        ("dose", "-123456.5"),
    ),
    "labels": cells(
        ("ward", "zzz-unheard-of"),
        ("ward", "w" * 200_000),
        ("ill", "perhaps-not"),
        ("ward", "zz\0z"),
        ("ward", 'zz"z'),
        ("ward", '"zzz'),
    ),
    "other encodings": cells(("ward", "zzz-Präfix"), ("age", "zzz-ß")).encode("latin-1"),
    "lines": cells(("ill", "1,zzz-more,zzz-more"), ("ill", "1\n"), ("ill", "1\n,\nzzz\n")),
    "line ends and a mark of other systems": b"\xef\xbb\xbf" + CLEAN.replace("\n", "\r\n").encode(),
    "an empty table": HEADER + "\n",
}


def shape_of(text):
    """A text but for its numbers, blanks that follow from them, and what the posterior says."""
    told = re.sub(
        r"The data tell little about [^:]*: intervals\s+are\s+nearly\s+the\s+prior's\.", "", text
    )
    return " ".join(re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "0", told).split())


def fitted(folder, capsys, content):
    """Exit code, and what was printed, of a fit of some table."""
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "visits.csv").write_bytes(data)
    code = main([*arguments(formula=FORMULA), *QUICK])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def usual():
    """What the first fit of a clean table printed, for the others to be like."""
    return {}


OF_OTHER_SYSTEMS = {"other encodings", "line ends and a mark of other systems"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in OF_OTHER_SYSTEMS else ())
        for name in ["nothing wrong", *BAD]
    ],
)
def test_bad_cells_change_no_message(table, capsys, name, usual):
    code, out, err = fitted(table, capsys, BAD.get(name, CLEAN))
    assert code == 0, err
    post = tacit.Posterior.load(table / "run" / "posterior.nc")
    assert all(np.isfinite(draws).all() for draws in post.draws.values())
    whole = (
        out
        + err
        + "".join(path.read_text() for path in (table / "run").iterdir() if path.suffix != ".nc")
    )
    refuse_cells(whole)
    assert "zz" not in whole
    assert len(spent(table)) == 1
    assert shape_of(out) == usual.setdefault("printed", shape_of(out))
    assert err == ""
