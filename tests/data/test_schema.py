"""Schemas: what may be declared, and schemas in writing."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Binary, Category, Count, Number, Schema
from tacit.errors import InvalidArgument

COLUMNS = {
    "age": Number(18, 100),
    "dose": Number(0, 50, scaled=True, missing=2.5),
    "ward": Category(["A", "B", "C"], other="other", missing="other"),
    "visits": Count(30),
    "readmitted": Binary(),
    "pixels": Number(0, 1, shape=(4, 4)),
}
SCHEMA = Schema(COLUMNS, person="patient", most_rows=20)


def test_facts():
    assert SCHEMA.unit == "person"
    assert Schema(COLUMNS).unit == "row"
    assert SCHEMA.names == tuple(COLUMNS)
    assert SCHEMA["age"] is COLUMNS["age"]
    assert SCHEMA["pixels"].shape == (4, 4)
    assert {kind.dtype.name for kind in COLUMNS.values()} == {"float32", "int32"}
    assert SCHEMA["ward"].size == 4
    assert str(SCHEMA).splitlines() == [
        "column      kind      public facts                if missing",
        "age         number    18 to 100                   row left out",
        "dose        number    0 to 50, scaled to [-1, 1]  2.5",
        "ward        category  3 levels and other          other",
        "visits      count     whole, 0 to 30              row left out",
        "readmitted  binary    0 or 1                      row left out",
        "pixels      number    0 to 1, in arrays of 4 x 4  row left out",
        "One unit is a person, by column patient, with at most 20 rows.",
    ]


def test_schemas_are_values():
    again = Schema(dict(COLUMNS), person="patient", most_rows=20)
    assert again == SCHEMA
    assert len({SCHEMA, again, copy.deepcopy(SCHEMA), pickle.loads(pickle.dumps(SCHEMA))}) == 1  # noqa: S301
    assert Schema(COLUMNS) != SCHEMA
    assert eval(repr(SCHEMA)) == SCHEMA  # noqa: S307
    with pytest.raises(AttributeError):
        SCHEMA.person = "somebody"
    columns = dict(COLUMNS)
    schema = Schema(columns)
    columns.clear()
    assert schema.names == tuple(COLUMNS)


FAULTS = [
    (lambda: Number(1, 1), "low must be below high"),
    (lambda: Number(2, 1), "low must be below high"),
    (lambda: Number(0, float("inf")), "finite"),
    (lambda: Number(float("nan"), 1), "NaN"),
    (lambda: Number("0", 1), "low must be a number"),
    (lambda: Number(True, 2), "low must be a number"),
    (lambda: Number(0, 1e39), "float32"),
    (lambda: Number(1, 1 + 1e-9), "float32"),
    (lambda: Number(0, 1, scaled="yes"), "scaled"),
    (lambda: Number(0, 1, shape=3), "tuple"),
    (lambda: Number(0, 1, shape=(0,)), "shape"),
    (lambda: Number(0, 1, missing=2), "from low to high"),
    (lambda: Number(0, 1, missing="mean"), "from low to high"),
    (lambda: Count(1.5), "whole"),
    (lambda: Count(2**31), "whole"),
    (lambda: Count(5, missing=0.5), "whole"),
    (lambda: Count(0), "below"),
    (lambda: Binary(yes="y"), "both"),
    (lambda: Binary(yes="y", no="y"), "differ"),
    (lambda: Binary(yes=True, no=False), "text or integers"),
    (lambda: Binary(missing=2), "0 or 1"),
    (lambda: Category([]), "none"),
    (lambda: Category("ABC"), "list"),
    (lambda: Category(["A", "A"]), "differ"),
    (lambda: Category([3, "3"]), "differ"),
    (lambda: Category([True, False]), "quotes"),
    (lambda: Category([1.5]), "text or integers"),
    (lambda: Category([10**18]), "as text"),
    (lambda: Category(["A"], other="A"), "differ"),
    (lambda: Category(["A"], missing="B"), "a level"),
    (lambda: Category(["A"], missing=None), "a level"),
    (lambda: Schema({}), "mapping"),
    (lambda: Schema([("a", Binary())]), "mapping"),
    (lambda: Schema({"a": "number"}), "'a' must be a Number"),
    (lambda: Schema({"": Binary()}), "not empty"),
    (lambda: Schema({"a": Binary()}, person="p"), "most_rows"),
    (lambda: Schema({"a": Binary()}, most_rows=3), "person"),
    (lambda: Schema({"a": Binary()}, person="p", most_rows=0), "most_rows"),
    (lambda: Schema({"a": Binary()}, person="a", most_rows=3), "another name"),
    (lambda: Schema({"a": Binary()}, person=3, most_rows=3), "name of a column"),
    (lambda: SCHEMA["wards"], "did you mean 'ward'"),
    (lambda: SCHEMA.dummy_rows(3, ["agee"]), "did you mean 'age'"),
    (lambda: SCHEMA.dummy_rows(3, "age"), r"\['age'\]"),
    (lambda: SCHEMA.dummy_rows(3, ["age", "age"]), "each once"),
    (lambda: SCHEMA.dummy_rows(-1), "count"),
]


@pytest.mark.parametrize("place", range(len(FAULTS)))
def test_faults_are_named(place):
    declare, expected = FAULTS[place]
    with pytest.raises(InvalidArgument, match=expected):
        declare()


def test_made_up_rows_look_like_encoded_ones():
    rows = SCHEMA.dummy_rows(2000, seed=3)
    for name, kind in COLUMNS.items():
        assert rows[name].dtype == kind.dtype
        assert rows[name].shape == (2000, *kind.shape)
    assert (rows["age"].min(), rows["age"].max()) == (18, 100)
    assert (rows["dose"].min(), rows["dose"].max()) == (-1, 1)
    assert set(rows["ward"].tolist()) == set(range(4))
    assert set(rows["visits"].tolist()) == set(range(31))
    assert set(rows["readmitted"].tolist()) == {0, 1}
    alone = SCHEMA.dummy_rows(2000, ["visits"], seed=3)
    np.testing.assert_array_equal(alone["visits"], rows["visits"])
    assert not np.array_equal(SCHEMA.dummy_rows(2000, seed=4)["age"], rows["age"])
    assert SCHEMA.dummy_rows(0)["pixels"].shape == (0, 4, 4)


def test_round_trip(tmp_path):
    SCHEMA.to_yaml(tmp_path / "schema.yaml")
    assert Schema.from_yaml(tmp_path / "schema.yaml") == SCHEMA
    assert Schema.from_yaml(str(tmp_path / "schema.yaml")).names == SCHEMA.names
    assert (tmp_path / "schema.yaml").read_text().splitlines()[:3] == [
        "columns:",
        "  age: {kind: number, low: 18, high: 100}",
        "  dose: {kind: number, low: 0, high: 50, scaled: true, missing: 2.5}",
    ]


NAMES = st.text(min_size=1, max_size=8)
LABELS = st.one_of(st.text(max_size=8), st.integers(-(10**17), 10**17))
BOUNDS = st.tuples(st.floats(-1e30, 0), st.floats(1e-30, 1e30))


@st.composite
def kinds(draw):
    low, high = draw(BOUNDS)
    levels = draw(st.lists(LABELS, min_size=3, max_size=5, unique_by=str))
    return draw(
        st.sampled_from(
            [
                Number(low, high, missing=high),
                Number(low, high, shape=(2, 3), scaled=True),
                Count(7, low=-7, missing=-1),
                Binary(yes=levels[0], no=levels[1], missing=1),
                Category(levels),
                Category(levels[1:], other=levels[0], missing=levels[1]),
            ]
        )
    )


@settings(deadline=None)
@given(st.dictionaries(NAMES, kinds(), min_size=1, max_size=3), NAMES)
def test_round_trip_is_exact(tmp_path_factory, columns, person):
    path = tmp_path_factory.mktemp("schemas") / "schema.yaml"
    unit = {} if person in columns else {"person": person, "most_rows": 3}
    schema = Schema(columns, **unit)
    schema.to_yaml(path)
    assert Schema.from_yaml(path) == schema
    assert repr(Schema.from_yaml(path)) == repr(schema)


GOOD = "columns: {a: {kind: count, high: 3}}\n"
FILES = {
    "": "key 'columns'",
    "- 1": "key 'columns'",
    "columns: [a]": "key 'columns'",
    "columns: {}": "mapping",
    "columns: {a: [": "line 1",
    GOOD + "persons: x": "found 'persons'",
    GOOD + "person: x": "most_rows",
    GOOD + GOOD: "'columns' repeated",
    "columns: {a: {kind: binary}, a: {kind: binary}}": "'a' repeated",
    "columns: {a: {kind: number, low: 1, low: 0, high: 2}}": "'low' repeated",
    "columns: {a: {kind: numbers}}": "column 'a' .* 'kind'",
    "columns: {a: {kind: [number]}}": "column 'a' .* 'kind'",
    "columns: {a: number}": "column 'a' .* 'kind'",
    "columns: {a: {kind: number, low: 1}}": "column 'a' .* key 'high'",
    "columns: {a: {kind: number, low: 1, high: 2, hihg: 3}}": "column 'a' .* found 'hihg'",
    "columns: {a: {kind: number, low: 3, high: 2}}": "column 'a': low must be below",
    "columns: {a: {kind: category, levels: [yes, no]}}": "column 'a': .*quotes",
    "columns: {a: {kind: category, levels: [2020-01-01]}}": "column 'a': .*quotes",
    "columns: {1: {kind: binary}}": "must be text",
    "columns: {a: !!python/object:os.system {}}": "valid YAML",
    "? [a, b]\n: 1": "valid YAML",
    "columns: {? [a] : 1}": "valid YAML",
    "a: &x [*x]": "key 'columns'",
    "columns: \x00": "valid YAML",
}


@pytest.mark.parametrize("text", FILES)
def test_faults_of_a_file_name_it(tmp_path, text):
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=FILES[text]) as caught:
        Schema.from_yaml(path)
    assert "registry.yaml" in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InvalidArgument, match=r"nowhere\.yaml cannot be read: No such file"):
        Schema.from_yaml(tmp_path / "nowhere.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        Schema.from_yaml(tmp_path / "bytes.yaml")


def test_exponents_are_numbers(tmp_path):
    path = tmp_path / "registry.yaml"
    path.write_text("columns: {a: {kind: number, low: 0, high: 1e5}}")
    assert Schema.from_yaml(path)["a"] == Number(0, 1e5)


def test_yes_and_no_need_no_quotes(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("columns: {ill: {kind: binary, yes: treated, no: control}}")
    assert Schema.from_yaml(path)["ill"] == Binary(yes="treated", no="control")
