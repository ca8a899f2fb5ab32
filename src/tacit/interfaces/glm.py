"""Models by formula, from a schema."""

from collections.abc import Mapping
from typing import Any

from tacit.data.cells import text_of
from tacit.data.columns import Binary, Category, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.expressions import Facts
from tacit.models.families import usual_family
from tacit.models.glm import GLM, built


def glm(
    formula: str,
    *,
    family: str | None = None,
    schema: Schema,
    link: str | None = None,
    priors: Mapping[str, Any] | None = None,
) -> GLM:
    """A generalised linear model by formula.

    The formula is read as R, formulae and Bambi read it, but everything that those learn from
    data comes from the schema: numbers are standardised by their bounds to [-1, 1], categories
    have the declared levels, splines have knots between the bounds. ``family`` is
    ``"bernoulli"``, ``"binomial"``, ``"gaussian"``, ``"poisson"``, ``"negativebinomial"``,
    ``"gamma"`` or ``"categorical"``; left out, the outcome's kind decides: Bernoulli for a yes or
    no, Gaussian for a number, Poisson for a count, categorical for a category, binomial for
    ``p(yes, of)``. ``priors`` replaces priors by the name of the parameter, each
    by a tuple such as ``("normal", 0, 1)`` or a NumPyro distribution.

    >>> import tacit
    >>> schema = tacit.Schema(
    ...     {
    ...         "age": tacit.Number(18, 98),
    ...         "ward": tacit.Category(["A", "B"], other="other"),
    ...         "readmitted": tacit.Binary(),
    ...     }
    ... )
    >>> print(tacit.glm("readmitted ~ age + ward", family="bernoulli", schema=schema))
    readmitted ~ age + ward
    Family bernoulli, link logit; outcome: readmitted is 1.
    <BLANKLINE>
    parameter  what it is                                                            prior
    Intercept  numbers at the middle of their bounds, categories at their reference  Normal(0, 2.5)
    age        per 40, half of 18 to 98                                              Normal(0, 2.5)
    ward       each level against A                                                  Normal(0, 2.5)
    """
    if not isinstance(schema, Schema):
        raise InvalidArgument("glm needs schema=, a tacit.Schema: the facts about the columns.")
    known = {name: _facts(kind) for name, kind in schema.items}
    return built(
        formula,
        family=family or usual_family(formula, known),
        link=link,
        priors=priors,
        known=known,
        person=schema.person,
        schema=schema,
    )


def _facts(kind: Kind) -> Facts:
    """What is public about a column, in the form that models take."""
    if isinstance(kind, Category):
        named = [*kind.levels, *([] if kind.other is None else [kind.other])]
        return Facts(kind.kind, levels=tuple(str(text_of(each)) for each in named))
    if isinstance(kind, Binary):
        both = ("0", "1") if kind.yes is None else (str(kind.no), str(kind.yes))
        return Facts(kind.kind, 0.0, 1.0, levels=both)
    facts = Facts(kind.kind, float(kind.low), float(kind.high), shape=kind.shape)
    if not isinstance(kind, Number):
        return facts
    return facts._replace(scale=kind.scale, standard=None if kind.scaled else kind.scale)
