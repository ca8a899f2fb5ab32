"""A statement as an entry of the public registry of differential privacy deployments.

Fields and their values are those of the registry that OpenDP keeps and NIST proposes to host
(github.com/opendp/deployments-registry-data; Nanayakkara, Ghazi and Vadhan 2025,
arXiv:2509.13509), as in its entries of 2026. Fields that only the publisher knows are left empty.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from tacit._format import in_digits, printed
from tacit.accounting import ADJACENCIES
from tacit.results import eventdata

if TYPE_CHECKING:
    from tacit.results.statement import PrivacyStatement

_HEAD = """\
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
_ADJACENT = {
    "add-remove": "Two data sets are adjacent if one is the other without one {unit}.",
    "replace": "Two data sets are adjacent if one is the other with one {unit} exchanged for any "
    "other.",
}
_CENTRAL = (
    "Whoever runs the program holds the data and is trusted; what the program prints and writes is "
    "released under the guarantee."
)
_POST = (
    "The posterior, its summaries and predictions follow from what was released, and from public "
    "values."
)
_SITES = (
    "Every site holds its own data and is trusted with them; what leaves a site is released under "
    "the guarantee. The statement is that of the site with the weakest guarantee."
)


def entry(
    statement: "PrivacyStatement", *, federated: bool = False, said: Sequence[str] = ()
) -> dict[str, Any]:
    """The fields of an entry, nested as in the registry; None where the publisher must fill in.

    ``said`` are sentences about the posterior, which are added to the field on post-processing.
    """
    return {
        "url_slug": None,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(),
            "dp_variant": _variant(statement),
            "privacy_loss": _loss(statement),
            "deployment_model": _model(statement, federated),
            "accounting": _accounting(statement, said),
            "implementation": _implementation(statement),
            "administrative": {"sources": None, "registry_authors": None},
        },
    }


def text(
    statement: "PrivacyStatement",
    *,
    federated: bool = False,
    said: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> str:
    """The entry as YAML, with warnings first and a hint at every field to fill in."""
    fields = entry(statement, federated=federated, said=said)
    warning = "".join(f"# {each}\n" for each in warnings)
    return f"{warning}{_HEAD}{''.join(_lines(fields, ''))}"


def _basic() -> dict[str, Any]:
    return {
        "name": None,
        "data_curators": [{"data_curator_name": None, "data_curator_type": None}],
        "intended_use": None,
        "data_product_type": "Machine learning model",
        "data_product_region": None,
        "description": None,
        "publication_date": None,
        "data_product_sector": None,
    }


def _variant(statement: "PrivacyStatement") -> dict[str, Any]:
    name = "Pure DP" if statement.delta == 0 else "Approximate DP"
    public = f"Treated as public: {', '.join(statement.public)}. " if statement.public else ""
    return {
        "variant_name": name if statement.is_private else None,
        "data_domain": "Tables with the declared columns, each value within its public bounds and "
        "levels; of any number of rows, unless that number is listed as public.",
        "unprotected_quantities": f"{public}Not protected: {'; '.join(statement.not_protected)}.",
    }


def _loss(statement: "PrivacyStatement") -> dict[str, Any]:
    epsilon = statement.epsilons[statement.adjacency]
    known = epsilon is not None and math.isfinite(epsilon) and statement.is_private
    lines = [
        f"epsilon {printed(statement.epsilons[a])} at delta {in_digits(statement.delta)} under {a}"
        for a in ADJACENCIES
    ]
    details = [statement.meaning or "", f"{'; '.join(lines)}."]
    adjacent = _ADJACENT[statement.adjacency].format(unit=statement.unit)
    return {
        "privacy_unit": f"{statement.unit.capitalize()}-level",
        "privacy_unit_details": f"{adjacent} ({statement.adjacency})",
        "privacy_parameters": {
            "epsilon": _rounded_up(epsilon) if known and epsilon is not None else None,
            "delta": statement.delta if known else None,
        },
        "privacy_parameters_details": statement.warning or " ".join(filter(None, details)),
    }


def _model(statement: "PrivacyStatement", federated: bool) -> dict[str, Any]:
    left = statement.budget_left
    return {
        "model_name": "Federated" if federated else "Central",
        "model_name_details": _SITES if federated else _CENTRAL,
        "actors": None,
        "release_type": "One release",
        "release_type_details": None
        if left is None
        else f"A ledger of these data counts every use; it had {left} left after this one.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _accounting(statement: "PrivacyStatement", said: Sequence[str]) -> dict[str, Any]:
    return {
        "post_processing": " ".join([_POST, *said]),
        "composition": None
        if statement.event is None
        else "All releases of the run together, by numerical composition of privacy-loss "
        "distributions, with every error of discretisation and truncation charged; by Rényi "
        "divergence where that is tighter.",
    }


def _implementation(statement: "PrivacyStatement") -> dict[str, Any]:
    versions = ", ".join(f"{name} {each}" for name, each in statement.versions.items())
    event = statement.event
    done = "no noise" if event is None else json.dumps(eventdata.to_data(event))
    rests = f" Assumes: {'; '.join(statement.assumptions)}." if statement.assumptions else ""
    return {
        "preprocessing_and_hyperparameter_tuning": statement.declared or None,
        "mechanisms": f"What was done to the data: {done}. Implemented with {versions}. "
        f"Noise and sampling: {statement.randomness}.{rests}",
        "justification": None,
    }


def _rounded_up(epsilon: float) -> float:
    return float(printed(epsilon))


def _lines(fields: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:\n"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:\n"
            for each in value:
                first, *others = _lines(each, f"{indent}    ")
                yield f"{indent}  - {first.lstrip(' ')}"
                yield from others
        elif value is None:
            yield f"{indent}{name}: null  # {_HINTS.get(name, 'to fill in')}\n"
        else:
            dumped = yaml.safe_dump({name: value}, allow_unicode=True, width=90)
            yield "".join(f"{indent}{line}\n" for line in dumped.splitlines())
