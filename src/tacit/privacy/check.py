"""The walk over a step's trace that proves rows leave through the release only.

Every value of the trace carries a label: the name of a part of the batch as it came (a column, units'
secret bits, the sampling mask, the noise, the clip, the grid), "rows" for anything computed from
those, or nothing. The rules:

- a release takes exactly the batch, every part by its name, arguments without a label, and the
  mechanism's lattice; there is exactly one, in the step itself and not inside a loop, a branch or another
  function of JAX, and it alone uses the noise;
- what the step returns has no label;
- every operation is on the lists of `admitted`: a function of its inputs, without effects,
  callbacks, references and rules of its own for batching; in the per-row function, one that acts
  on every unit by itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var

from tacit.errors import BoundaryError
from tacit.privacy.admitted import acts_on_each, is_plain

# Labels of what is computed from rows, and of the noise as it came.
_ROWS, _NOISE = "rows", ".noise"
# Calls whose inputs and outputs are those of their body.
_CALLS = {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2"}


def check_trace(
    traced: ClosedJaxpr, public: int, batch: Any, release: Primitive, lattice: object
) -> None:
    """Raises unless the trace, whose inputs are so many public ones and the batch, keeps the rules."""
    walk = _Walk(release, lattice, batch)
    out = walk.through(traced.jaxpr, [None] * public + walk.labels)
    if walk.releases != 1:
        raise BoundaryError(
            f"A step must make exactly one release, which is what is charged; this one makes "
            f"{walk.releases}."
        )
    if any(label is not None for label in out):
        raise BoundaryError(
            "The step returns something computed from rows other than by the release. Return "
            "only what follows from released values and public inputs."
        )


def check_plain(traced: ClosedJaxpr) -> None:
    """Raises unless every operation of a function of one unit, at any depth, is on the list."""
    _refuse_meeting(traced.jaxpr)


class _Walk:
    def __init__(self, release: Primitive, lattice: object, batch: Any) -> None:
        self.releases = 0
        self._release, self._lattice = release, lattice
        named, self._structure = jax.tree_util.tree_flatten_with_path(batch)
        # Every part of the batch by its own name, such as ".units.fields['x']" or ".noise".
        self.labels: list[str | None] = [jax.tree_util.keystr(path) for path, _ in named]

    def through(self, jaxpr: Jaxpr, labels: Sequence[str | None]) -> list[str | None]:
        """Labels of the outputs, given those of the inputs."""
        known: dict[Var, str | None] = dict(zip(jaxpr.invars, labels, strict=True))

        def label(atom: Any) -> str | None:
            return None if isinstance(atom, Literal) else known.get(atom)

        for equation in jaxpr.eqns:
            given = [label(atom) for atom in equation.invars]
            out: Sequence[str | None]
            if equation.primitive is self._release:
                self._check_release(equation, given)
                out = [None]
            elif (body := _called(equation)) is not None:
                self._refuse_release(
                    equation, body
                )  # whose trace would have the batch's width in it
                _refuse_unless_plain(equation)
                out = self.through(body, given)
            else:
                self._refuse_hidden(equation)
                if _NOISE in given:
                    raise BoundaryError("The noise of a release is used outside it.")
                touched = any(each is not None for each in given)
                out = [_ROWS if touched else None] * len(equation.outvars)
            known.update(zip(equation.outvars, out, strict=True))
        return [label(atom) for atom in jaxpr.outvars]

    def _check_release(self, equation: Any, given: Sequence[str | None]) -> None:
        public = equation.params["public"].num_leaves
        if any(each is not None for each in given[:public]):
            raise BoundaryError(
                "An argument of the release is computed from rows; pass released or public values."
            )
        same = equation.params["batch"] == self._structure
        if not same or list(given[public:]) != self.labels:  # all of it, each part in its place
            raise BoundaryError(
                "The release must get its batch and its noise as the gate drew them."
            )
        if equation.params["lattice"] != self._lattice:
            raise BoundaryError("The release must use the mechanism's lattice.")
        self.releases += 1
        unit = equation.params["unit"]
        if any(inner.primitive is self._release for inner in equations(unit)):
            raise BoundaryError("A release cannot be made inside another.")
        _refuse_meeting(unit)

    def _refuse_hidden(self, equation: Any) -> None:
        _refuse_unless_plain(equation)
        for body in _bodies(equation):
            self._refuse_release(equation, body)
            for inner in equations(body):
                _refuse_unless_plain(inner)

    def _refuse_release(self, equation: Any, body: Jaxpr) -> None:
        if any(inner.primitive is self._release for inner in equations(body)):
            raise BoundaryError(
                f"The step makes its release inside {equation.primitive.name}; call it once, in the step "
                "itself."
            )


def _refuse_unless_plain(equation: Any) -> None:
    if not is_plain(equation):
        raise BoundaryError(
            f"The operation {equation.primitive.name} is not one of the plain operations of JAX: "
            "rows could leave by it; leave out callbacks, printing, references and custom batching "
            "rules."
        )


def _refuse_meeting(unit: Jaxpr) -> None:
    """Raises if units could meet in what a function of one unit does."""
    for equation in equations(unit):
        if not acts_on_each(equation):
            raise BoundaryError(
                f"The operation {equation.primitive.name} is not known as one that acts on every "
                "unit by itself: rows could leave by it, or meet in it; leave out callbacks, "
                "printing, references, custom batching rules, incomplete beta functions, and "
                "random keys other than threefry's."
            )


def _called(equation: Any) -> Jaxpr | None:
    if equation.primitive.name not in _CALLS:
        return None
    for body in _bodies(equation):
        if len(body.invars) == len(equation.invars):
            return body
    return None


def _bodies(equation: Any) -> Iterator[Jaxpr]:
    """The jaxprs among an equation's parameters."""
    kinds = (ClosedJaxpr, Jaxpr)
    for value in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, kinds)
    ):
        if isinstance(value, kinds):
            yield value.jaxpr if isinstance(value, ClosedJaxpr) else value


def equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """All equations, at any depth."""
    for equation in jaxpr.eqns:
        yield equation
        for body in _bodies(equation):
            yield from equations(body)


def captured(first: ClosedJaxpr, second: ClosedJaxpr) -> bool:
    """Whether two traces of one function share constants: arrays it did not make itself."""
    known = {_identity(value) for value in constants(first)}
    return any(_identity(value) in known for value in constants(second))


def constants(traced: ClosedJaxpr) -> Iterator[Any]:
    """The arrays in a trace, at any depth."""
    yield from traced.consts
    for equation in equations(traced.jaxpr):
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts


def _identity(value: Any) -> int:
    if isinstance(value, jax.core.Tracer):
        raise BoundaryError(
            "The step uses a value that it kept from inside another function, where it may have been "
            "a row. Return it from there instead."
        )
    if isinstance(value, jax.Array):
        return id(value)
    return int(np.asarray(value).__array_interface__["data"][0])
