"""Rows stay in the boundary: no code outside it reads them, and no public name gives them away."""

import ast
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import tacit
from tacit.errors import BoundaryError
from tacit.inference.method import Method
from tacit.inference.result import MethodResult
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.gate import Gate, open_gate, run
from tacit.privacy.mechanisms import NoisySums, SampledBarkerTests, Stages
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.claims import BoundedLikelihood
from tacit.privacy.one_draw.exact import GridDraws, StatisticDraws
from tacit.privacy.one_draw.gate import DrawGate, as_draw_gate
from tacit.privacy.rows import Rows

SOURCE = Path(tacit.__file__).parent
# What holds rows, tells how many there are, or protects them.
FORBIDDEN = {
    "_batch", "_chunks", "_count", "_device", "_device_fields", "_each_column", "_fetch", "_fields", "_hold",
    "_host_fields", "_session", "_keyed_digest", "_population", "_bits", "_charged", "_present", "_private", "_silent", "_stopped",
    "_taken", "_units", "_use", "_use_up",
}  # fmt: skip
SECRET = 7.25


def reads(tree):
    """Names by which a module reads attributes, also by way of a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def test_no_code_outside_the_boundary_reads_rows():
    found = [
        f"{file.relative_to(SOURCE)}:{line} {name}"
        for file in sorted(SOURCE.rglob("*.py"))
        if file.relative_to(SOURCE).parts[0] != "privacy"
        for name, line in reads(ast.parse(file.read_text()))
        if name in FORBIDDEN
    ]
    assert found == []


def test_the_list_has_all_that_rows_and_gates_hold():
    """A new attribute is forbidden, or is public and named here."""
    rows = Rows.by_person({"x": np.zeros(3)}, [1, 1, 2], most_rows=2)
    gate = open_gate(rows, grid(), Randomness(0))
    for holder in (rows, gate):
        names = {*vars(holder), *(name for name in dir(type(holder)) if not name.startswith("__"))}
        private = {name for name in names if name.startswith("_")}
        made = {
            "_agreed",
            "_shared",
            "_of",
            "_randomness",
            "_of_fixed_size",
            "_is_fixed",
            "_mechanisms",
            "_parts",
            "_use_up",
        }  # give nothing of rows
        assert private - made <= FORBIDDEN


def grid(**changes):
    settings = {
        "claim": BoundedLikelihood(bound=1.0),
        "low": (0.0,),
        "high": (1.0,),
        "points": (5,),
        "power": 0.5,
    }
    return GridDraws(**(settings | changes))


def model():
    return Model(
        parameters={"m": Parameter(())},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["m"]) ** 2,
    ).unit_model


class Thief(Method):
    """A method that tries to give the rows for draws of the posterior."""

    def calibrate(self, model, budget):
        return grid(power=budget.epsilon / 100)

    def without_noise(self, model):
        return grid()

    def check(self, model, gate):
        pass

    def describe(self, model):
        return "A method."

    def run(self, model, gate, key, progress=None):
        rows = gate.spend()[0]
        taken = next(iter(rows._host_fields().fields.values()))
        return MethodResult(draws={"m": taken}, trace={})


def test_a_method_cannot_return_rows_as_draws():
    with pytest.raises(AttributeError):
        tacit.fit(
            model(), Rows({"x": np.full(50, SECRET)}), budget=tacit.Budget(1, 1e-6), method=Thief()
        )


def holds(value, seen):
    """Whether the secret is anywhere in what a public name gives."""
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, np.ndarray | jnp.ndarray):
        return bool(np.any(np.asarray(value) == SECRET))
    if isinstance(value, list | tuple | set | frozenset):
        return any(holds(each, seen) for each in value)
    if isinstance(value, dict):
        return any(holds(each, seen) for each in value.values())
    public = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_")}
    return value == SECRET or holds(public, seen)


def test_no_public_name_of_a_gate_gives_rows():
    """Each is called as it may be; what comes back holds neither rows nor how many there are."""
    rows = Rows({"x": np.full(977, SECRET)})

    def density(vector, rows, present, constants):
        return -jnp.sum(jnp.where(present, (rows["x"] - vector[0]) ** 2, 0.0))

    given = np.zeros(5), density, None
    arguments = {"draw": given, "check_draw": given, "agree": (3,)}
    for name in (name for name in dir(DrawGate) if not name.startswith("_")):
        gate = open_gate(rows, grid(), Randomness(0))
        try:
            value = getattr(gate, name)
            value = value(*arguments.get(name, ())) if callable(value) else value
        except BoundaryError:
            continue
        assert not holds(value, set())
        assert "977" not in repr(value)
    gate = open_gate(rows, grid(), Randomness(0))
    assert set(gate.draw(*given).ravel()) <= set(grid().places.ravel())


def test_a_gate_takes_no_plan_of_anybody_elses_making():
    """One that hands over rows, or adds no noise, and says that it is private."""

    class Free(NoisySums):
        def noise(self, bits, start, steps):
            return np.zeros((steps, self.dimension), np.int32)

    class Greedy(GridDraws):
        def check_size(self, units):
            raise ValueError(units)

    settings = {"sampling_rate": 1.0, "num_steps": 1, "clip": 1.0, "noise_multiplier": 1.0}
    free = Free(**settings, dimension=1)
    greedy = Greedy(**{k: getattr(grid(), k) for k in ("claim", "low", "high", "points", "power")})
    for mechanism in (free, greedy, object()):
        for opened in (open_gate, Gate, DrawGate):
            with pytest.raises(BoundaryError, match="and no others"):
                opened(Rows({"x": np.zeros(3)}), mechanism)


def test_a_gate_keeps_the_plan_that_was_charged():
    gate = open_gate(Rows({"x": np.zeros(3)}), grid())
    with pytest.raises(AttributeError):
        gate.mechanism = grid(power=1.0)


def test_steps_are_not_drawn_and_draws_have_no_steps():
    sums = NoisySums(sampling_rate=1.0, num_steps=1, clip=1.0, noise_multiplier=1.0, dimension=1)
    with pytest.raises(BoundaryError, match="run them"):
        as_draw_gate(open_gate(Rows({"x": np.zeros(3)}), sums))
    with pytest.raises(BoundaryError, match="not one sequence of steps"):
        run(open_gate(Rows({"x": np.zeros(3)}), grid()), lambda *_: None, (), lambda *_: ())


def test_a_plan_does_not_change_once_it_is_charged():
    """Neither by what it is made of, nor by a claim that says one thing and does another."""

    class Modest(BoundedLikelihood):
        def event(self, power):
            return super().event(power / 1000)

    settings = {"sampling_rate": 1.0, "num_steps": 5, "clip": 1.0, "dimension": 1}
    plain = NoisySums(**settings, noise_multiplier=1.0)
    for mechanism in (
        NoisySums(**settings, noise_multiplier=([1.0, 5],)),
        NoisySums(**settings, noise_multiplier=np.array(1.0)),
        Stages([plain]),
        Stages((plain, object())),
        grid(claim=Modest(bound=1.0)),
    ):
        with pytest.raises(BoundaryError, match="plain numbers"):
            open_gate(Rows({"x": np.zeros(3)}), mechanism)


def test_tables_of_a_plan_cannot_be_written_to():
    """Or a unit would count for more than it was charged for."""
    table = np.log(np.linspace(0.1, 1.0, 9))
    tables = dict.fromkeys(("places", "prior", "at_low", "at_high"), table)
    mechanism = StatisticDraws(column="x", low=0.0, high=1.0, steps=4, power=0.5, **tables)
    bound = mechanism.bound
    table *= 1000
    with pytest.raises(ValueError, match="read-only"):
        mechanism.at_high[:] = 1000
    with pytest.raises(ValueError, match="WRITEABLE"):
        mechanism.at_high.setflags(write=True)
    assert open_gate(Rows({"x": np.zeros(3)}), mechanism).mechanism.bound == bound


def test_nothing_may_stand_before_what_the_class_of_a_mechanism_says():
    mechanism = SampledBarkerTests(num_steps=2, batch_size=10, dataset_size=100, tempered_size=50.0)
    object.__setattr__(mechanism, "everyone", True)
    with pytest.raises(BoundaryError):
        Gate(Rows({"x": np.zeros(100)}), mechanism)
