"""Generalised linear models by formula: a NumPyro model built from public facts alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpy.typing import ArrayLike, NDArray
from numpyro import distributions as dist

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.design import Group, Term, group_of, terms_of
from tacit.models.expressions import Columns, Expression, KnownColumns, expression
from tacit.models.families import FAMILIES, Family, Outcome, Scales, outcome_of
from tacit.models.formula import callee_of, parts_of, text_of
from tacit.models.numpyro import NumPyro
from tacit.models.priors import completed, described
from tacit.models.rescaled import Rescaled

INTERCEPT = "Intercept"
_ROWS = "rows of the table"
# Of the logarithm of a spread, whose gradient is longer than that of a coefficient.
_PACE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class GLM:
    """A generalised linear model, as `tacit.glm` makes it. Print it to see what it means.

    Hand it to `tacit.plan` or `tacit.fit` like any other model; it has its schema with it.
    """

    formula: str
    family: str
    link: str
    schema: Any
    priors: Mapping[str, Any]
    program: "Program"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, and no others."""
        return self.program.takes

    @property
    def described(self) -> NumPyro:
        """The model as NumPyro has it."""
        person = next((each.person for each in self.program.groups if each.person), None)
        return NumPyro(self.program, person_plate=person, labels=self.program.labels)

    def per_unit(self, values: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.floating]]:
        """Coefficients, or draws of them, per one unit of their column.

        ``values`` is what `Posterior.mean`, ``sd`` or ``draws`` has. The intercept stays where it
        is: at the middle of all bounds, or at the declared centres.
        """
        units = {term.name: term.block.unit for term in self.program.terms}
        units |= {each.name: each.varying.unit for each in self.program.groups}
        units |= {f"{each.name}_sd": each.varying.unit for each in self.program.groups}
        return {name: np.asarray(value) / units.get(name, 1.0) for name, value in values.items()}

    def __repr__(self) -> str:
        return f"GLM({self.formula!r}, family={self.family!r}, link={self.link!r})"

    def __str__(self) -> str:
        program = self.program
        lines = [
            f"{self.formula}",
            f"Family {self.family}, link {self.link}; outcome: {program.outcome.described}.",
            "",
        ]
        rows = [("parameter", "what it is", "prior")]
        rows += [(n, program.meaning(n), described(p)) for n, p in self.priors.items()]
        rows += [
            (each.name, "an effect of each", f"Normal(0, {each.name}_sd)")
            for each in program.groups
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        table = [f"{n.ljust(widths[0])}  {m.ljust(widths[1])}  {p}" for n, m, p in rows]
        return "\n".join([*lines, *table])


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """The NumPyro function of a generalised linear model: columns in, sites out."""

    family: Family
    link: str
    outcome: Outcome
    intercept: bool
    terms: tuple[Term, ...]
    groups: tuple[Group, ...]
    offsets: tuple[Expression, ...]
    priors: Mapping[str, Any]

    # All of it follows from the formula and the schema.
    declared_public: ClassVar[tuple[str, ...]] = (
        "family", "outcome", "terms", "groups", "offsets", "priors", "scales", "labels", "takes",
    )  # fmt: skip

    @cached_property
    def scales(self) -> Scales:
        """Of the linear predictor."""
        return self.family.scales(self.outcome)

    @property
    def extra(self) -> str | None:
        """The name of the family's further parameter."""
        return extra_name(self.family, self.outcome, self.terms)

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """Names of the columns, the person's too if there are effects of people."""
        parts: tuple[Any, ...] = (*self.terms, *self.groups, *self.offsets, self.outcome)
        of = [each.columns for each in parts]
        people = [each.person for each in self.groups if each.person is not None]
        return tuple(sorted(frozenset[str]().union(*of, people)))

    @property
    def order(self) -> tuple[str, ...]:
        """Of the parameters, as they are reported."""
        effects = {f"{each.name}_sd": each.name for each in self.groups}
        pairs = ((name, effects[name]) if name in effects else (name,) for name in self.priors)
        return tuple(name for pair in pairs for name in pair)

    @cached_property
    def labels(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Of the entries of each parameter that is an array, axis by axis."""
        levels = (self.outcome.levels,) if self.outcome.levels else ()
        found: dict[str, tuple[tuple[str, ...], ...]] = {INTERCEPT: levels}
        for term in self.terms:
            found[term.name] = (*((term.block.labels,) if term.shape else ()), *levels)
        for group in self.groups:
            within = (group.varying.labels,) if group.varying.labels else ()
            if group.person is None:  # nobody's own effect is reported
                found[group.name] = (group.levels, *within, *levels)
            found[f"{group.name}_sd"] = (*within, *levels)
        return {name: axes for name, axes in found.items() if axes}

    def meaning(self, name: str) -> str:
        """What a parameter says, in a few words."""
        if name == INTERCEPT:
            by_centre = any(term.block.standard for term in self.terms)
            centre = "their centre, or " if by_centre else ""
            return f"numbers at {centre}the middle of their bounds, categories at their reference"
        if name.endswith("_sd") and name.removesuffix("_sd") in {g.name for g in self.groups}:
            group = next(g for g in self.groups if f"{g.name}_sd" == name)
            return f"standard deviation between groups; {group.varying.meaning}"
        if name == self.extra:
            return {"sigma": "standard deviation of the outcome given its mean"}.get(
                str(self.family.extra), "shape: the larger, the less spread out"
            )
        return next(term.block.meaning for term in self.terms if term.name == name)

    def __call__(self, **columns: Any) -> None:
        """The model's statements."""
        extra = None
        if self.extra is not None:
            start = self.family.extra_start(self.scales)
            extra = numpyro.sample(self.extra, Rescaled(self.priors[self.extra], 0.0, start, _PACE))
        count = len(next(iter(columns.values())))
        several = bool(self.outcome.levels)
        eta: Any = jnp.zeros((count, len(self.outcome.levels)) if several else count)
        centre: Any = self.scales.middle
        for term in self.terms:
            middle = self.scales.middle if term.is_level else 0.0
            found = self._sample(term.name, term.shape, middle)
            x = term.read(columns)
            eta = eta + (x @ found if term.shape else (x if several else x[:, 0]) * found)
            centre = centre - term.block.centre * (found.sum(axis=0) if term.shape else found)
        if self.intercept:
            # Fitted at the middle of everything, where it is independent of the coefficients,
            # and reported at the reference.
            eta = eta + self._sample(INTERCEPT, (), centre)
        for group in self.groups:
            eta = eta + self._grouped(group, columns, count)
        for offset in self.offsets:
            value = offset.read(columns)
            eta = eta + (value[:, None] if several else value)
        fn = self.family.distribution(self.outcome, self.link, eta, extra, columns)
        with numpyro.plate(_ROWS, count):
            numpyro.sample(self.outcome.name, fn, obs=self.outcome.read(columns))

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        levels = self.outcome.levels
        return (*shape, len(levels)) if levels else shape

    def _sample(self, name: str, shape: tuple[int, ...], middle: Any) -> Any:
        prior = self.priors[name].expand(self._shape(shape))
        return numpyro.sample(name, Rescaled(prior, middle, self.scales.unit))

    def _grouped(self, group: Group, columns: Columns, count: int) -> jax.Array:
        within = (len(group.varying.labels),) if group.varying.labels else ()
        sd = self._sample(f"{group.name}_sd", within, 0.0)
        if group.person is not None:
            with numpyro.plate(group.person, count):
                fn = dist.Normal(0.0, sd)
                effects = numpyro.sample(group.name, fn.to_event(1) if jnp.ndim(sd) else fn)
        else:
            shape = self._shape((len(group.levels), *within))
            fn = dist.Normal(jnp.zeros(shape), sd)
            effects = numpyro.sample(group.name, Rescaled(fn, 0.0, sd))
        of_row = effects[group.code(columns)]
        x = group.varying.read(columns)
        if not within:
            return jnp.asarray(of_row * (x if self.outcome.levels else x[:, 0]))
        if self.outcome.levels:
            x = x[:, :, None]
        return jnp.asarray((x * of_row).sum(axis=1))


def extra_name(family: Family, outcome: Outcome, terms: tuple[Term, ...]) -> str | None:
    """The family's further parameter, by a name that no term has."""
    taken = {outcome.name, *(term.name for term in terms)}
    return f"{outcome.name}_{family.extra}" if family.extra in taken else family.extra


def built(
    formula: str,
    *,
    family: str,
    link: str | None,
    priors: Mapping[str, Any] | None,
    known: KnownColumns,
    person: str | None,
    schema: Any,
) -> GLM:
    """The model that a formula describes, given what is public of the columns."""
    chosen = FAMILIES[_validate.choice("family", family, FAMILIES)]
    link = _validate.choice(f"link of the {family} family", link or chosen.link, chosen.links)
    parts = parts_of(formula)
    outcome = outcome_of(parts, chosen, known)
    common = [nodes for nodes in parts.terms if not _is_offset(nodes)]
    terms = terms_of(common, parts.intercept, known)
    offsets = tuple(_offset(nodes, known) for nodes in parts.terms if _is_offset(nodes))
    with_intercept = [text_of_all(each.groups) for each in parts.grouped if not each.varying]
    groups = tuple(
        group_of(each, known, person, text_of_all(each.groups) in with_intercept)
        for each in parts.grouped
    )
    _refuse(formula, outcome, parts.intercept, terms, groups, offsets)
    scales = chosen.scales(outcome)
    defaults = _defaults(chosen, link, scales, parts.intercept, terms, groups, outcome)
    complete = completed(defaults, priors)
    program = Program(
        family=chosen,
        link=link,
        outcome=outcome,
        intercept=parts.intercept,
        terms=terms,
        groups=groups,
        offsets=offsets,
        priors=complete,
    )
    return GLM(
        formula=formula, family=family, link=link, schema=schema, priors=complete, program=program
    )


def text_of_all(nodes: Any) -> str:
    """Nodes of an interaction, as written."""
    return ":".join(text_of(node) for node in nodes)


def _is_offset(nodes: Any) -> bool:
    return any(callee_of(node) == "offset" for node in nodes)


def _offset(nodes: Any, known: KnownColumns) -> Expression:
    if len(nodes) != 1 or len(nodes[0].args) != 1 or nodes[0].kwargs:
        raise InvalidArgument(
            f"{text_of_all(nodes)!r} must be offset(...) of one column by itself."
        )
    return expression(nodes[0].args[0], known)


def _refuse(
    formula: str, outcome: Outcome, intercept: bool, terms: Any, groups: Any, offsets: Any
) -> None:
    if intercept and INTERCEPT in {outcome.name, *(term.name for term in terms)}:
        raise InvalidArgument(
            f"The formula {formula!r} has a column called {INTERCEPT!r}, as its own intercept is; "
            "rename the column."
        )
    for each in (*terms, *groups, *offsets):
        if used := each.columns & outcome.columns:
            raise InvalidArgument(
                f"The formula {formula!r} has {min(used)!r} on both sides of ~; an outcome "
                "cannot explain itself."
            )
    if not (intercept or terms or groups):
        raise InvalidArgument(f"The formula {formula!r} has nothing to estimate.")


def _defaults(
    family: Family,
    link: str,
    scales: Scales,
    intercept: bool,
    terms: tuple[Term, ...],
    groups: tuple[Group, ...],
    outcome: Outcome,
) -> dict[str, Any]:
    width = family.links[link] * scales.spread
    apart = scales.spread / 2 if family.extra == "sigma" else 1.0
    found: dict[str, Any] = {}
    if intercept:
        found[INTERCEPT] = dist.Normal(scales.middle, width)
    for term in terms:
        found[term.name] = dist.Normal(scales.middle if term.is_level else 0.0, width)
    for group in groups:
        found[f"{group.name}_sd"] = dist.HalfNormal(apart)
    extra = extra_name(family, outcome, terms)
    if extra is not None:
        found[extra] = family.extra_prior(scales)
    return found
