"""Models by formula, from a schema."""

from collections.abc import Mapping
from typing import Any

from tacit.data.cells import text_of
from tacit.data.columns import Binary, Category, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.expressions import Facts
from tacit.models.glm import GLM, built
from tacit.models.outcomes import usual_family


def glm(
    formula: str,
    *,
    family: str | None = None,
    schema: Schema,
    link: str | None = None,
    priors: Mapping[str, Any] | None = None,
) -> GLM:
    """Builds a generalised linear model from a formula and a schema.

    Formulas follow R, formulae and Bambi, but everything that those learn from data comes from the
    schema. Numbers are standardised by their bounds to [-1, 1], categories have the declared
    levels, and spline knots lie between the bounds. See docs/formulas.md.

    Args:
        formula: The formula, such as ``"readmitted ~ age + C(ward)"``.
        family: ``"bernoulli"``, ``"binomial"``, ``"gaussian"``, ``"poisson"``,
            ``"negativebinomial"``, ``"zero_inflated_poisson"``,
            ``"zero_inflated_negativebinomial"``, ``"gamma"``, ``"beta"``, ``"weibull"``,
            ``"categorical"`` or ``"ordinal"``. By default chosen by the kind of the outcome:
            Bernoulli for `Binary`, Gaussian for `Number`, Poisson for `Count`, categorical for
            `Category`, binomial for ``p(successes, trials)`` and Weibull for
            ``censored(time, event)``.
        schema: The public facts about the columns.
        link: The link function; by default the first link of the family.
        priors: Priors to replace, by parameter name. Each is a tuple such as ``("normal", 0, 1)``
            or a NumPyro distribution.

    Returns:
        The model, to be passed to `tacit.plan` or `tacit.fit`. Print it to see its parameters and
        priors.

    Raises:
        InvalidArgument: If the formula, family, link or a prior is wrong, or a column is not in the
            schema.

    Examples:
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
        Reference: age 58, ward A.
        <BLANKLINE>
        parameter  what it is                prior
        Intercept  at the reference          Normal(0, 2.5)
        age        per 40, half of 18 to 98  Normal(0, 2.5)
        ward       against A                 Normal(0, 2.5)
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
        levels = tuple(str(text_of(each)) for each in named)
        return Facts(kind.kind, levels=levels, other=None if kind.other is None else levels[-1])
    if isinstance(kind, Binary):
        both = ("0", "1") if kind.yes is None else (str(kind.no), str(kind.yes))
        return Facts(kind.kind, 0.0, 1.0, levels=both)
    bounds = float(kind.low), float(kind.high)
    facts = Facts(kind.kind, *bounds, shape=kind.shape, measure=kind.measured_in)
    if not isinstance(kind, Number):
        return facts
    return facts._replace(scale=kind.scale, standard=None if kind.scaled else kind.scale)
