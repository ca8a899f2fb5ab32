"""What a model by formula was made from, as plain data, so that it can be made again."""

import json
from dataclasses import dataclass
from typing import Any

from tacit.models.expressions import Facts, KnownColumns


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A formula and what it was read with. All of it is public.

    Priors are not part of it: predictions do not depend on them once there are draws.

    Attributes:
        formula: The formula.
        family: Name of the family.
        link: Name of the link.
        person: The column that identifies the person of a row, if any.
        known: What is public about the columns.
        predictors: The columns that a prediction needs, once the model has been tried out.
    """

    formula: str
    family: str
    link: str
    person: str | None
    known: KnownColumns
    predictors: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The recipe as JSON."""
        known = {name: facts._asdict() for name, facts in self.known.items()}
        return json.dumps({**vars(self), "known": known})

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """The recipe that `to_json` wrote."""
        found = json.loads(text)
        known = {name: _facts(each) for name, each in found["known"].items()}
        return cls(**found | {"known": known, "predictors": tuple(found["predictors"])})


def _facts(found: dict[str, Any]) -> Facts:
    """JSON has lists in the place of tuples."""
    values: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items()}
    return Facts(**values)
