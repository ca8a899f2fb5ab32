import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.models.jax_model import Interval, Model, Parameter, Positive, Real, Simplex

SUPPORTS = [(Real(), (2, 3)), (Positive(), (4,)), (Interval(-1, 3), (2,)), (Simplex(), (2, 4))]


@pytest.mark.parametrize(("support", "shape"), SUPPORTS, ids=lambda x: type(x).__name__)
def test_log_determinant_is_the_jacobian(support, shape):
    size = support.size(shape)
    flat = jnp.linspace(-1.5, 1.2, size)

    def free(flat):
        value = support.forward(flat, shape)[0]
        return value[..., :-1].ravel() if isinstance(support, Simplex) else value.ravel()

    exact = np.linalg.slogdet(jax.jacobian(free)(flat))[1]
    assert float(support.forward(flat, shape)[1]) == pytest.approx(exact, abs=1e-4)


def test_supports_hold():
    simplex = Simplex().forward(jnp.array([0.3, -2.0, 5.0]), (4,))[0]
    assert float(simplex.sum()) == pytest.approx(1, abs=1e-6)
    assert np.allclose(Simplex().forward(jnp.zeros(3), (4,))[0], 0.25)
    inside = Interval(2, 5).forward(jnp.array([-9.0, 0.0, 9.0]), (3,))[0]
    assert bool(((inside > 2) & (inside < 5)).all())
    with pytest.raises(InvalidArgument):
        Interval(1, 1)


def test_names_shapes_and_constants():
    model = Model(
        parameters={"a": Parameter((2,)), "s": Parameter(support=Positive())},
        log_prior=lambda p, c: -jnp.sum(p["a"] ** 2) - c["rate"] * p["s"],
        log_likelihood=lambda p, row, c: row["x"] * p["s"] * c["rate"],
        constants={"rate": jnp.array(2.0)},
    ).unit_model
    assert model.dimension == 3
    params = model.constrain(jnp.array([1.0, 2.0, 0.0]))
    assert params["a"].tolist() == [1.0, 2.0]
    assert params["s"].shape == ()
    assert float(params["s"]) == 1
    density = model.log_prior(jnp.array([1.0, 2.0, 0.5]), model.constants)
    assert float(density) == pytest.approx(-5 - 2 * np.exp(0.5) + 0.5, rel=1e-6)
    with pytest.raises(InvalidArgument, match="parameter"):
        _ = Model(parameters={}, log_prior=abs, log_likelihood=abs).unit_model
