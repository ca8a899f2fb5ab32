"""Generalised linear models by formula: NumPyro models made from public facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpyro import distributions as dist

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.design import Group, Term, group_of, terms_of
from tacit.models.expressions import Expression, KnownColumns, expression
from tacit.models.families.base import Family
from tacit.models.families.registry import FAMILIES
from tacit.models.formula import FormulaParts, Node, callee_of, parts_of, text_of
from tacit.models.glm_reading import meaning_of, reading_of_glm
from tacit.models.numpyro import NumPyro
from tacit.models.outcomes import outcome_of
from tacit.models.priors import completed, described
from tacit.models.program import INTERCEPT, Program
from tacit.models.reading import Reading
from tacit.models.recipe import Recipe


@dataclass(frozen=True, kw_only=True, eq=False)
class GLM:
    """A generalised linear model made by `tacit.glm`. Print it to see its parameters and priors.

    Pass it to `tacit.plan` or `tacit.fit` like any other model. It contains its schema.
    """

    formula: str
    family: str
    link: str
    schema: Any
    priors: Mapping[str, Any]
    program: Program

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the formula; no others are read."""
        return self.program.takes

    @property
    def described(self) -> NumPyro:
        """The NumPyro model."""
        person = next((each.person for each in self.program.groups if each.person), None)
        program = self.program
        return NumPyro(program, person_plate=person, labels=program.labels, reading=self.reading)

    @property
    def reading(self) -> Reading:
        """How to read the parameters: their units, reference levels and priors."""
        return reading_of_glm(self.formula, self.program, self.priors)

    def __repr__(self) -> str:
        return f"GLM({self.formula!r}, family={self.family!r}, link={self.link!r})"

    def __str__(self) -> str:
        program, reference = self.program, self.reading.reference
        at = ", ".join(f"{each.column} {each.value}" for each in reference)
        lines = [
            f"{self.formula}",
            f"Family {self.family}, link {self.link}; outcome: {program.outcome.described}.",
            *([f"Reference: {at}."] if at else []),
            "",
        ]
        rows = [("parameter", "what it is", "prior")]
        rows += [(n, meaning_of(program, n), described(p)) for n, p in self.priors.items()]
        rows += [
            (each.name, "effect of each group", f"Normal(0, {each.name}_sd)")
            for each in program.groups
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        table = [f"{n.ljust(widths[0])}  {m.ljust(widths[1])}  {p}" for n, m, p in rows]
        return "\n".join([*lines, *table])


def built(
    formula: str,
    *,
    family: str,
    link: str | None,
    priors: Mapping[str, Any] | None,
    known: KnownColumns,
    person: str | None,
    schema: object,
) -> GLM:
    """The model that a formula describes.

    Args:
        formula: The formula.
        family: Name of the family.
        link: Name of the link; None for the family's default.
        priors: Priors that replace defaults, by name of the parameter.
        known: What is public about the columns.
        person: The column that identifies the person of a row.
        schema: The schema that the columns come from, which the model keeps.

    Raises:
        InvalidArgument: The formula, family, link or a prior is not valid.
    """
    chosen = FAMILIES[_validate.choice("family", family, FAMILIES)]
    link = _validate.choice(f"link of the {family} family", link or chosen.link, chosen.links)
    parts = parts_of(formula)
    if chosen.cut and not parts.intercept:
        raise InvalidArgument(
            f"The {family} family has cutpoints in the place of an intercept; leave out 0 + or - 1 "
            f"in {formula!r}."
        )
    draft = _program(parts, chosen, link, known, person)
    _refuse(formula, draft)
    complete = completed(_default_priors(draft), priors)
    recipe = Recipe(formula=formula, family=family, link=link, person=person, known=dict(known))
    program = replace(draft, priors=complete, recipe=recipe)
    return GLM(
        formula=formula, family=family, link=link, schema=schema, priors=complete, program=program
    )


def from_recipe(recipe: Recipe, schema: object) -> GLM:
    """The model that was made from a recipe, with the default priors."""
    return built(
        recipe.formula,
        family=recipe.family,
        link=recipe.link,
        priors=None,
        known=recipe.known,
        person=recipe.person,
        schema=schema,
    )


def _program(
    parts: FormulaParts, family: Family, link: str, known: KnownColumns, person: str | None
) -> Program:
    """The function of a formula, still without priors."""
    outcome = outcome_of(parts, family, known)
    common = [nodes for nodes in parts.terms if not _is_offset(nodes)]
    with_intercept = [_text_of_all(each.groups) for each in parts.grouped if not each.varying]
    return Program(
        family=family,
        link=link,
        outcome=outcome,
        intercept=parts.intercept and not family.cut,
        terms=terms_of(common, parts.intercept, known),
        groups=tuple(
            group_of(each, known, person, _text_of_all(each.groups) in with_intercept)
            for each in parts.grouped
        ),
        offsets=tuple(_offset(nodes, known) for nodes in parts.terms if _is_offset(nodes)),
        priors={},
    )


def _text_of_all(nodes: Sequence[Node]) -> str:
    """The nodes of an interaction as text."""
    return ":".join(text_of(node) for node in nodes)


def _is_offset(nodes: Sequence[Node]) -> bool:
    return any(callee_of(node) == "offset" for node in nodes)


def _offset(nodes: Sequence[Node], known: KnownColumns) -> Expression:
    """The calculation in offset(...)."""
    if len(nodes) != 1 or len(nodes[0].args) != 1 or nodes[0].kwargs:
        raise InvalidArgument(f"{_text_of_all(nodes)!r} must be offset(...) of one column.")
    return expression(nodes[0].args[0], known)


def _refuse(formula: str, program: Program) -> None:
    """Raises if the parts of a formula do not fit together."""
    outcome, terms = program.outcome, program.terms
    if program.intercept and INTERCEPT in {outcome.name, *(term.name for term in terms)}:
        raise InvalidArgument(
            f"The formula {formula!r} has a column called {INTERCEPT!r}, which is the name of the "
            "intercept; rename the column."
        )
    parts: tuple[Term | Group | Expression, ...] = (*terms, *program.groups, *program.offsets)
    for each in parts:
        if used := each.columns & outcome.columns:
            raise InvalidArgument(
                f"The formula {formula!r} has {min(used)!r} on both sides of ~; an outcome "
                "cannot explain itself."
            )
    if not (program.intercept or program.cutpoint or terms or program.groups):
        raise InvalidArgument(f"The formula {formula!r} has nothing to estimate.")


def _default_priors(program: Program) -> dict[str, Any]:
    """Priors of all parameters, on the public scale of the outcome."""
    family, scales = program.family, program.scales
    width = family.links[program.link] * scales.spread
    found: dict[str, Any] = {}
    if program.intercept:
        found[INTERCEPT] = dist.Normal(scales.middle, width)
    if program.cutpoint is not None:
        found[program.cutpoint] = dist.Normal(scales.middle, width)
    for term in program.terms:
        found[term.name] = dist.Normal(scales.middle if term.is_level else 0.0, width)
    for group in program.groups:
        found[f"{group.name}_sd"] = dist.HalfNormal(scales.between)
    found |= {name: each.prior(scales) for name, each in program.further.items()}
    return found
