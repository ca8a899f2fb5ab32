"""What ``tacit fit`` was asked for, which is public, and its output folder."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from attrs import asdict, evolve

from tacit import _validate
from tacit.accounting import Budget
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.inference.base import Method
from tacit.inference.methods import CHOICES, COMMANDS, DEFAULT, default_method, sized
from tacit.interfaces.forecasting.scenario import Scenario
from tacit.interfaces.front_ends.registry import as_model, schema_of
from tacit.interfaces.glm import glm
from tacit.interfaces.kept_runs import POSTERIOR, SETTINGS
from tacit.interfaces.model_files import ModelFile
from tacit.interfaces.plan import Plan, plan
from tacit.interfaces.rows import columns_of
from tacit.models.base import AnyModel
from tacit.privacy.unfinished import is_unfinished, notes_of
from tacit.results.posterior import Posterior
from tacit.results.report import write_report

_SCHEMA = "schema.yaml"


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
    settings: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None
    size: int | None = None
    scenario: Scenario | None = None
    notes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if (self.formula is None) == (self.file is None):
            raise InvalidArgument("Pass the model with --formula or with --model, one of the two.")
        if self.file is not None and self.family is not None:
            raise InvalidArgument(
                "--family is for a formula; the model in the file has its own distribution."
            )
        _validate.choice("method", self.method, CHOICES)
        if self.seed is not None:
            _validate.count("seed", self.seed, least=0)

    @cached_property
    def written(self) -> Any:
        """The model as it was written: the regression of the formula, or what the file has."""
        if self.file is not None:
            return self.file.written
        return glm(str(self.formula), family=self.family, schema=self.schema)

    @property
    def described(self) -> str:
        """The model in words."""
        return str(self.written if self.file is None else self.file)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the outcome of a formula, if it has levels."""
        return () if self.file is not None else self.written.program.outcome.facts.levels

    @property
    def columns(self) -> list[str]:
        """The columns that are read, without the column of the person."""
        names = columns_of(self.model, self.schema)
        return [name for name in names if name != self.schema.person]

    @cached_property
    def model(self) -> AnyModel:
        """The model in the form that inference takes."""
        return as_model(self.written, schema_of(self.written, self.schema))

    @property
    def chosen_method(self) -> Method:
        """The method with its settings."""
        asked = COMMANDS.get(self.method)
        kind: Any = type(default_method(self.model)) if asked is None else asked.kind
        known = [field.name for field in fields(kind)]
        for name, _ in self.settings:
            if name not in known:
                raise InvalidArgument(
                    f"{self.method} has no setting {name!r}; it has {', '.join(known)}."
                )
        missing = [
            field.name
            for field in fields(kind)
            if field.default is MISSING
            and field.default_factory is MISSING
            and field.name not in dict(self.settings)
        ]
        if missing:
            raise InvalidArgument(
                f"{self.method} needs a setting {missing[0]!r}; pass --set {missing[0]}=..."
            )
        try:
            method: Any = kind(**dict(self.settings))
            if self.size is not None:  # settings that were asked for stay
                method = sized(method, self.model, self.size, self.budget)
                method = replace(method, **dict(self.settings))
        except TypeError:
            raise InvalidArgument(
                f"A setting of {self.method} has a value of the wrong type."
            ) from None
        chosen: Method = method
        return chosen

    def plan(self) -> Plan:
        """What the fit will do. Touches no data."""
        return plan(
            self.model,
            self.schema,
            budget=self.budget,
            method=self.chosen_method,
            size=self.size,
            scenario=self.scenario,
        )

    def facts(self) -> dict[str, Any]:
        """The request as plain data."""
        return {
            "formula": self.formula,
            "family": None if self.file is not None else self.written.family,
            **({} if self.file is None else self.file.facts()),
            "budget": asdict(self.budget),
            "method": self.method,
            "settings": dict(self.settings),
            "with": repr(self.chosen_method),
            "seed": self.seed,
            "size": self.size,
            "scenario": None if self.scenario is None else self.scenario.facts(),
            "notes": dict(self.notes) or None,
        }


def setting(text: str) -> tuple[str, Any]:
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


class Folder:
    """The folder of a run: the request, the schema, the posterior and the report."""

    def __init__(self, path: Path, file: ModelFile | None = None) -> None:
        self.path, self.file, self._made = path, file, False

    def make(self, request: Request, **more: Any) -> None:
        """Creates the folder before anything is charged, and writes the request."""
        try:
            self._made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise InvalidArgument(
                    f"{self.path} is not empty; pass a new folder with --out, or empty this one."
                )
            request.schema.to_yaml(self.path / _SCHEMA)
            made = {"made": datetime.now(UTC).isoformat(timespec="seconds")}
            text = yaml.safe_dump(request.facts() | more | made, sort_keys=False)
            (self.path / SETTINGS).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"{self.path} cannot be written: {error.strerror}.") from None

    def discard(self) -> None:
        """Removes what `make` created, if a run never began."""
        with suppress(OSError):
            for name in (SETTINGS, _SCHEMA):
                (self.path / name).unlink(missing_ok=True)
            if self._made:
                self.path.rmdir()

    @property
    def unfinished(self) -> bool:
        """Whether a run was begun here that is not finished."""
        return is_unfinished(self.path)

    @property
    def saved(self) -> bool:
        """Whether a posterior is here."""
        return (self.path / POSTERIOR).exists()

    @property
    def notes(self) -> Mapping[str, str]:
        """Where the data and the ledger of an unfinished run are."""
        return notes_of(self.path)[1]

    def write_report(self, posterior: Posterior) -> None:
        """Writes the report of a posterior, with the request."""
        write_report(posterior, self.path, settings=self.shown())

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The request as it was written."""
        try:
            found = yaml.safe_load((self.path / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
            found = None
        if not isinstance(found, dict) or not {"formula", "family", "budget"} <= set(found):
            raise InvalidArgument(
                f"{self.path} is not a run that tacit fit wrote: it has no readable {SETTINGS}."
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
                schema=Schema.from_yaml(self.path / _SCHEMA),
                budget=Budget(**facts["budget"]),
                method=facts["method"],
                settings=tuple(facts["settings"].items()),
                seed=facts["seed"],
                size=facts.get("size"),
                scenario=None if facts.get("scenario") is None else Scenario(**facts["scenario"]),
                notes=tuple((facts.get("notes") or {}).items()),
            )
        except (KeyError, TypeError, AttributeError):
            raise InvalidArgument(
                f"{self.path / SETTINGS} is damaged: it is not as tacit fit wrote it."
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

    def shown(self) -> dict[str, Any]:
        """The request as a report shows it."""
        facts = {name: value for name, value in self.facts.items() if value is not None}
        facts.pop("settings")
        notes = dict(facts.pop("notes", {}))
        title = {"title": notes.pop("title")} if "title" in notes else {}
        facts |= title | ({"notes": notes} if notes else {})
        # Folders of earlier versions do not have it. A model's file is not run for it.
        used = facts.pop("with", None)
        if used is None:
            used = facts["method"] if "model" in facts else repr(self.request().chosen_method)
        return {**facts, "method": used}

    def posterior(self, *, with_model: bool) -> Posterior:
        """The posterior, with the model that predictions need if asked for."""
        request = self.request()
        found = Posterior.load(self.path / POSTERIOR)
        model = request.model if with_model else found.model
        return evolve(found, schema=request.schema, model=model)


def requested(
    formula: str | None,
    model: str | None,
    schema: Path,
    budget: Budget,
    family: str | None,
    method: str,
    settings: Sequence[str],
    seed: int | None,
    size: int | None = None,
    scenario: Path | None = None,
) -> Request:
    """Makes a request from what was typed."""
    chosen = [setting(each) for each in settings]
    if len(dict(chosen)) < len(chosen):
        raise InvalidArgument("A setting is given twice; pass it once.")
    return Request(
        formula=formula,
        file=None if model is None else ModelFile.named(model),
        schema=Schema.from_yaml(schema),
        budget=budget,
        family=family,
        method=method,
        settings=tuple(chosen),
        seed=seed,
        size=size,
        scenario=None if scenario is None else Scenario.from_yaml(scenario),
    )
