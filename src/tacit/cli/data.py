"""The commands about tables: the group ``schema``, ``shard``, and ``example``, which simulates a table to try Tacit on."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.options import Delta, Epsilon, SchemaFile, Table
from tacit.errors import InvalidArgument, MissingPackage, Unsaved

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Of the simulated table.
_NUM_VISITS, _NUM_PATIENTS = 20_000, 6_000
_WARDS = ("medical", "surgical", "geriatric", "palliative")

app = typer.Typer(
    help="Write and check schemas: the public bounds and levels of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def draft(
    data: Table,
    out: Annotated[Path, typer.Option(help="Schema file to write.")] = Path("schema.yaml"),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask no questions; write a template to fill in.")
    ] = False,
) -> None:
    """Write a schema from the header of a table and your answers. Reads no rows.

    Ctrl-C keeps the answers in the file, and the same command goes on with it later.
    """
    from tacit.data.draft import BACK, Draft  # it takes longer to import than to print help
    from tacit.data.schema import TO_FILL_IN, read_text

    drafted = Draft.of(data)
    if out.exists():
        if no_input or TO_FILL_IN not in read_text(out):
            raise InvalidArgument(f"{out} already exists; pass another file with --out.")
        drafted.resume(out)
    if no_input:
        with _creating(out):
            drafted.to_yaml(out)
        typer.echo(f"Wrote {out}. Fill in the public facts about each column.")
        return
    with nullcontext() if out.exists() else _creating(out):  # before asking anything
        known = len(drafted.to_fill_in)
        typer.echo(
            f"Enter {BACK} to go back to the question before. Ctrl-C keeps the answers for later."
        )
        try:
            drafted.ask(_prompt).to_yaml(out)
        except (KeyboardInterrupt, typer.Abort, InvalidArgument) as stop:
            left = len(drafted.to_fill_in)
            if left == known:
                raise
            drafted.to_yaml(out)
            columns = "1 column is" if left == 1 else f"{left} columns are"
            typer.echo(
                f"\nKept the answers in {out}; {columns} left. The same command goes on with what is left."
            )
            if isinstance(stop, InvalidArgument):  # five wrong answers to one question
                raise
            raise typer.Exit(130) from None
    typer.echo(f"Wrote {out}.     Next: tacit schema check {out} {data} --rows")


@contextmanager
def _creating(out: Path) -> Iterator[None]:
    """Creates a new file, and removes it if it is still empty at the end."""
    try:
        out.touch(exist_ok=False)
    except OSError as error:
        raise InvalidArgument(
            f"{out} must be a new file in an existing folder: {error.strerror}."
        ) from None
    try:
        yield
    finally:
        if not out.stat().st_size:
            out.unlink()


def _prompt(question: str) -> str:
    answer: str = typer.prompt(question, default="", show_default=False)
    return answer


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="Schema, a YAML file.")],
    data: Annotated[Path | None, typer.Argument(help="The data, a file.")] = None,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Count which cells can be read, and say why others cannot. Not private: for your own screen.",
        ),
    ] = False,
) -> None:
    """Check a schema, and whether the header of a table has its columns. Reads no rows without --rows."""
    if data is not None and _is_yaml(data) and not _is_yaml(schema):
        raise InvalidArgument(
            f"The schema comes first, then the data: tacit schema check {data} {schema}."
        )
    declared = tacit.Schema.from_yaml(schema)
    if rows and data is None:
        raise InvalidArgument("--rows needs the data: tacit schema check SCHEMA DATA --rows.")
    if data is not None:
        declared.check_header(data)
    typer.echo(declared)
    if data is not None:
        typer.echo(_describe_header(declared, data))
    if rows and data is not None:
        typer.echo(f"\n{declared.check(data)}")


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in {".yaml", ".yml"}


def _describe_header(schema: "tacit.Schema", data: Path) -> str:
    """What a table's header says: that it fits, and what separates cells."""
    from tacit.data.csv import SEPARATORS
    from tacit.data.sources import open_source

    source = open_source(data, schema.sep)
    if source.sep is None:
        return f"The header of {data} has these columns."
    words = SEPARATORS.get(source.sep, repr(source.sep))
    origin = "by its header" if schema.sep is None else "as the schema says"
    return f"The header of {data} has these columns. Cells are separated by {words}, {origin}."


@app.command()
def scale(
    data: Table,
    schema: SchemaFile,
    column: Annotated[list[str], typer.Option(help="Column to scale; repeatable.")],
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="Schema file to write, with scales.")],
    delta: Delta = DEFAULT_DELTA,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger of the data, a file or a database. Without one, nothing limits how often the data "
            "are used."
        ),
    ] = None,
    by: Annotated[str, typer.Option(help="quantiles or moments.")] = "quantiles",
) -> None:
    """Estimate the centre and spread of columns privately, and charge the ledger."""
    held = None if ledger is None else tacit.Ledger(ledger)
    budget = tacit.Budget(epsilon, delta, "add-remove" if held is None else held.total.adjacency)
    declared = tacit.Schema.from_yaml(schema)
    with _creating(out):
        scaled = tacit.private_scales(
            declared,
            str(data),
            column,
            budget=budget,
            by=by,  # type: ignore[arg-type]  # it checks
            ledger=held,
        )
        typer.echo(scaled)  # first, because it was charged
        if held is None:
            typer.echo("No ledger: nothing limits how often these data are used.")
        try:
            scaled.to_yaml(out)
        except OSError as error:
            raise Unsaved(
                f"The scales were charged, but {out} cannot be written ({error.strerror}). Copy the centre "
                "and spread of each column, and the note on the release, from the output above into the "
                "schema."
            ) from None


def shard(
    data: Annotated[list[Path], typer.Argument(help="The data: Parquet files.")],
    into: Annotated[int, typer.Option(min=1, help="Number of shards to write.")],
    person: Annotated[
        str | None,
        typer.Option(help="Column that identifies people. All rows of one go to one shard."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path(
        "shards"
    ),
) -> None:
    """Divide the rows of Parquet files into shards, for fits in several processes.

    With --person, people are assigned by a keyed hash, so that all rows of a person are in one shard. The
    key is random and is kept in the header of each shard; shards are as private as the data. Rows are
    read in pieces, so that the data may be larger than memory.
    """
    try:
        from tacit.data.arrow import write_shards  # pyarrow is an extra
    except ModuleNotFoundError:
        raise MissingPackage("pyarrow", "tacit shard") from None
    written = write_shards(data, into, out, person)
    typer.echo(f"Wrote {len(written)} shards to {out}.")


def example(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
) -> None:
    """Write a simulated table of hospital visits, with its schema, to try Tacit on."""
    paths = [folder / name for name in ("visits.csv", "visits.yaml", "new_patients.csv")]
    for path in paths:
        if path.exists():
            raise InvalidArgument(f"{path} already exists; pass another folder.")
    schema = tacit.Schema(
        {
            "age": tacit.Number(18, 100, measured_in="years"),
            "dose": tacit.Number(0, 50, measured_in="mg"),
            "ward": tacit.Category(["medical", "surgical", "geriatric"], other="other"),
            "readmitted": tacit.Binary(),
        },
        person="patient",
        most_rows=8,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_csv(paths[0], _simulate_visits())
        schema.to_yaml(paths[1])
        _write_csv(paths[2], {"age": [30, 80], "dose": [40, 10], "ward": ["medical", "hospice"]})
    except OSError as error:
        raise InvalidArgument(f"{folder} cannot be written: {error.strerror}.") from None
    for path in paths:
        typer.echo(f"Wrote {path}.")


def _simulate_visits() -> dict[str, "NDArray[np.generic]"]:
    """Simulated visits, the same every time. They are not data about real people."""
    import numpy as np

    rng = np.random.default_rng(0)
    patient = rng.integers(0, _NUM_PATIENTS, _NUM_VISITS)
    age = rng.integers(18, 95, _NUM_PATIENTS)[patient]
    dose = rng.uniform(0, 50, _NUM_VISITS).round(1)
    ward = rng.choice(_WARDS, _NUM_VISITS, p=[0.4, 0.3, 0.25, 0.05])
    logit = -1 + (age - 59) / 41 - (dose - 25) / 25 + (ward == "geriatric")
    readmitted = np.where(rng.uniform(size=_NUM_VISITS) < 1 / (1 + np.exp(-logit)), 1, 0)
    return {"patient": patient, "age": age, "dose": dose, "ward": ward, "readmitted": readmitted}


def _write_csv(
    path: Path, columns: "Mapping[str, Sequence[float | str] | NDArray[np.generic]]"
) -> None:
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
