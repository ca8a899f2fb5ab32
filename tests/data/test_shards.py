"""People dealt to files: all rows of one in one file, whatever becomes of the files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import tacit
from tacit.api.rows import read_files
from tacit.cli.main import main
from tacit.data.arrow import write_shards
from tacit.data.shards import HEADER_KEY, ShardAssignment, read_shard_assignment, siphash
from tacit.errors import InvalidArgument
from tacit.models.jax_model import Model, Parameter

SCHEMA = tacit.Schema({"x": tacit.Number(0, 10_000)}, person="who", most_rows=9)
MODEL = Model(
    parameters={"m": Parameter()},
    log_prior=lambda p: -0.5 * p["m"] ** 2,
    log_likelihood=lambda p, row: -0.5 * (row["x"] - p["m"]) ** 2,
).unit_model


def test_the_hash_is_siphash():
    """The first and the last of the vectors of its authors: inputs 0, 1, ..., key 0, 1, ..., 15."""
    key = bytes(range(16))
    assert siphash(key, np.array([bytes(range(15))], "S15"))[0] == 0xA129CA6149BE45E5
    assert siphash(key, np.array([bytes(range(63))], "S63"))[0] == 0x958A324CEB064572
    assert siphash(key, np.array([bytes(range(8))], "S8"))[0] == 0x93F5F5799A932462


@pytest.fixture(scope="module", params=["numbers", "texts"])
def dealt(request, tmp_path_factory):
    """A table in two files, and its shards."""
    folder = tmp_path_factory.mktemp("dealt")
    generator = np.random.default_rng(3)
    who = generator.integers(0, 700, 3000)
    named = who if request.param == "numbers" else [f"person {each}" for each in who]
    table = pd.DataFrame(
        {"who": named, "x": np.arange(3000.0), "more": generator.normal(size=3000)}
    )
    table.loc[5, "who"] = None if request.param == "texts" else table.loc[5, "who"]
    for number, part in enumerate([table[:1000], table[1000:]]):
        part.to_parquet(folder / f"{number}.parquet", index=False)
    paths = [folder / "0.parquet", folder / "1.parquet"]
    shards = write_shards(paths, 4, folder / "shards", "who")
    return table, shards


def test_shards_hold_all_rows_and_each_person_once(dealt):
    table, shards = dealt
    parts = [pd.read_parquet(path) for path in shards]
    whole = pd.concat(parts).sort_values("x").reset_index(drop=True)
    pd.testing.assert_frame_equal(whole, table)
    people = [set(part.who.dropna()) for part in parts]
    assert sum(map(len, people)) == len(set(table.who.dropna()))
    assert min(map(len, people)) > 100  # of about 172, by a fair hash within six standard errors
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*shards, shards[0].parent))


def test_keys_are_fresh_and_the_same_within_a_deal(dealt):
    _, shards = dealt
    deals = [read_shard_assignment(path) for path in shards]
    assert [each.index for each in deals] == [0, 1, 2, 3]
    assert len({each.shared for each in deals}) == 1
    assert ShardAssignment.new("who", "int64", 2).key != deals[0].key


def units(paths):
    """Sums of a column over each person's rows, of all parts."""
    found = read_files(MODEL, SCHEMA, [str(path) for path in paths])
    return np.concatenate(
        [each._fields["x"].sum(axis=1) for each in found._parts.values()], dtype=np.float64
    )


def test_parts_have_every_person_as_one_unit(dealt):
    table, shards = dealt
    grouped = table.dropna(subset="who").groupby("who").x
    expected = grouped.apply(lambda values: values.iloc[:9].sum())
    np.testing.assert_allclose(np.sort(units(shards)), np.sort(expected), rtol=1e-6)


def rewritten(path, table, to):
    """A shard with other rows and the header of the old one."""
    header = parquet.read_schema(path)
    parquet.write_table(pa.Table.from_pandas(table, preserve_index=False).cast(header), to)


def test_rows_in_the_wrong_file_are_left_out(dealt, tmp_path):
    """Somebody adds rows of the second file's people to the first: they count once."""
    _, shards = dealt
    first, second = (pd.read_parquet(path) for path in shards[:2])
    changed = tmp_path / "changed.parquet"
    rewritten(shards[0], pd.concat([first, second]), changed)
    np.testing.assert_array_equal(units([changed, *shards[1:]]), units(shards))


def test_files_that_are_not_one_deal_are_refused(dealt, tmp_path):
    table, shards = dealt
    with pytest.raises(InvalidArgument, match="some are missing"):
        units(shards[:3])
    with pytest.raises(InvalidArgument, match="is named again, so that its rows would count twice"):
        units([*shards[:3], shards[0]])
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(Path(shards[0]).read_bytes())
    with pytest.raises(InvalidArgument, match=r"copy.parquet is a copy of .*shard-0.parquet, so"):
        units([*shards[:3], copy])
    rewritten = tmp_path / "rewritten.parquet"
    parquet.write_table(parquet.read_table(shards[0]), rewritten, compression="none")
    with pytest.raises(InvalidArgument, match="each once"):
        units([*shards[:3], rewritten])
    table.to_parquet(tmp_path / "plain.parquet")
    with pytest.raises(InvalidArgument, match=r"not written by tacit shard for 'who'\. Divide"):
        units([tmp_path / "plain.parquet"])
    other = write_shards([shards[0]], 4, tmp_path / "other", "who")
    with pytest.raises(InvalidArgument, match="one call of tacit shard"):
        units([*shards[:3], other[3]])


def test_rows_of_a_copied_file_do_not_count_twice(tmp_path):
    """Where rows are units, any files will do; but not the same bytes twice."""
    schema = tacit.Schema({"x": tacit.Number(0, 10_000)})
    for name, rows in (("a", "7\n8\n"), ("b", "7\n9\n"), ("c", "7\n8\n"), ("d", "7\n8\n9\n")):
        (tmp_path / f"{name}.csv").write_text(f"x\n{rows}")
    a, b, c, d = (tmp_path / f"{name}.csv" for name in "abcd")
    read_files(MODEL, schema, [a, b, d])
    with pytest.raises(InvalidArgument, match=r"c.csv is a copy of .*a.csv, so") as caught:
        read_files(MODEL, schema, [a, b, c])
    assert "7" not in str(caught.value).replace(str(tmp_path), "")


def test_identifiers_of_floats_are_not_dealt(tmp_path):
    table = pd.DataFrame({"who": [2**53 + 2, None], "x": 0})
    table.to_parquet(tmp_path / "floats.parquet")
    with pytest.raises(InvalidArgument, match="as text or as whole numbers"):
        write_shards([tmp_path / "floats.parquet"], 2, tmp_path / "shards", "who")
    assert not (tmp_path / "shards").exists()


def test_a_changed_header_is_refused(dealt, tmp_path):
    _, shards = dealt
    table, note = (
        parquet.read_table(shards[0]),
        json.loads(parquet.read_schema(shards[0]).metadata[HEADER_KEY]),
    )
    older = {name: value for name, value in note.items() if name != "form"}
    changed = ({"type": "float"}, {"person": "nobody"}, {"more": 1}, {"form": 1})
    for changes in (*(note | change for change in changed), older):
        damaged = table.replace_schema_metadata({HEADER_KEY: json.dumps(changes)})
        parquet.write_table(damaged, tmp_path / "damaged.parquet")
        with pytest.raises(InvalidArgument, match="write the files again"):
            read_shard_assignment(tmp_path / "damaged.parquet")


def test_the_command_deals_and_refuses_in_one_sentence(dealt, tmp_path, capsys):
    table, shards = dealt
    out = tmp_path / "again"
    paths = [str(path) for path in shards]
    assert main(["shard", *paths, "--into", "3", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"Wrote 3 shards to {out}.\n"
    again = [pd.read_parquet(path) for path in sorted(out.iterdir())]
    assert [len(each) for each in again] == [1000, 1000, 1000]  # in turn
    assert main(["shard", *paths, "--into", "3", "--out", str(out)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["shard", *paths, "--into", "3", "--person", "nobody"]) == 2
    assert "must have one column 'nobody'" in capsys.readouterr().err
    table[["x"]].to_parquet(tmp_path / "x.parquet")
    assert main(["shard", paths[0], str(tmp_path / "x.parquet"), "--into", "2"]) == 2
    assert "other columns or types" in capsys.readouterr().err
    (tmp_path / "no.parquet").write_text("who,x")
    assert main(["shard", str(tmp_path / "no.parquet"), "--into", "2"]) == 2
    assert "cannot be read as a Parquet file" in capsys.readouterr().err
