"""Privacy statements: the guarantee of a result, in words and numbers.

A statement holds the event (what was done to the data), from which every epsilon is computed. It is saved as
JSON with the event as nested dictionaries, so that its epsilons can be checked later; and as an entry of the public registry of differential
privacy deployments that OpenDP keeps and NIST proposes to host (github.com/opendp/deployments-registry-data;
Nanayakkara, Ghazi and Vadhan 2025, arXiv:2509.13509), with the fields of its entries of 2026. Fields that only
the publisher knows are left empty.
"""

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

import yaml

from tacit import __version__, _validate
from tacit._format import format_epsilon, format_number, requested_note
from tacit._html import render_template
from tacit.accounting import ADJACENCIES, PLD, Adjacency, Budget, Curve, events
from tacit.accounting.accountants import costs
from tacit.accounting.budget import percent_rounded_up
from tacit.accounting.events import DpEvent
from tacit.accounting.meaning import curve_meaning
from tacit.errors import InvalidArgument, UnsupportedEvent


def library_versions() -> dict[str, str]:
    """Versions of Tacit, the libraries that results depend on, and Python."""
    return dict(_library_versions())


@cache
def _library_versions() -> tuple[tuple[str, str], ...]:
    others = ((name, version(name)) for name in ("jax", "numpy", "scipy"))
    return (("tacit", __version__), *others, ("python", platform.python_version()))


_HEADER = """\
# An entry for the public registry of differential-privacy deployments, drafted by Tacit from the
# privacy statement. Fill in what is null, check the rest, and propose it at
# github.com/opendp/deployments-registry-data.
"""
# Hints for fields that the statement does not know.
_HINTS = {
    "url_slug": "words of the name and the year, with hyphens",
    "name": "the name of what is published",
    "data_curator_name": "who publishes it",
    "data_curator_type": "such as Nonprofit, Government or Company",
    "intended_use": "what the result is for",
    "data_product_region": "where the data are from, or whose laws apply",
    "data_product_sector": "such as Healthcare, Education, Government or Technology",
    "description": "what is published, in a few sentences",
    "publication_date": "'YYYY-MM-DD'",
    "epsilon": "no guarantee holds: do not publish",
    "variant_name": "no guarantee holds: do not publish",
    "delta": "no guarantee holds: do not publish",
    "actors": "who sees what, and who trusts whom: curator, analysts, the public",
    "composition": "no guarantee holds: do not publish",
    "release_type_details": "whether the same data will be used again",
    "preprocessing_and_hyperparameter_tuning": "what was done to the data before, and whether it "
    "was charged to the same ledger",
    "justification": "why this epsilon, this unit and this method",
    "sources": "where to read more",
    "registry_authors": "a list of who fills in this entry",
}
_ADJACENCY_SENTENCES = {
    "add-remove": "Two data sets are adjacent if one is the other without one {unit}.",
    "replace": "Two data sets are adjacent if one is the other with one {unit} exchanged for any "
    "other.",
}
_CENTRAL = (
    "Whoever runs the program holds the data and is trusted; what the program prints and writes is "
    "released under the guarantee."
)
_POST_PROCESSING = (
    "The posterior, its summaries and predictions follow from what was released, and from public "
    "values."
)
_FEDERATED = (
    "Every site holds its own data and is trusted with them; what leaves a site is released under "
    "the guarantee. The statement is that of the site with the weakest guarantee."
)


def registry_entry(
    statement: "PrivacyStatement", *, federated: bool = False, said: Sequence[str] = ()
) -> dict[str, object]:
    """The fields of an entry, nested as in the registry; None where the publisher must fill in.

    ``said`` are sentences about the posterior, which are added to the field on post-processing.
    """
    unit, event, left = statement.unit, statement.event, statement.budget_left
    epsilon = statement.epsilons[statement.adjacency]
    is_known = epsilon is not None and math.isfinite(epsilon) and statement.is_private
    variant = "Pure DP" if statement.delta == 0 else "Approximate DP"
    public = f"Treated as public: {', '.join(statement.public)}. " if statement.public else ""
    costs_listed = "; ".join(statement.cost_line(a) for a in ADJACENCIES)
    meaning = " ".join(filter(None, [statement.meaning, f"{costs_listed}."]))
    adjacent = _ADJACENCY_SENTENCES[statement.adjacency].format(unit=unit)
    versions = ", ".join(f"{name} {each}" for name, each in statement.versions.items())
    done = "no noise" if event is None else json.dumps(events.to_dict(event))
    assumes = f" Assumes: {'; '.join(statement.assumptions)}." if statement.assumptions else ""
    return {
        "url_slug": None,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": None,
                "data_curators": [{"data_curator_name": None, "data_curator_type": None}],
                "intended_use": None,
                "data_product_type": "Machine learning model",
                "data_product_region": None,
                "description": None,
                "publication_date": None,
                "data_product_sector": None,
            },
            "dp_variant": {
                "variant_name": variant if statement.is_private else None,
                "data_domain": "Tables with the declared columns, each value within its public bounds and "
                "levels; of any number of rows, unless that number is listed as public.",
                "unprotected_quantities": f"{public}Not protected: {'; '.join(statement.not_protected)}.",
            },
            "privacy_loss": {
                "privacy_unit": f"{unit.capitalize()}-level",
                "privacy_unit_details": f"{adjacent} ({statement.adjacency})",
                "privacy_parameters": {
                    # As it is written elsewhere, rounded up.
                    "epsilon": float(format_epsilon(epsilon)) if is_known else None,
                    "delta": statement.delta if is_known else None,
                },
                "privacy_parameters_details": statement.warning or meaning,
            },
            "deployment_model": {
                "model_name": "Federated" if federated else "Central",
                "model_name_details": _FEDERATED if federated else _CENTRAL,
                "actors": None,
                "release_type": "One release",
                "release_type_details": None
                if left is None
                else f"A ledger of these data counts every use; it had {left} left after this one.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": " ".join([_POST_PROCESSING, *said]),
                "composition": None
                if event is None
                else "All releases of the run together, by numerical composition of privacy-loss "
                "distributions, with every error of discretisation and truncation charged; by Rényi "
                "divergence where that is tighter.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": statement.declared or None,
                "mechanisms": f"What was done to the data: {done}. Implemented with {versions}. "
                f"Noise and sampling: {statement.randomness}.{assumes}",
                "justification": None,
            },
            "administrative": {"sources": None, "registry_authors": None},
        },
    }


def registry_yaml(
    statement: "PrivacyStatement",
    *,
    federated: bool = False,
    said: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> str:
    """The entry as YAML, with warnings first and a hint at every field to fill in."""
    fields = registry_entry(statement, federated=federated, said=said)
    warning = "".join(f"# {each}\n" for each in warnings)
    return f"{warning}{_HEADER}{''.join(_yaml_lines(fields, ''))}"


def _yaml_lines(fields: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:\n"
            for each in value:
                first, *others = _yaml_lines(each, f"{indent}    ")
                yield f"{indent}  - {first.lstrip(' ')}"
                yield from others
        elif value is None:
            yield f"{indent}{name}: null  # {_HINTS.get(name, 'to fill in')}\n"
        else:
            dumped = yaml.safe_dump({name: value}, allow_unicode=True, width=90)
            yield "".join(f"{indent}{line}\n" for line in dumped.splitlines())


NO_LEDGER = "no ledger: nothing limits how often these data are used"
UNIT_PLURALS = {"row": "rows", "person": "people"}
# How the entry of `PrivacyStatement.public` begins that says that the number of units is public.
PUBLIC_COUNT = "how many units there are"
NOT_PROTECTED = ("running time", "whoever runs the program and holds the data is trusted")

# The deltas at which the curve is written out; `PrivacyStatement.curve` has more points.
CURVE_DELTAS = tuple(10.0**exponent for exponent in range(-12, 0))
# What may change about one unit under each adjacency.
CHANGES: dict[Adjacency, str] = {
    "add-remove": "if a {unit} is added or removed",
    "replace": "if a {unit} is replaced by another",
}
_ADJACENCY_MEANINGS = {
    "add-remove": "a unit is in the data, or not",
    "replace": "a unit is one, or another",
}


def changes(unit: str, adjacency: Adjacency) -> str:
    """After an epsilon: for what change of the data it holds. The usual one needs few words.

    >>> changes("person", "add-remove"), changes("row", "replace")
    ('per person', 'if a row is replaced by another')
    """
    return f"per {unit}" if adjacency == "add-remove" else CHANGES[adjacency].format(unit=unit)


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyStatement:
    """The privacy guarantee of one result: what it covers, assumes and leaves out.

    Attributes:
        event: What was done to the data. Every epsilon is computed from it. None for a fit without
            privacy.
        delta: The delta of the budget.
        adjacency: The adjacency of the budget; see `Budget`.
        unit: The unit of privacy: a row, or a person with all their rows.
        public: What was treated as public.
        seeded: Whether the noise came from a seed, which voids the guarantee.
        not_protected: What the guarantee does not cover.
        assumptions: What must be true for the guarantee to hold.
        declared: What somebody declared about the data before the fit, which nothing can check. Every
            rendering begins with it.
        asked: The epsilon of the budget. The run may have cost less, and the ledger is charged the
            actual cost.
        budget_before: What the ledger had left before the charge.
        budget_left: What it had left afterwards, or None without a ledger.
        book: A note on the ledger if ``budget_left`` is None.
        versions: Versions of the software.
    """

    event: DpEvent | None
    delta: float
    adjacency: Adjacency
    unit: str
    public: tuple[str, ...]
    seeded: bool
    not_protected: tuple[str, ...] = NOT_PROTECTED
    assumptions: tuple[str, ...] = ()
    declared: str = ""
    asked: float | None = None
    budget_before: Budget | None = None
    budget_left: Budget | None = None
    book: str = NO_LEDGER
    versions: Mapping[str, str] = field(default_factory=library_versions, hash=False)

    def __post_init__(self) -> None:
        _validate.convert_fields(self, delta=_validate.probability)
        _validate.choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def is_private(self) -> bool:
        """Whether the result has a guarantee."""
        return self.warning is None

    @property
    def warning(self) -> str | None:
        """Why there is no guarantee, or None if there is one. Every rendering begins with it."""
        if self.event is None:
            return "NOT PRIVATE: fitted without noise, for comparison only. Do not release."
        if self.seeded:
            return "seeded: not private (whoever knows the seed can remove the noise)"
        if self.meaning is None:
            return f"NOT PRIVATE: no limit is known at delta {format_number(self.delta)} under {self.adjacency}."
        return None

    @cached_property
    def epsilons(self) -> dict[Adjacency, float | None]:
        """Epsilon at ``delta`` under each adjacency, as charged; None where no bound is known."""
        if self.event is None:
            return {"add-remove": None, "replace": None}
        return costs(self.event, self.delta, self.adjacency, self.asked)

    @property
    def meaning(self) -> str | None:
        """What the epsilon means for a person, or None if there is no bound."""
        spent = self.epsilons[self.adjacency]
        if spent is None or math.isinf(spent):
            return None
        return Budget(spent, self.delta, self.adjacency).explain()

    @cached_property
    def advantage(self) -> float | None:
        """The largest advantage of an attacker, by the whole privacy curve; None if no bound is known.

        See `tacit.accounting.meaning`.
        """
        if self.event is None:
            return None
        try:
            return PLD().delta(self.event, 0.0, self.adjacency)
        except UnsupportedEvent:
            return None

    @cached_property
    def attack(self) -> str | None:
        """What an attacker can do at most, by the whole privacy curve, in a sentence; None if no bound is known."""
        curve = self.curves_shown[self.adjacency]
        if self.advantage is None or curve is None:
            return None
        found = curve_meaning(self.advantage, curve)
        first, second = map(percent_rounded_up, found.true_positive_rates)
        return (
            f"By this run's whole privacy curve, the guess is right at most {percent_rounded_up(found.best_guess)} of the "
            f"time. A test of whether one {self.unit} was used finds at most {first} of those that were, if it errs on 1% "
            f"of those that were not, and {second} if it errs on 5%."
        )

    def curve(self, adjacency: Adjacency, deltas: tuple[float, ...] | None = None) -> Curve | None:
        """Epsilon over a range of deltas. The guarantee holds at every point of the curve.

        Args:
            adjacency: ``"add-remove"`` or ``"replace"``.
            deltas: The deltas; by default a public grid.

        Returns:
            The curve, or None if no bound is known.
        """
        if self.event is None:
            return None
        try:
            return PLD().curve(self.event, adjacency, deltas)
        except UnsupportedEvent:
            return None

    @property
    def randomness(self) -> str:
        """The source of the random numbers for sampling and noise."""
        if self.event is None:
            return "no noise"
        if self.seeded:
            return "AES-256 keyed by the seed"
        return "AES-256 keyed by the operating system, exact on an integer lattice"

    @property
    def randomness_sentence(self) -> str:
        """Where the random numbers of the run came from, in words."""
        if self.event is None:
            return "No noise was added."
        if self.seeded:
            return "Random numbers came from a seed. Whoever knows it can repeat them and remove the noise."
        return (
            "Random numbers came from the operating system of the computer that ran the fit. Nobody can "
            "predict or repeat them."
        )

    @property
    def count_note(self) -> tuple[str, ...]:
        """That the number of units is protected, in a sentence; nothing if it is not."""
        if self.event is None or any(said.startswith(PUBLIC_COUNT) for said in self.public):
            return ()
        many = UNIT_PLURALS.get(self.unit, f"{self.unit}s")
        return (f"The number of {many} is protected, so it is not part of the result.",)

    @property
    def cost_sentence(self) -> str:
        """What the run cost one unit, and what the ledger has left, in one sentence."""
        changed = changes(self.unit, self.adjacency)
        epsilon = f"epsilon {format_epsilon(self.epsilons[self.adjacency])}"
        left = self.budget_left
        book = self.book if left is None else f"{left.amounts} left in the ledger"
        return f"Privacy: {epsilon} at delta {format_number(self.delta)} {changed}; {book}."

    @property
    def headline(self) -> str:
        """The warning, or the epsilon of the budget, in one line."""
        return self.warning or self.epsilon_line(self.adjacency)

    def __str__(self) -> str:
        if self.event is None:
            return str(self.warning)
        lines = [said for said in (self.warning, self.declared) if said]
        if self.seeded:
            lines.append("without a seed, the same run would have:")
        lines += [self.epsilon_line(adjacency) for adjacency in ADJACENCIES]
        lines += [self.meaning] if self.meaning else []
        lines += [f"{name}: {said}" if name else said for name, said in self.facts()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"PrivacyStatement({self.headline})"

    def _repr_html_(self) -> str:
        return render_template("statement.html", statement=self)

    def to_dict(self, *, curve: bool = True) -> dict[str, Any]:
        """The statement as plain data, for JSON or YAML.

        Args:
            curve: Whether to include the curve of epsilon over delta.

        Returns:
            A dictionary. An infinite or unknown epsilon is None.
        """
        curves = {a: _curve_points(self.curves_shown[a]) for a in ADJACENCIES} if curve else {}
        return {
            "private": self.is_private,
            "warning": self.warning,
            "epsilon": {a: _finite_or_none(e) for a, e in self.epsilons.items()},
            "delta": self.delta,
            "adjacency": self.adjacency,
            "meaning": self.meaning,
            "unit": self.unit,
            "public": list(self.public),
            "not_protected": list(self.not_protected),
            "assumptions": list(self.assumptions),
            "declared": self.declared,
            "seeded": self.seeded,
            "randomness": self.randomness,
            "asked": self.asked,
            "budget_before": None if self.budget_before is None else asdict(self.budget_before),
            "budget_left": None if self.budget_left is None else asdict(self.budget_left),
            "book": self.book,
            **({"curve": curves} if curve else {}),
            "event": None if self.event is None else events.to_dict(self.event),
            "versions": dict(self.versions),
        }

    def to_json(self, *, curve: bool = True) -> str:
        """The statement as JSON text.

        Args:
            curve: Whether to include the curve of epsilon over delta.

        Returns:
            The text, which `from_json` reads.
        """
        return json.dumps(self.to_dict(curve=curve), indent=2, allow_nan=False)

    def to_registry(self, *, federated: bool = False) -> dict[str, object]:
        """The fields of an entry in the public deployments registry.

        Args:
            federated: Whether the data stayed with several sites.

        Returns:
            A dictionary. Fields that a statement cannot know, such as the publisher, are None.
        """
        return registry_entry(self, federated=federated)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyStatement":
        """Reads a statement that `to_json` wrote.

        Epsilons are computed again from the event, so a file cannot claim more than its event
        proves.

        Args:
            text: The JSON text.

        Returns:
            The statement.
        """
        try:
            data = json.loads(text)
            event, before, left = data["event"], data.get("budget_before"), data["budget_left"]
            return cls(
                event=None if event is None else events.from_dict(event),
                asked=data.get("asked"),
                budget_before=None if before is None else Budget(**before),
                budget_left=None if left is None else Budget(**left),
                versions=dict(data["versions"]),
                public=tuple(data["public"]),
                not_protected=tuple(data["not_protected"]),
                assumptions=tuple(data["assumptions"]),
                declared=str(data.get("declared", "")),
                book=str(data.get("book", NO_LEDGER)),
                **{name: data[name] for name in ("delta", "adjacency", "unit", "seeded")},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"This is not a privacy statement written by Tacit: {error}."
            ) from error

    def epsilon_line(self, adjacency: Adjacency) -> str:
        """The cost under an adjacency, and whether it is the requested one."""
        asked = f" ({self.asked_for})" if adjacency == self.adjacency else ""
        return f"{self.cost_line(adjacency)}{asked}"

    def cost_line(self, adjacency: Adjacency) -> str:
        """The cost under an adjacency."""
        epsilon = format_epsilon(self.epsilons[adjacency])
        return f"epsilon {epsilon} at delta {format_number(self.delta)} under {adjacency}"

    @property
    def asked_for(self) -> str:
        """Whether the run spent the epsilon that was requested, or less."""
        return requested_note(self.epsilons[self.adjacency], self.asked)

    def facts(self) -> list[tuple[str, str]]:
        """What a reader should know beside the numbers; a fact without a name is a sentence."""
        assumed = [("assumes", "; ".join(self.assumptions))] if self.assumptions else []
        left = self.budget_left
        gain = "" if self.advantage is None else percent_rounded_up(self.advantage)
        curve = (
            f"at most {gain}: true less false positives of any test, by this run's privacy curve"
        )
        return [
            ("unit of privacy", f"one {self.unit}"),
            *([("advantage of an attacker", curve)] if gain else []),
            ("treated as public", ", ".join(self.public)),
            ("not protected", "; ".join(self.not_protected)),
            *assumed,
            ("noise and sampling", self.randomness),
            ("computed with", ", ".join(f"{name} {v}" for name, v in self.versions.items())),
            ("", self.book) if left is None else ("ledger", f"{left} left"),
        ]

    @cached_property
    def curves_shown(self) -> dict[Adjacency, Curve | None]:
        """Epsilon at each of the deltas that renderings show, under each adjacency."""
        return {adjacency: self.curve(adjacency, CURVE_DELTAS) for adjacency in ADJACENCIES}

    def epsilon_table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Header and rows of a table of epsilons under each adjacency."""
        rows: list[Sequence[str]] = [
            (a, format_epsilon(self.epsilons[a]), _ADJACENCY_MEANINGS[a]) for a in ADJACENCIES
        ]
        return ("adjacency", f"epsilon at {format_number(self.delta)}", ""), rows

    def curve_table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Header and rows of a table of epsilons at several deltas."""
        found = {
            adjacency: dict(zip(*curve, strict=True))
            for adjacency, curve in self.curves_shown.items()
            if curve is not None
        }
        rows: list[Sequence[str]] = [
            [
                format_number(delta),
                *(format_epsilon(found.get(a, {}).get(delta)) for a in ADJACENCIES),
            ]
            for delta in CURVE_DELTAS
        ]
        return ("delta", *(f"epsilon, {a}" for a in ADJACENCIES)), rows


def _curve_points(curve: Curve | None) -> dict[str, list[float | None]] | None:
    if curve is None:
        return None
    return {"delta": list(curve.deltas), "epsilon": [_finite_or_none(e) for e in curve.epsilons]}


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
