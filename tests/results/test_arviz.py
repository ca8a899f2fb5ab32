"""What ArviZ does with a posterior as it is: before version 1 and after."""

import warnings

import numpy as np
import pytest
import xarray as xr

import tacit
from tacit.errors import InvalidArgument
from tacit.models.numpyro import NumPyro

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")
with warnings.catch_warnings():  # versions before 1 announce version 1
    warnings.simplefilter("ignore")
    az = pytest.importorskip("arviz")
from matplotlib import pyplot as plt

FIRST = az.__version__.startswith("0.")
SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(20, 80),
        "ward": tacit.Category(["A", "B", "C"]),
        "stay": tacit.Number(0, 40),
    }
)
# ArviZ's own functions warn of things to come.
pytestmark = pytest.mark.filterwarnings("ignore")


def table(count, seed):
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 80, count), rng.integers(0, 3, count)
    stay = 10 + 0.1 * age + 2 * ward + rng.normal(0, 3, count)
    return {"age": age, "ward": np.array(["A", "B", "C"])[ward], "stay": stay}


@pytest.fixture(scope="module")
def post():
    model = tacit.glm("stay ~ age + ward", schema=SCHEMA)
    return tacit.fit_without_privacy(model, table(400, 0))


@pytest.fixture(scope="module")
def public():
    return table(60, 1)


@pytest.fixture
def drawn(tmp_path):
    """Writes the figure that was drawn, and says whether something is on it."""

    def ink():
        plt.savefig(tmp_path / "figure.png", dpi=60)
        plt.close("all")
        return float(np.mean(plt.imread(tmp_path / "figure.png")[..., :3].min(axis=2) < 0.9))

    return ink


def test_a_summary_has_the_posterior_and_nothing_else(post):
    found = az.summary(post.to_datatree(), kind="stats")
    assert set(found.index) == {"sigma", "Intercept", "age", "ward[B]", "ward[C]"}
    assert float(found.loc["ward[C]", "mean"]) == pytest.approx(post.mean()["ward"][1], abs=0.02)
    assert float(found.loc["age", "sd"]) == pytest.approx(post.sd()["age"], abs=0.02)


def test_diagnostics_are_those_of_independent_draws(post):
    found = az.ess(post.to_datatree())
    assert 0.7 * post.num_draws < float(found["age"]) < 1.3 * post.num_draws


@pytest.mark.parametrize("name", ["plot_forest", "plot_posterior" if FIRST else "plot_dist"])
def test_plots_of_parameters(name, post, drawn):
    vars(az)[name](post.to_datatree())
    assert drawn() > 0.002


@pytest.mark.slow
def test_predictions_for_public_rows_beside_the_outcomes_that_the_user_adds(post, public, drawn):
    tree = post.to_datatree(public)
    tree["observed_data"] = xr.Dataset({"stay": ("row", public["stay"])})
    vars(az)["plot_ppc" if FIRST else "plot_ppc_dist"](tree)
    assert drawn() > 0.002
    drawn_means = np.asarray(tree["posterior_predictive"]["stay"]).mean(axis=(0, 1))
    np.testing.assert_allclose(drawn_means, post.predict(public), atol=0.5)
    assert np.corrcoef(drawn_means, public["stay"])[0, 1] > 0.4


@pytest.mark.skipif(FIRST, reason="versions before 1 need outcomes to compare with")
def test_predictions_alone(post, public, drawn):
    az.plot_ppc_dist(post.to_datatree(public), visuals={"observed_dist": False})
    assert drawn() > 0.002


def test_the_tree_has_public_groups_only(post, public):
    tree = post.to_datatree(public)
    assert isinstance(tree, xr.DataTree)
    assert set(tree.children) == {
        "posterior", "unconstrained_gaussian", "posterior_predictive", "constant_data",
    }  # fmt: skip
    assert tree["posterior_predictive"]["stay"].dims == ("chain", "draw", "row")
    assert set(tree["constant_data"]) == {"age", "ward"}
    assert np.asarray(tree["constant_data"]["ward"]).tolist() == [
        "ABC".index(each) for each in public["ward"]
    ]
    assert set(post.to_datatree().children) == {"posterior", "unconstrained_gaussian"}
    with pytest.raises(InvalidArgument, match="ward"):
        post.to_datatree({"age": public["age"]})


def test_constants_of_a_model_are_in_the_tree():
    import numpyro
    from numpyro import distributions as dist

    def model(age, stay, knots):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", age.shape[0]):
            numpyro.sample("stay", dist.Normal(slope * (age - knots.mean()), 5), obs=stay)

    knots = np.array([20.0, 50.0, 80.0])
    fitted = tacit.fit_without_privacy(
        NumPyro(model, constants={"knots": knots}), table(50, 0), schema=SCHEMA
    )
    tree = fitted.to_datatree()
    np.testing.assert_array_equal(tree["constant_data"]["knots"], knots)


@pytest.mark.skipif(not FIRST, reason="version 1 takes any tree")
def test_a_tree_for_versions_before_1_is_a_tree_for_xarray_too(post, public, tmp_path):
    tree = post.to_datatree(public)
    assert isinstance(tree, az.InferenceData)
    assert "/posterior" in tree.groups
    assert tree.groups() == [
        "posterior", "unconstrained_gaussian", "posterior_predictive", "constant_data",
    ]  # fmt: skip
    assert tree.posterior is not None
    assert float(tree["posterior/age"].mean()) == pytest.approx(post.mean()["age"])
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    assert set(az.from_netcdf(tmp_path / "tree.nc").groups()) == set(tree.groups())
    assert az.from_datatree(tree).posterior["age"].shape == (1, post.num_draws)


def test_without_arviz_it_is_a_plain_tree(post, monkeypatch):
    def missing(_):
        from importlib.metadata import PackageNotFoundError

        raise PackageNotFoundError

    monkeypatch.setattr("tacit.results.datatree.version", missing)
    tree = post.to_datatree()
    assert type(tree) is xr.DataTree
    assert isinstance(tree["posterior"], xr.DataTree)
