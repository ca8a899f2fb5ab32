"""The NumPyro function of a generalised linear model."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

from tacit.models.design import Group, Term
from tacit.models.expressions import Columns, Expression
from tacit.models.families import Family, Outcome, PredictorScales
from tacit.models.recipe import Recipe
from tacit.models.rescaled import Rescaled

INTERCEPT = "Intercept"
_ROWS = "rows of the table"
# Unit of the logarithm of a spread, whose gradient is longer than that of a coefficient.
_PACE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """The NumPyro function of a generalised linear model."""

    family: Family
    link: str
    outcome: Outcome
    intercept: bool
    terms: tuple[Term, ...]
    groups: tuple[Group, ...]
    offsets: tuple[Expression, ...]
    priors: Mapping[str, Any]
    recipe: Recipe | None = None

    # All of these follow from the formula and the schema.
    declared_public: ClassVar[tuple[str, ...]] = (
        "family", "outcome", "terms", "groups", "offsets", "priors", "scales", "labels", "takes", "recipe",
    )  # fmt: skip

    @cached_property
    def scales(self) -> PredictorScales:
        """Public scales of the linear predictor."""
        return self.family.scales(self.outcome)

    @property
    def extra(self) -> str | None:
        """The name of the family's further parameter, which differs from those of all terms."""
        taken = {self.outcome.name, *(term.name for term in self.terms)}
        name = self.family.extra
        return f"{self.outcome.name}_{name}" if name in taken else name

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """Names of the columns, including the person column if there are effects of people."""
        parts: tuple[Term | Group | Expression, ...]
        parts = (*self.terms, *self.groups, *self.offsets)
        of = [self.outcome.columns, *(each.columns for each in parts)]
        people = [each.person for each in self.groups if each.person is not None]
        return tuple(sorted(frozenset[str]().union(*of, people)))

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the parameters, in the order in which they are reported."""
        effects = {f"{each.name}_sd": each.name for each in self.groups}
        pairs = ((name, effects[name]) if name in effects else (name,) for name in self.priors)
        return tuple(name for pair in pairs for name in pair)

    @cached_property
    def labels(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Labels of the entries of array parameters, axis by axis."""
        levels = (self.outcome.levels,) if self.outcome.levels else ()
        found: dict[str, tuple[tuple[str, ...], ...]] = {INTERCEPT: levels}
        for term in self.terms:
            found[term.name] = (*((term.block.labels,) if term.shape else ()), *levels)
        for group in self.groups:
            within = (group.varying.labels,) if group.varying.labels else ()
            if group.person is None:  # effects of people are not reported
                found[group.name] = (group.levels, *within, *levels)
            found[f"{group.name}_sd"] = (*within, *levels)
        return {name: axes for name, axes in found.items() if axes}

    def meaning(self, name: str) -> str:
        """What a parameter means, in a few words."""
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
        """Runs the model's NumPyro statements."""
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
            # The fit is in terms of the intercept at the middle of all columns, where it hardly
            # depends on the coefficients. It is reported at the reference.
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
        """A shape of coefficients, with an axis for the levels of the outcome."""
        levels = self.outcome.levels
        return (*shape, len(levels)) if levels else shape

    def _sample(self, name: str, shape: tuple[int, ...], middle: Any) -> Any:
        """Coefficients of a shape, fitted from a middle."""
        prior = self.priors[name].expand(self._shape(shape))
        return numpyro.sample(name, Rescaled(prior, middle, self.scales.unit))

    def _grouped(self, group: Group, columns: Columns, count: int) -> jax.Array:
        """What the effects of a group add to the linear predictor."""
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
