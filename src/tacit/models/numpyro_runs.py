"""Runs of a NumPyro model on chosen rows, once its plates and latents are known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from tacit.models.base import PyTree, Row
from tacit.models.effects import Effect
from tacit.models.places import PlacedModel
from tacit.models.sites import Latent, Message, Run, Statement

Columns = Mapping[str, Any]


class PublicInputs(NamedTuple):
    """Public inputs of the compiled program: declared arrays, and the made-up row."""

    arrays: Mapping[str, Any]
    row: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class NumPyroRuns(PlacedModel):
    """A NumPyro function with the structure that was found in it.

    Attributes:
        function: The model function.
        settings: Declared constants of the function that are not arrays.
        person_column: The column that identifies the person of a row, if the function takes it.
        row_plates: Names of the plates over rows.
        person_plate: Name of the plate over people, if there is one.
        row_effects: Latents of single rows.
        person_effects: Latents of single people.
        nodes: The number of quadrature nodes per dimension, if it was given.
    """

    function: Callable[..., Any]
    settings: Mapping[str, Any]
    person_column: str | None
    row_plates: frozenset[str]
    person_plate: str | None
    row_effects: tuple[Effect, ...]
    person_effects: tuple[Effect, ...]
    nodes: int | None

    @cached_property
    def constants(self) -> PublicInputs:
        """Public inputs of the compiled program."""
        row = {name: self.made_up[name] for name in self.columns}
        return PublicInputs(dict(self.arrays), row)

    def public(self, constants: PyTree) -> PublicInputs:
        """The constants that were passed back, or the model's own."""
        return self.constants if constants is None else cast(PublicInputs, constants)

    @cached_property
    def lengths_of_one(self) -> dict[str, int]:
        """Lengths of the plates over rows and people in a run on a single row."""
        plates = self.row_plates | ({self.person_plate} if self.person_plate else set())
        return dict.fromkeys(plates, 1)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Latents of single rows and of single people."""
        return self.row_effects + self.person_effects

    def run(
        self,
        columns: Columns,
        constants: PyTree,
        latent: Latent,
        *,
        lengths: Mapping[str, int] | None = None,
        observe: Latent | None = None,
    ) -> dict[str, Statement]:
        """The model's sites on these columns, which have an axis for rows."""
        lengths = self.lengths_of_one if lengths is None else lengths
        given = {name: columns[name] for name in self.columns}
        if self.person_column is not None:
            given[self.person_column] = columns[self.person_column]
        run = Run(self.function, lengths, latent, observe)
        run(**self.settings, **self.public(constants).arrays, **given)
        return run.sites

    def single(self, row: Row) -> dict[str, Any]:
        """The columns of a table that has this row only."""
        columns = {name: jnp.asarray(row[name])[None] for name in self.columns}
        if self.person_column is not None:
            columns[self.person_column] = jnp.zeros(1, jnp.int32)  # the only person
        return columns

    def run_made_up(
        self, latent: Latent, constants: PyTree = None, observe: Latent | None = None
    ) -> dict[str, Statement]:
        """A run on the made-up row, with effects at their middle."""
        columns = self.single(self.public(constants).row)
        latent = self.with_effects(latent, split(self.effects, None))
        return self.run(columns, constants, latent, observe=observe)

    def parameters(self, vector: jax.Array, slopes: list[jax.Array] | None = None) -> Latent:
        """Values of the parameters at a vector; adds log-determinants to ``slopes``."""

        def latent(message: Message) -> jax.Array:
            value, slope = self.places[message["name"]].value(message["fn"], vector)
            if slopes is not None:
                slopes.append(slope)
            return value

        return latent

    def with_effects(self, parameters: Latent, points: Mapping[str, jax.Array]) -> Latent:
        """The given parameters, and effects at points [entries, axes] of their grid."""
        effects = {each.name: each for each in self.effects}

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            if name not in effects:
                return parameters(message)
            return effects[name].at(message["fn"], points[name])

        return latent

    def is_local(self, site: Statement) -> bool:
        """Whether a site belongs to single rows or people."""
        return any(name in self.lengths_of_one for name in site.plates)

    def row_terms(self, sites: Mapping[str, Statement]) -> jax.Array:
        """What each row adds: its observations, and the probabilities of its discrete effects."""
        discrete = {each.name for each in self.row_effects if each.values is not None}
        total: jax.Array = jnp.zeros(())
        for site in sites.values():
            if site.observed or site.name in discrete:
                for plate in self.row_plates & set(site.plates):
                    total = total + site.by_plate(plate)
        return total

    def filled(self, rows: Row, present: jax.Array, constants: PyTree) -> dict[str, jax.Array]:
        """Rows, with made-up values where no row is present, so that gradients are finite."""

        def filled(values: jax.Array, example: Any) -> jax.Array:
            mask = present.reshape(-1, *(1,) * (jnp.ndim(values) - 1))
            return jnp.where(mask, values, jnp.asarray(example, values.dtype))

        example = self.public(constants).row
        return {name: filled(rows[name], example[name]) for name in self.columns}


def split(effects: Sequence[Effect], point: jax.Array | None) -> dict[str, jax.Array]:
    """Each effect's part of a point, with an axis for the single row or person.

    None stands for zeros, the middle of every continuous effect.
    """
    total = sum(each.size for each in effects)
    whole = jnp.zeros(total) if point is None else point
    parts, start = {}, 0
    for each in effects:
        parts[each.name] = whole[None, start : start + each.size]
        start += each.size
    return parts


def named_keys(key: jax.Array, names: Sequence[str]) -> dict[str, jax.Array]:
    """A random key for each name."""
    keys = jax.random.split(key, len(names)) if len(names) > 1 else [key]
    return {name: keys[i] for i, name in enumerate(names)}
