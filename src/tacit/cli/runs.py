"""What the commands of a fit share: the request that was typed, the model in a Python file, the folder of a run, predictions.

A request is public. A model file is code of the user's own, and runs with the user's rights before any row is read.
Whatever needs JAX is imported by the functions that need it, so that wrong arguments are refused at once.
"""

import csv
import hashlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np
import yaml

import tacit
from tacit import _validate
from tacit._files import (
    POSTERIOR_FILE,
    SETTINGS_FILE,
    STOPPED_FILE,
    UNFINISHED_FOLDER,
    nearest_file,
)
from tacit.accounting import Budget
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.data.cells import Texts
from tacit.data.columns import Category
from tacit.data.schema import Schema
from tacit.data.sources import open_source
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument, TacitError, os_error_reason
from tacit.inference.registry import CHOICES, DEFAULT, METHODS_BY_COMMAND, default_method
from tacit.inference.result import Intervals
from tacit.models.formula_parser import formula_columns
from tacit.models.interpretation import check_family

if TYPE_CHECKING:
    from tacit.api.plan import Plan
    from tacit.api.scenario import Scenario
    from tacit.inference.method import Method
    from tacit.models.base import UnitModel
    from tacit.models.glm import GLM
    from tacit.results.contents import ReportContents
    from tacit.results.posterior import Posterior

_SCHEMA_FILE = "schema.yaml"
_DEFAULT_MODEL_NAME = "model"
# Their messages are about code. Those of other errors could contain a value.
_ERRORS_ABOUT_CODE = (AttributeError, ImportError, NameError)


@dataclass(frozen=True)
class ModelFile:
    """A file, the name of the model in it, and the SHA-256 of the file.

    The file runs when `written` is first read, if it still has this digest.
    """

    path: Path
    name: str
    digest: str

    @classmethod
    def named(cls, text: str) -> "ModelFile":
        """The model that was typed as ``model.py`` or ``model.py:name``.

        Args:
            text: What was typed. Without a name, the model is what the file calls ``model``.

        Raises:
            InvalidArgument: If there is no such file.
        """
        file, _, name = text.partition(".py:")
        path = Path(f"{file}.py" if name else text)
        if path.suffix != ".py" or (name and not name.isidentifier()):
            raise InvalidArgument(
                "--model takes a Python file, such as model.py or model.py:name, where name is that of "
                "the model in the file."
            )
        return cls(
            path, name or _DEFAULT_MODEL_NAME, hashlib.sha256(_read_model_file(path)).hexdigest()
        )

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def facts(self) -> dict[str, str]:
        """What the settings of a run record."""
        return {"model": str(self), "model_sha256": self.digest}

    @classmethod
    def recorded(cls, facts: Any) -> "ModelFile | None":
        """The file that the settings of a run record, if any."""
        if facts.get("model") is None:
            return None
        path, _, name = facts["model"].rpartition(":")
        return cls(Path(path), name, facts["model_sha256"])

    @cached_property
    def written(self) -> object:
        """The model as it is written in the file, which runs now.

        Raises:
            InvalidArgument: If the file has changed, fails, or has no model of this name.
        """
        source = _read_model_file(self.path)
        if hashlib.sha256(source).hexdigest() != self.digest:
            raise InvalidArgument(f"{self.path} has changed since it was first read; run again.")
        found = vars(self._run(source))
        if self.name not in found:
            raise InvalidArgument(
                f"{self.path} has no {self.name!r}; call the model {_DEFAULT_MODEL_NAME!r}, or pass its name as "
                f"--model {self.path}:name."
            )
        return found[self.name]

    def _run(self, source: bytes) -> ModuleType:
        module = ModuleType(f"_tacit_model_{self.digest[:16]}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # where Python looks for what classes refer to
        try:
            exec(compile(source, str(self.path), "exec"), vars(module))  # noqa: S102 (the user's own)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (whatever the file does)
            raise InvalidArgument(f"{self.path} cannot be used: {self._reason(error)}") from None
        return module

    def _reason(self, error: BaseException) -> str:
        """What went wrong and where, without a message that could contain a value."""
        if isinstance(error, TacitError):
            return str(error)
        if isinstance(error, SyntaxError):
            return f"{error.msg} in line {error.lineno}."
        lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(self.path)]
        where = f" in line {lines[-1]}" if lines else ""
        said = f": {error}" if isinstance(error, _ERRORS_ABOUT_CODE) else ""
        return f"{type(error).__name__}{where}{said}."


def _read_model_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = os_error_reason(error) or "it cannot be opened"
        raise InvalidArgument(
            f"The model file {path} cannot be read: {reason}.{nearest_file(path)}"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A formula or a model file, a schema, a budget, and how to fit.

    Attributes:
        formula: The formula, or None if there is a file.
        file: The file with the model, or None if there is a formula.
        schema: The public facts about the columns.
        budget: What the fit may cost.
        family: The distribution of the outcome; by default as for `tacit.glm`.
        method: The name of the method on the command line.
        settings: Settings of the method, by name.
        seed: A seed, if the fit should be reproducible.
        notes: Public notes for the report and the ledger, by name.
    """

    formula: str | None
    file: ModelFile | None = None
    schema: Schema
    budget: Budget
    family: str | None = None
    method: str = DEFAULT
    settings: tuple[tuple[str, object], ...] = ()
    seed: int | None = None
    size: int | None = None
    scenario: "Scenario | None" = None
    notes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if (self.formula is None) == (self.file is None):
            raise InvalidArgument("Pass the model with --formula or with --model, one of the two.")
        if self.file is not None and self.family is not None:
            raise InvalidArgument(
                "--family is for a formula; the model in the file has its own distribution."
            )
        if self.family is not None:
            check_family(self.family)
        _validate.choice("method", self.method, CHOICES)
        if self.seed is not None:
            _validate.count("seed", self.seed, least=0)

    @cached_property
    def regression(self) -> "GLM | None":
        """The regression of the formula, if there is one."""
        if self.formula is None:
            return None
        from tacit.models.glm import glm

        return glm(self.formula, family=self.family, schema=self.schema)

    @property
    def described(self) -> str:
        """The model in words."""
        return str(self.regression if self.file is None else self.file)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the outcome of a formula, if it is a column that has levels."""
        if self.formula is None:
            return ()
        outcome = self.formula.partition("~")[0].strip().strip("`")
        return self.schema[outcome].labels if outcome in self.schema.names else ()

    @property
    def unit(self) -> str:
        """The unit of privacy."""
        return "row" if self.schema.person is None else "person"

    @property
    def columns(self) -> list[str]:
        """The columns that are read, without the column of the person."""
        # A formula names them, so that a wrong file is refused before JAX is imported.
        named = None if self.formula is None else formula_columns(self.formula)
        if named is not None and set(named) <= set(self.schema.names):
            return [name for name in named if name != self.schema.person]
        from tacit.api.rows import model_columns

        names = model_columns(self.model, self.schema)
        return [name for name in names if name != self.schema.person]

    @cached_property
    def model(self) -> "UnitModel":
        """The model in the form that inference takes."""
        from tacit.models.front_ends import adapt_model, resolve_model

        written = self.regression if self.file is None else self.file.written
        return adapt_model(*resolve_model(written, self.schema))

    @property
    def chosen_method(self) -> "Method":
        """The method with its settings."""
        asked = METHODS_BY_COMMAND.get(self.method)
        kind = type(default_method(self.model)) if asked is None else asked.kind
        declared = fields(kind)  # type: ignore[arg-type]  # methods are dataclasses
        known = [field.name for field in declared]
        for name, _ in self.settings:
            if name not in known:
                raise InvalidArgument(
                    f"{self.method} has no setting {name!r}; it has {', '.join(known)}."
                )
        missing = [
            field.name
            for field in declared
            if field.default is MISSING
            and field.default_factory is MISSING
            and field.name not in dict(self.settings)
        ]
        if missing:
            raise InvalidArgument(
                f"{self.method} needs a setting {missing[0]!r}; pass --set {missing[0]}=..."
            )
        try:
            method: Method = kind(**dict(self.settings))
            if self.size is not None:  # requested settings stay
                method = method.for_size(self.model, self.size, self.budget)
                method = replace(method, **dict(self.settings))  # type: ignore[type-var]
        except TypeError:
            raise InvalidArgument(
                f"A setting of {self.method} has a value of the wrong type."
            ) from None
        return method

    def plan(self, *, forecast: bool = True) -> "Plan":
        """What the fit will do. Touches no data."""
        from tacit.api.plan import plan

        return plan(
            self.model,
            self.schema,
            budget=self.budget,
            method=self.chosen_method,
            size=self.size,
            scenario=self.scenario,
            forecast=forecast,
        )

    def facts(self) -> dict[str, object]:
        """The request as plain data."""
        return {
            "formula": self.formula,
            "family": None if self.regression is None else self.regression.family,
            **({} if self.file is None else self.file.facts()),
            "budget": {n: v for n, v in asdict(self.budget).items() if v is not None},
            "method": self.method,
            "settings": dict(self.settings),
            "with": repr(self.chosen_method),
            "seed": self.seed,
            "size": self.size,
            "scenario": None if self.scenario is None else self.scenario.facts(),
            "notes": dict(self.notes) or None,
        }


# Keys of a configuration file, and those of a run's settings that say nothing of what to do.
_CONFIG_KEYS = (
    "data", "schema", "formula", "model", "family", "epsilon", "delta", "adjacency", "advantage", "budget", "method", "settings",
    "seed", "size", "scenario", "notes", "ledger", "out",
)  # fmt: skip
_RECORDED_KEYS = ("with", "made", "ledger_total", "model_sha256")


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of ``tacit fit``, from the command line and from a configuration file."""

    data: list[Path]
    schema: Path
    epsilon: float = math.nan  # it may follow from the advantage
    delta: float = DEFAULT_DELTA
    adjacency: str | None = None
    advantage: float | None = None
    formula: str | None = None
    model: str | None = None
    family: str | None = None
    method: str = DEFAULT
    settings: Mapping[str, object]
    seed: int | None = None
    size: int | None = None
    scenario: Path | Mapping[str, Any] | None = None
    notes: Mapping[str, str]
    ledger: str | None = None
    out: Path = Path("run")

    @classmethod
    def merged(cls, typed: Mapping[str, object], config: Path | None) -> "FitOptions":
        """What was typed, and what a file says about the rest.

        Args:
            typed: The options of the command line; those that were not typed are None or empty.
            config: The file, whose paths are relative to where the command runs. The settings of a run are one: their
                schema is in the same folder.

        Raises:
            InvalidArgument: If the file is wrong, or something is missing in both.
        """
        own = {name: value for name, value in typed.items() if value or value == 0}
        said = {} if config is None else _read_config(config)
        if own.keys() & {"formula", "model"}:  # then the file is about another model
            said = {n: v for n, v in said.items() if n not in ("formula", "model", "family")}
        found: dict[str, Any] = {**said, **own}
        for name in ("settings", "notes"):
            found[name] = {**dict(said.get(name) or {}), **dict(own.get(name) or {})}  # type: ignore[call-overload]
        missing = {"data": "the data", "schema": "--schema", "epsilon": "--epsilon"}
        if "advantage" in found:
            del missing["epsilon"]
        if absent := [words for name, words in missing.items() if name not in found]:
            raise InvalidArgument(
                f"Pass {' and '.join(absent)}, or --config with a file that has them. For example: tacit fit "
                'visits.csv --schema visits.yaml --formula "readmitted ~ age" --epsilon 1.'
            )
        return cls(**found)

    def request(self, adjacency: str) -> Request:
        """The request, under an adjacency if none was passed."""
        budget = Budget(self.epsilon, self.delta, self.adjacency or adjacency, self.advantage)  # type: ignore[arg-type]  # it checks
        made = parse_request(
            self.formula,
            self.model,
            self.schema,
            budget,
            self.family,
            self.method,
            self.settings,
            self.seed,
            self.size,
            self.scenario,
        )
        return replace(made, notes=tuple(self.notes.items()))


def _read_config(path: Path) -> dict[str, Any]:
    """The options in a configuration file, or in the settings of a run."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = os_error_reason(error) or "it is not YAML"
        raise InvalidArgument(f"{path} cannot be read: {reason}.{nearest_file(path)}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{path} must have lines such as 'epsilon: 1'.")
    unknown = [key for key in found if key not in (*_CONFIG_KEYS, *_RECORDED_KEYS)]
    if unknown:
        raise InvalidArgument(
            f"{path} has {unknown[0]!r}, which is not an option; the options are {', '.join(_CONFIG_KEYS)}."
        )
    known = {key: found[key] for key in _CONFIG_KEYS if found.get(key) is not None}
    for name in ("budget", "settings", "notes"):
        if not isinstance(known.get(name, {}), dict):
            raise InvalidArgument(f"{name} in {path} must be lines of a name and a value.")
    beside = path.with_name(_SCHEMA_FILE)
    if "schema" not in known and path.name == SETTINGS_FILE and beside.exists():
        known["schema"] = beside
    budget = {
        n: v for n, v in known.pop("budget", {}).items() if n in _CONFIG_KEYS and v is not None
    }
    return _convert_config(known | budget)


def _convert_config(known: dict[str, Any]) -> dict[str, Any]:
    """Options with the types that the command line gives them."""
    if "data" in known:
        several = known["data"] if isinstance(known["data"], list) else [known["data"]]
        known["data"] = [Path(str(each)) for each in several]
    if isinstance(known.get("scenario"), str):
        known["scenario"] = Path(known["scenario"])
    for name in ("epsilon", "delta", "advantage"):  # YAML takes 1e-6 for text
        if isinstance(known.get(name), str):
            known[name] = parse_setting(f"{name}={known[name]}")[1]
    paths = {name: Path(str(known[name])) for name in ("schema", "out") if name in known}
    texts = ("formula", "model", "family", "method", "adjacency", "ledger")
    return known | paths | {name: str(known[name]) for name in texts if name in known}


def parse_settings(texts: Sequence[str]) -> dict[str, object]:
    """Reads settings that were typed as ``name=value``."""
    chosen = [parse_setting(each) for each in texts]
    if len(dict(chosen)) < len(chosen):
        raise InvalidArgument("A setting is given twice; pass it once.")
    return dict(chosen)


def parse_setting(text: str) -> tuple[str, object]:
    """Reads a setting that was typed as ``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgument(
            f"Write a setting as name=value, such as num_steps=2000; got {text!r}."
        )
    try:
        parsed = yaml.safe_load(value)
        return name, float(parsed) if isinstance(parsed, str) else parsed  # YAML's 1e-3 is text
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InvalidArgument(f"The value of setting {name!r} is not a number.") from None


class RunFolder:
    """The folder of a run: the request, the schema, the posterior and the report."""

    def __init__(self, path: Path, file: ModelFile | None = None) -> None:
        self.path, self.file, self._made = path, file, False

    def check_empty(self) -> None:
        """Raises if there is something in the folder, other than a fit that stopped after its count.

        The ledger has recorded such a fit, and whoever fits again types the same command.
        """
        try:
            held = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        except OSError as error:
            raise InvalidArgument(f"{self.path} cannot be read: {error.strerror}.") from None
        if held and not {STOPPED_FILE} <= held <= {STOPPED_FILE, SETTINGS_FILE, _SCHEMA_FILE}:
            if self.unfinished:
                raise InvalidArgument(
                    f"{self.path} holds an unfinished fit. To continue it, run: tacit resume {self.path}. For "
                    "another fit, pass a new folder with --out."
                )
            raise InvalidArgument(
                f"{self.path} is not empty; pass a new folder with --out, or empty this one."
            )

    def make(self, request: Request, **more: object) -> None:
        """Creates the folder before anything is charged, and writes the request."""
        try:
            self._made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self.check_empty()
            (self.path / STOPPED_FILE).unlink(missing_ok=True)
            request.schema.to_yaml(self.path / _SCHEMA_FILE)
            made = {"made": datetime.now(UTC).isoformat(timespec="seconds")}
            text = yaml.safe_dump(request.facts() | more | made, sort_keys=False)
            (self.path / SETTINGS_FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"{self.path} cannot be written: {error.strerror}.") from None

    def discard(self) -> None:
        """Removes what `make` created, if a run never began, and a checkpoint without keys."""
        from tacit.privacy.checkpoint import destroy_checkpoint

        with suppress(OSError):
            destroy_checkpoint(self.path)
            for name in (SETTINGS_FILE, _SCHEMA_FILE):
                (self.path / name).unlink(missing_ok=True)
            if self._made:
                self.path.rmdir()

    @property
    def unfinished(self) -> bool:
        """Whether a run was begun here that is not finished."""
        if not (self.path / UNFINISHED_FOLDER).is_dir():
            return False
        from tacit.privacy.checkpoint import is_resumable

        return is_resumable(self.path)

    @property
    def saved(self) -> bool:
        """Whether a posterior is here."""
        return (self.path / POSTERIOR_FILE).exists()

    @property
    def stopped(self) -> bool:
        """Whether the run stopped after its count, without a posterior."""
        return (self.path / STOPPED_FILE).exists()

    @property
    def is_unused(self) -> bool:
        """Whether nothing was charged for a run here."""
        return not (self.unfinished or self.saved or self.stopped)

    @property
    def notes(self) -> Mapping[str, str]:
        """Where the data and the ledger of an unfinished run are."""
        from tacit.privacy.checkpoint import read_notes

        return read_notes(self.path)[1]

    def write_report(self, posterior: "Posterior") -> None:
        """Writes the report of a posterior, with the request."""
        from tacit.results.report import write_report

        write_report(posterior, self.path, settings=self.report_settings())

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The request as it was written."""
        try:
            found = yaml.safe_load((self.path / SETTINGS_FILE).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
            found = None
        if not isinstance(found, dict) or not {"formula", "family", "budget"} <= set(found):
            near = "" if self.path.exists() else nearest_file(self.path, folder=True)
            raise InvalidArgument(
                f"{self.path} is not a run that tacit fit wrote: it has no readable {SETTINGS_FILE}.{near}"
            )
        return found

    def request(self) -> Request:
        """The request, to plan or to load the model again."""
        facts = self.facts
        try:
            return Request(
                formula=facts["formula"],
                file=self._file(ModelFile.recorded(facts)),
                family=facts["family"],
                schema=Schema.from_yaml(self.path / _SCHEMA_FILE),
                budget=Budget(**facts["budget"]),
                method=facts["method"],
                settings=tuple(facts["settings"].items()),
                seed=facts["seed"],
                size=facts.get("size"),
                scenario=_make_scenario(facts.get("scenario")),
                notes=tuple((facts.get("notes") or {}).items()),
            )
        except (KeyError, TypeError, AttributeError):
            raise InvalidArgument(
                f"{self.path / SETTINGS_FILE} is damaged: it is not as tacit fit wrote it."
            ) from None

    def _file(self, recorded: ModelFile | None) -> ModelFile | None:
        """The file that was passed, if it is the one that was fitted; else the recorded one."""
        if self.file is None:
            return recorded
        if recorded is None:
            raise InvalidArgument(f"{self.path} was fitted by a formula; leave --model out.")
        if (self.file.name, self.file.digest) != (recorded.name, recorded.digest):
            raise InvalidArgument(
                f"{self.file} is not the model that was fitted, which was {recorded} with SHA-256 "
                f"{recorded.digest}."
            )
        return self.file

    def report_settings(self) -> dict[str, object]:
        """The request as a report shows it."""
        facts = {name: value for name, value in self.facts.items() if value is not None}
        facts.pop("settings")
        notes = dict(facts.pop("notes", {}))
        title = {"title": notes.pop("title")} if "title" in notes else {}
        facts |= title | ({"notes": notes} if notes else {})
        method = facts.pop("with", facts["method"])  # with all settings, if they were recorded
        return {**facts, "method": method}

    def posterior(self, *, with_model: bool) -> "Posterior":
        """The posterior, and if requested with the model that predictions need."""
        from tacit.results.posterior import Posterior

        request = self.request()
        if self.stopped:
            from tacit.api.resume import check_not_stopped

            check_not_stopped(self.path)
        if self.unfinished and not self.saved:
            raise TacitError(
                f"The fit in {self.path} is unfinished. To continue it, run: tacit resume {self.path}."
            )
        found = Posterior.load(self.path / POSTERIOR_FILE)
        model = request.model if with_model else found.model
        return replace(found, schema=request.schema, model=model)


def _make_scenario(facts: Mapping[str, Any] | None) -> "Scenario | None":
    """The scenario that the settings of a run record."""
    if facts is None:
        return None
    from tacit.api.scenario import Scenario

    try:
        return Scenario(**facts)
    except TypeError:
        raise InvalidArgument("The scenario has an unknown entry.") from None


def parse_request(
    formula: str | None,
    model: str | None,
    schema: Path,
    budget: Budget,
    family: str | None,
    method: str,
    settings: Mapping[str, object],
    seed: int | None,
    size: int | None = None,
    scenario: Path | Mapping[str, Any] | None = None,
) -> Request:
    """Makes a request from what was typed."""
    return Request(
        formula=formula,
        file=None if model is None else ModelFile.named(model),
        schema=Schema.from_yaml(schema),
        budget=budget,
        family=family,
        method=method,
        settings=tuple(settings.items()),
        seed=seed,
        size=size,
        scenario=tacit.Scenario.from_yaml(scenario)
        if isinstance(scenario, Path)
        else _make_scenario(scenario),
    )


def write_predictions(
    posterior: "Posterior",
    data: TableLike,
    out: Path | None,
    *,
    interval: str | None,
    levels: Sequence[str],
) -> None:
    """Writes the columns of new rows, with the mean of each row's outcome, or the probability of each level.

    Rows with a missing value get NA. With ``interval``, the ends of an interval of the mean or of the
    outcome are added; their column names say so if the interval does not account for the privacy noise.
    """
    if interval is not None:
        _validate.choice("--interval", interval, ("mean", "outcome"))
    found = posterior.predict(data)
    if isinstance(found, dict):
        raise InvalidArgument(
            f"The model has several outcomes ({', '.join(found)}); predict with Posterior.predict in "
            "Python."
        )
    mean = np.asarray(found)
    if mean.ndim > 1 and not levels:
        levels = _level_names(posterior, data, mean.shape[1])
    if interval == "outcome" and mean.ndim > 1:
        raise InvalidArgument(
            "An interval of the outcome needs a numeric outcome. This outcome has levels; use --interval "
            "mean for intervals of their probabilities."
        )
    columns = {"mean": mean} if mean.ndim == 1 else dict(zip(levels, mean.T, strict=True))
    if interval is not None:
        from tacit.results.predictive import predictive_quantiles

        ends = [_column_name(name, posterior.intervals) for name in ("5%", "95%")]
        of: Literal["mean", "outcome"] = "mean" if interval == "mean" else "outcome"
        (both,) = predictive_quantiles(posterior, data, [0.05, 0.95], of=of).values()
        for end, values in zip(ends, both, strict=True):
            if mean.ndim == 1:
                columns[end] = values
            else:
                named = [f"{level} {end}" for level in levels]
                columns |= dict(zip(named, values.T, strict=True))
    given = _given_cells(data, None if posterior.schema is None else posterior.schema.sep)
    # A column of the rows that is called like a prediction keeps its name.
    header = [*given, *(f"predicted {name}" if name in given else name for name in columns)]
    predicted = ([_format_cell(value) for value in values] for values in columns.values())
    lines = zip(*given.values(), *predicted, strict=True)
    if out is None:
        _write_csv(sys.stdout, header, lines)
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as opened:
            _write_csv(opened, header, lines)
    except OSError as error:
        raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None


def _given_cells(data: TableLike, sep: str | None) -> dict[str, list[str]]:
    """The cells of new rows as text, by column; none of a table without columns."""
    source = open_source(data, sep)
    found: dict[str, list[str]] = {str(name): [] for name in source.names}
    wanted: Sequence[Any] = tuple(source.names)
    if not wanted:
        return {}
    for chunk in source.chunks(wanted):
        for name, cells in chunk.items():
            present = [True] * len(cells.values) if cells.present is None else cells.present
            values: Sequence[object] = (
                cells.values.cells(np.arange(len(cells.values)))
                if isinstance(cells.values, Texts)
                else cells.values.tolist()
            )
            found[str(name)] += [
                _cell_text(value) if shown else ""
                for value, shown in zip(values, present, strict=True)
            ]
    return found


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _level_names(posterior: "Posterior", data: TableLike, count: int) -> list[str]:
    """Names of the levels of a model in a file: those of the schema's column, or numbers."""
    from tacit.results.predictive import predict_outcomes, predictive_model

    (outcome,) = predict_outcomes(posterior, data, "mean", 0)
    _, schema = predictive_model(posterior)
    kind = schema[outcome] if outcome in schema.names else None
    if isinstance(kind, Category) and kind.size == count:
        return [str(each) for each in (*kind.levels, *filter(None, [kind.other]))]
    return [str(place) for place in range(count)]


def _column_name(name: str, intervals: Intervals) -> str:
    from tacit.results.summary import with_noise_note

    return with_noise_note(name, intervals) if intervals == Intervals.LEFT_OUT else name


def _format_cell(value: float) -> str:
    return "NA" if np.isnan(value) else f"{value:.6g}"


def _write_csv(opened: TextIO, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(opened, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)


def load_contents(path: Path) -> "ReportContents":
    """What a report shows of a run.

    Args:
        path: The folder that ``tacit fit`` wrote, or a file that `Posterior.save` wrote.

    Returns:
        The posterior with its settings and schema; a file alone has neither.

    Raises:
        TacitError: If it cannot be read.
    """
    from tacit.results.contents import ReportContents
    from tacit.results.posterior import Posterior

    if path.is_file():
        return ReportContents(posterior=Posterior.load(path), settings={}, schema=None)
    run = RunFolder(path)
    posterior = run.posterior(with_model=False)
    return ReportContents(
        posterior=posterior, settings=run.report_settings(), schema=posterior.schema
    )


def write_run_report(
    path: Path, out: Path | None, units: Mapping[str, float]
) -> "tuple[Posterior, Path]":
    """Writes the report of a run or a file; returns the posterior and the page."""
    from tacit.results.report import write_report

    found = load_contents(path)
    folder = out or (path.parent if path.is_file() else path)
    write_report(found.posterior, folder, settings=found.settings, schema=found.schema, units=units)
    return found.posterior, folder / "report.html"


def write_site_reports(
    path: Path, out: Path | None, units: Mapping[str, float], sites: Sequence[Path]
) -> list[Path]:
    """Writes the report of a federated fit for each site's own board; returns the pages.

    Args:
        path: The file of the result.
        out: The folder to write to; by default that of the file.
        units: Other units for some columns.
        sites: Settings of the sites, each ``site.toml``.

    Returns:
        The pages.
    """
    from tacit.api.federated import site_part
    from tacit.results.report import write_site_report

    found, pages = load_contents(path), []
    for settings in sites:
        posterior, part = site_part(found.posterior, settings)
        contents = replace(found, posterior=posterior, site=part, units=units)
        contents = replace(contents, schema=found.schema or posterior.schema)
        pages.append(write_site_report(contents, out or path.parent))
    return pages


def explain_run(path: Path) -> str:
    """A run or a file in plain words."""
    from tacit.results.explain import explain_result

    return explain_result(load_contents(path))


def parse_notes(texts: Sequence[str]) -> dict[str, str]:
    """Reads notes that were typed as ``name=text``."""
    pairs = [text.partition("=") for text in texts]
    for name, equals, text in pairs:
        if not equals or not name.strip() or not text.strip():
            raise InvalidArgument(
                "Write a note as name=text, such as --note purpose='A study of falls'."
            )
    found = {name.strip(): text.strip() for name, _, text in pairs}
    if len(found) < len(pairs):
        raise InvalidArgument("A note is given twice; pass each name once.")
    return found


def parse_units(texts: Sequence[str]) -> dict[str, float]:
    """Reads units that were typed as ``column=number``."""
    found = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        try:
            found[name] = float(size)
        except ValueError:
            name = ""
        if not name:
            raise InvalidArgument(f"Write a unit as column=number, such as age=10; got {text!r}.")
    return found
