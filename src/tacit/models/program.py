"""The NumPyro function of a generalised linear model."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints

from tacit.models.design import Group, Term
from tacit.models.distributions import Ordered
from tacit.models.expressions import Columns, Expression
from tacit.models.families.base import Family, Further, Outcome, PredictorScales
from tacit.models.families.levels import CUTPOINT
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
        "family", "outcome", "terms", "groups", "offsets", "priors", "scales", "further", "labels", "takes", "recipe",
    )  # fmt: skip

    @cached_property
    def scales(self) -> PredictorScales:
        """Public scales of the linear predictor."""
        return self.family.scales(self.outcome)

    @cached_property
    def further(self) -> dict[str, Further]:
        """The family's further parameters, by names that differ from those of all terms."""
        return {
            self._free(each.name): each for each in self.family.further if each.needed(self.outcome)
        }

    @property
    def cutpoint(self) -> str | None:
        """The name of the cutpoints, if the family has them."""
        return self._free(CUTPOINT) if self.family.cut else None

    def _free(self, name: str) -> str:
        """A name that is not that of a term or of the outcome."""
        taken = {self.outcome.name, *(term.name for term in self.terms)}
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
        if self.cutpoint is not None:
            found[self.cutpoint] = (self.outcome.cutpoints,)
        for term in self.terms:
            found[term.name] = (*((term.block.labels,) if term.shape else ()), *levels)
        for group in self.groups:
            within = (group.varying.labels,) if group.varying.labels else ()
            if group.person is None:  # effects of people are not reported
                found[group.name] = (group.levels, *within, *levels)
            found[f"{group.name}_sd"] = (*within, *levels)
        return {name: axes for name, axes in found.items() if axes}

    def __call__(self, **columns: Any) -> None:
        """Runs the model's NumPyro statements."""
        further = {each.name: self._further(name) for name, each in self.further.items()}
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
        if self.cutpoint is not None:
            cuts = Ordered(self.priors[self.cutpoint], len(self.outcome.cutpoints))
            further[CUTPOINT] = numpyro.sample(
                self.cutpoint, Rescaled(cuts, -centre, self.scales.unit)
            )
        for group in self.groups:
            eta = eta + self._grouped(group, columns, count)
        for offset in self.offsets:
            value = offset.read(columns)
            eta = eta + (value[:, None] if several else value)
        fn = self.family.distribution(self.outcome, self.link, eta, further, columns)
        with numpyro.plate(_ROWS, count):
            numpyro.sample(self.outcome.name, fn, obs=self.outcome.read(columns))

    def _further(self, name: str) -> Any:
        """A parameter beside the coefficients."""
        start = self.further[name].start(self.scales)
        prior = self.priors[name]
        pace = 1.0 if prior.support is constraints.unit_interval else _PACE
        return numpyro.sample(name, Rescaled(prior, 0.0, start, pace))

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
