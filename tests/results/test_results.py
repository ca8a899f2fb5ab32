"""Posteriors and statements: what they say, and that it survives files, notebooks and ArviZ."""

import gc
import json
import sys
import types
import warnings
import weakref
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.accounting import Budget, events
from tacit.api.fit import fit, fit_without_privacy
from tacit.errors import InvalidArgument, TacitError
from tacit.inference.diagnostics import mixing_warnings
from tacit.inference.result import Intervals
from tacit.inference.variational import Variational
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.rows import Rows
from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement

EVENT = events.sampled_gaussian(2.0, 0.01, 200)
ODD = "a <b> [0] & 'c'"


def statement(**changes):
    fields = {
        "event": EVENT,
        "delta": 1e-5,
        "adjacency": "add-remove",
        "unit": "row",
        "public": ("the <prior>",),
        "seeded": False,
    }
    return PrivacyStatement(**(fields | changes))


def posterior(draws=None, **changes):
    rng = np.random.default_rng(0)
    if draws is None:
        draws = {
            "w": rng.normal([1.0, -1.0], 0.1, size=(2000, 2)),
            "level": rng.normal(5, 2, size=2000).astype(np.float32),
            "table": rng.normal(size=(2000, 2, 3)),
            ODD: rng.normal(size=2000),
        }
    fields = {
        "draws": draws,
        "trace": {"mean": np.cumsum(rng.normal(size=(50, 4)), axis=0), "step": np.ones(50)},
        "unconstrained_mean": np.arange(4.0),
        "unconstrained_covariance": np.eye(4),
        "privacy": statement(),
    }
    return Posterior(**(fields | changes))


def model():
    return Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - jnp.dot(row["x"], p["w"])) ** 2,
    ).unit_model


def rows():
    rng = np.random.default_rng(0)
    return Rows({"x": rng.normal(size=(300, 2)), "y": rng.normal(size=300)})


NOT_PRIVATE = {
    "without noise": (statement(event=None, delta=0.0), "NOT PRIVATE"),
    "seeded": (statement(seeded=True), "seeded: not private"),
    "no limit": (statement(event=events.gaussian(1.0), delta=0.0), "NOT PRIVATE"),
}


# Numbers


def test_intervals_hold_what_they_say():
    post = posterior()
    for name, (lower, upper) in post.interval(0.8).items():
        inside = (post.draws[name] > lower) & (post.draws[name] < upper)
        assert np.allclose(inside.mean(axis=0), 0.8, atol=0.01)
        assert np.allclose((post.draws[name] < lower).mean(axis=0), 0.1, atol=0.01)
    assert post.quantiles([0.5])["table"].shape == (1, 2, 3)
    for level in (0, 1, np.nan):
        with pytest.raises(InvalidArgument, match="level"):
            post.interval(level)
    with pytest.raises(InvalidArgument, match="probabilities"):
        post.quantiles([2.0])


def test_summary_is_an_aligned_table():
    text = str(posterior().summary())
    trust, *table = text.splitlines()[:11]
    assert "intervals" in trust
    assert len({len(line) for line in table}) == 1
    assert table[0].split() == ["mean", "sd", "5%", "95%"]
    assert [line[: len(ODD)].strip() for line in table[1:]] == [
        *("w[0]", "w[1]", "level"),
        *(f"table[{i}, {j}]" for i in range(2) for j in range(3)),
    ]
    assert ODD in text
    assert "epsilon" in text.splitlines()[-1]


def test_summary_says_what_the_method_said():
    said = ("The fit still moved.", "And more.")
    text = str(posterior(messages=said).summary())
    assert text.index(said[0]) < text.index(said[1])


@pytest.mark.parametrize("intervals", Intervals)
@pytest.mark.parametrize("names", [{"w": 3}, {"a long name of a parameter": 2}])
def test_what_intervals_include_stands_above_them(intervals, names):
    draws = {name: np.random.default_rng(0).normal(size=(200, n)) for name, n in names.items()}
    post = posterior(draws, intervals=intervals, chain=True)
    above, header = str(post.summary()).splitlines()[:2]
    words = {
        Intervals.INCLUDED: "account for the privacy noise",
        Intervals.LEFT_OUT: "leave out the privacy noise, so they are too narrow",
        Intervals.SAMPLED: "to which no noise was added",
        Intervals.NO_NOISE: "a fit without noise",
        Intervals.UNKNOWN: "may or may not account",
    }[intervals]
    assert words in above
    assert ("noise not included" in header) == (intervals == Intervals.LEFT_OUT)
    assert words in post.summary()._repr_html_()


def rendered(post, folder):
    """Everything that shows an interval, as text."""
    post.report(folder)
    yield str(post.summary())
    yield post.summary()._repr_html_()
    yield post._repr_html_()
    yield " ".join(post.summary().to_pandas().columns)
    yield (folder / "report.html").read_text()
    yield (folder / "report.md").read_text()
    yield (folder / "registry.yaml").read_text()
    tree = post.to_datatree()
    yield json.dumps(tree.attrs)
    yield json.dumps(tree["posterior"].attrs)
    for plot in (post.plot_forest, post.plot_dist):
        yield plot(path=folder / "plot.png").get_suptitle()


def test_intervals_that_leave_out_the_noise_always_say_so(tmp_path):
    post = posterior(intervals=Intervals.LEFT_OUT)
    for place, text in enumerate(rendered(post, tmp_path)):
        flat = " ".join(text.split())
        assert "noise not included" in flat or "do not include the noise" in flat, place
    page = (tmp_path / "report.html").read_text()
    assert page.count("90% interval ") == page.count("90% interval (noise not included)") > 3


def test_a_fit_that_did_not_converge_says_so_before_its_numbers(tmp_path):
    post = posterior(converged=False, messages=("It moved.",))
    assert "DID NOT CONVERGE" in repr(post)
    for place, text in enumerate(rendered(post, tmp_path)):
        if place in (3, 8):  # names of columns, and attributes that are not sentences
            continue
        assert "DID NOT CONVERGE" in text, place
    assert str(post.summary()).startswith("THE FIT DID NOT CONVERGE")
    assert "DID NOT CONVERGE" in post.plot_trace(path=tmp_path / "t.png").get_suptitle()
    assert post.to_datatree()["posterior"].attrs["converged"] == 0
    page = (tmp_path / "report.html").read_text()
    assert page.index("DID NOT CONVERGE") < page.index("<h2>Posterior")
    fine = posterior(converged=True)
    assert not any("DID NOT CONVERGE" in text for text in rendered(fine, tmp_path))
    assert "converged" in fine.plot_trace(path=tmp_path / "t.png").get_suptitle()


def test_summary_to_pandas():
    frame = posterior().summary(level=0.5).to_pandas()
    assert list(frame.columns) == ["mean", "sd", "25%", "75%"]
    assert frame.loc["w[1]", "mean"] == pytest.approx(-1, abs=0.02)


def test_long_summaries_say_what_they_leave_out():
    summary = posterior({"w": np.zeros((3, 1000))}).summary()
    assert "900 more" in str(summary)
    assert len(summary.to_pandas()) == 1000


AWKWARD = {
    "nan": np.full((10, 2), np.nan),
    "infinite": np.array([np.inf, -np.inf, 1.0] * 4),
    "huge": np.full((10, 1), 3e38, np.float32),
    "constant": np.ones(10),
    "empty": np.zeros((10, 0)),
    "empty matrix": np.zeros((10, 3, 0)),
    "one draw": np.zeros((1, 2)),
    "whole numbers": np.arange(10),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_draws_print_and_survive_a_file(case, tmp_path):
    post = posterior({"w": AWKWARD[case]})
    assert str(post.summary())
    assert post._repr_html_()
    post.save(tmp_path / "post.nc")
    assert Posterior.load(tmp_path / "post.nc") == post


def test_huge_draws_have_a_mean():
    assert posterior({"w": AWKWARD["huge"]}).mean()["w"][0] == pytest.approx(3e38)


@pytest.mark.parametrize(
    "draws", [{}, {"w": np.zeros((0, 2))}, {"w": np.zeros(3), "v": np.zeros(4)}, {"w": 1.0}]
)
def test_draws_that_do_not_belong_together_are_refused(draws):
    with pytest.raises(InvalidArgument):
        posterior(draws)


# Files and trees


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unconstrained_mean": None, "unconstrained_covariance": None},
        {"trace": {}},
        {"converged": True, "intervals": Intervals.INCLUDED},
        {"converged": False, "messages": ("a", "b"), "intervals": Intervals.LEFT_OUT},
        *({"privacy": said} for said, _ in NOT_PRIVATE.values()),
        {"privacy": statement(budget_left=Budget(2, 1e-6), assumptions=("rows are independent",))},
    ],
)
def test_a_file_brings_everything_back(changes, tmp_path):
    post = posterior(**changes)
    post.save(tmp_path / "post.nc")
    back = Posterior.load(tmp_path / "post.nc")
    assert back == post
    assert str(back.privacy) == str(post.privacy)
    assert back.privacy.curve("replace", (1e-3,)) == post.privacy.curve("replace", (1e-3,))
    assert list(back.draws) == list(post.draws)
    assert all(back.draws[name].dtype == d.dtype for name, d in post.draws.items())
    assert [path.name for path in tmp_path.iterdir()] == ["post.nc"]


def test_a_file_from_before_these_fields_gives_unknown(tmp_path):
    tree = posterior().to_datatree()
    for name in ("messages", "intervals"):
        del tree.attrs[name]
    tree.attrs |= {"settled": 1, "settled_from": 20, "averaged": 1}
    tree.to_netcdf(tmp_path / "old.nc", engine="h5netcdf")
    back = Posterior.load(tmp_path / "old.nc")
    assert back == posterior()
    assert (back.converged, back.messages, back.intervals) == (None, (), Intervals.UNKNOWN)


def test_equality_sees_differences():
    post = posterior()
    assert post != posterior(converged=True)
    assert post != posterior(messages=("a",))
    assert post != posterior(intervals=Intervals.INCLUDED)
    assert post != posterior(privacy=statement(delta=1e-6))
    assert post != posterior({"w": np.zeros(3)})
    assert post == posterior(model=model())
    assert post != 1


def test_names_that_trees_cannot_hold(tmp_path):
    names = ["a/b", "a::b", "w", "w_dim_0", "chain", "draw", "", " x ", ".", "ä$", "step", "a.b"]
    draws = {name: np.full((4, 2), float(i)) for i, name in enumerate(names)}
    post = posterior(draws)
    post.save(tmp_path / "post.nc")
    assert Posterior.load(tmp_path / "post.nc") == post


def test_saving_over_a_file_replaces_it(tmp_path):
    posterior().save(tmp_path / "post.nc")
    other = posterior({"w": np.zeros(3)})
    other.save(tmp_path / "post.nc")
    assert Posterior.load(tmp_path / "post.nc") == other


def test_files_that_cannot_be_used(tmp_path):
    import xarray as xr

    (tmp_path / "text.nc").write_text("not a file of ours")
    xr.Dataset({"x": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    posterior().save(tmp_path / "whole.nc")
    whole = (tmp_path / "whole.nc").read_bytes()
    (tmp_path / "half.nc").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TacitError, match="no file at"):
        Posterior.load(tmp_path / "missing.nc")
    for name in ("text.nc", "other.nc", "half.nc"):
        with pytest.raises(TacitError, match="not a posterior"):
            Posterior.load(tmp_path / name)
    for path in (tmp_path / "no" / "where.nc", tmp_path, tmp_path / "text.nc" / "x.nc"):
        with pytest.raises(TacitError, match="could not be written"):
            posterior().save(path)
    assert not list(tmp_path.glob(".*"))


def test_tree_is_as_arviz_reads_it():
    tree = posterior().to_datatree()
    assert set(tree.children) == {"posterior", "fit", "unconstrained_gaussian"}
    assert tree["posterior/table"].dims == ("chain", "draw", "table_dim_0", "table_dim_1")
    assert tree["fit/mean"].dims == ("step", "mean_dim_0")
    assert tree.attrs["inference_library"] == "tacit"
    assert json.loads(tree.attrs["privacy_statement"])["private"]
    warned = posterior(privacy=statement(seeded=True)).to_datatree()
    assert "not private" in next(iter(warned.attrs.values()))


def test_arviz_reads_tree_and_file(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz as az

        post = posterior()
        post.save(tmp_path / "post.nc")
        read = az.from_netcdf(str(tmp_path / "post.nc"))
        tree = post.to_datatree()
        given = az.from_datatree(tree) if az.__version__.startswith("0.") else tree
        for data in (read, given):
            assert "observed_data" not in data
            found = az.convert_to_dataset(data)
            assert np.array_equal(found["table"].values[0], post.draws["table"])


# Statements


def test_statement_json_is_valid_and_comes_back():
    for said in (statement(), *(each for each, _ in NOT_PRIVATE.values())):
        text = said.to_json()
        data = json.loads(text, parse_constant=pytest.fail)
        assert next(iter(data)) == "private"
        assert data["private"] == said.is_private == (said.warning is None)
        assert PrivacyStatement.from_json(text) == said
    both = json.loads(statement().to_json())
    assert both["epsilon"]["add-remove"] < both["epsilon"]["replace"]
    assert set(both["versions"]) == {"tacit", "jax", "numpy", "scipy", "python"}
    falling = both["curve"]["replace"]["epsilon"]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize(
    "event",
    [
        events.gaussian(1.0),
        events.laplace(2.0),
        events.compose(events.gaussian(3.0), events.repeat(events.BarkerTest(ratio_bound=0.01), 5)),
        events.sampled_gaussian([(2.0, 3), (1.0, 4)], 0.1),
        events.repeat_and_select(events.gaussian(3.0), 2.0, float("inf")),
        events.SubsampledBarkerTest(batch_size=10, dataset_size=1000),
        events.randomised_response(0.5, 3),
    ],
)
def test_every_kind_of_event_comes_back(event):
    said = statement(event=event, adjacency="replace")
    back = PrivacyStatement.from_json(said.to_json())
    assert back == said
    assert back.epsilons == said.epsilons


def test_a_file_cannot_claim_less_than_its_event():
    data = statement().to_dict()
    data["epsilon"] = {"add-remove": 1e-9, "replace": 1e-9}
    assert PrivacyStatement.from_json(json.dumps(data)).epsilons == statement().epsilons


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"event": {"kind": "os.system"}}'])
def test_other_json_is_refused(text):
    with pytest.raises(InvalidArgument, match="not a"):
        PrivacyStatement.from_json(text)
    data = statement().to_dict() | {"event": {"kind": "Unheard"}}
    with pytest.raises(InvalidArgument, match="does not know this event"):
        PrivacyStatement.from_json(json.dumps(data))


@pytest.mark.parametrize("case", NOT_PRIVATE)
def test_no_guarantee_is_said_first_everywhere(case):
    said, words = NOT_PRIVATE[case]
    post = posterior(privacy=said)
    assert not said.is_private
    assert str(said).startswith(words)
    assert repr(said).startswith(f"PrivacyStatement({words}")
    assert repr(post).startswith(f"Posterior({words}")
    assert str(post.summary()).startswith(words)
    for page in (said, post, post.summary()):
        assert visible(page._repr_html_())[0].startswith(words)


def test_words_for_a_person_and_what_it_rests_on():
    text = str(statement(assumptions=("the bounds are public",), budget_left=Budget(2, 1e-6)))
    for words in ("guess right", "the bounds are public", "ledger: epsilon 2", "computed with"):
        assert words in text


class _Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.words, self.tags = [], []

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, _attrs):
        self.tags.append(tag)


def visible(page):
    parser = _Words()
    parser.feed(page)
    parser.close()
    assert not {"b", "prior", "script", "link", "img"} & set(parser.tags)
    return [word for word in parser.words if word.strip()]


def test_html_escapes_names():
    assert ODD in visible(posterior()._repr_html_())
    assert "the <prior>" in visible(statement()._repr_html_())


# Rows


def _reachable(start):
    """Everything an object refers to; of functions, what they close over but no globals."""
    seen, waiting = {}, [start]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType):
            continue
        seen[id(value)] = value
        if isinstance(value, types.FunctionType):
            waiting += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        else:
            waiting += gc.get_referents(value)
    return list(seen.values())


@pytest.mark.parametrize(
    "run", ["private", pytest.param("without privacy", marks=pytest.mark.slow)]
)
def test_no_reference_to_rows_survives(run):
    data, method = rows(), Variational(num_steps=20)
    if run == "private":
        post = fit(model(), data, budget=Budget(1, 1e-5), method=method)
    else:
        post = fit_without_privacy(model(), data, method=method)
    fields = [*data._fields.values(), *data._device_fields()[0].values()]
    marks = {id(field) for field in fields} | {id(data)}
    reached = _reachable(post)
    assert any(value is post.trace for value in reached)
    assert not marks & {id(value) for value in reached}
    arrays = [value for value in reached if isinstance(value, np.ndarray | jax.Array)]
    assert arrays
    assert not any(300 in array.shape for array in arrays)
    watched = [weakref.ref(field) for field in fields]
    del data, fields, reached, arrays
    gc.collect()
    assert [ref() is None for ref in watched] == [True] * 4
    assert post.model is not None


# Pictures


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("forest", "png"),
        ("forest", "pdf"),
        ("forest", "svg"),
        *((kind, "png") for kind in ("dist", "trace", "privacy")),
        *(
            pytest.param(kind, suffix, marks=pytest.mark.slow)
            for kind in ("dist", "trace", "privacy")
            for suffix in ("pdf", "svg")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of ArviZ and what it draws with
def test_plots_are_written(kind, suffix, tmp_path):
    import matplotlib.pyplot as plt

    opened = plt.get_fignums()
    path = tmp_path / f"plot.{suffix}"
    post = posterior(privacy=statement(seeded=True))
    figure = getattr(post, f"plot_{kind}")(path=path)
    assert path.stat().st_size > 1000
    assert "not private" in figure.get_suptitle()
    assert plt.get_fignums() == opened


@pytest.mark.filterwarnings("ignore")
def test_plots_that_cannot_be_made(tmp_path, monkeypatch):
    post = posterior()
    with pytest.raises(InvalidArgument, match="is not a parameter"):
        post.plot_forest(["v"])
    with pytest.raises(InvalidArgument, match=r"\.png"):
        post.plot_trace(path=tmp_path / "plot.xyz")
    with pytest.raises(TacitError, match="could not be written"):
        post.plot_trace(path=tmp_path / "no" / "plot.png")
    with pytest.raises(TacitError, match="not finite"):
        posterior({"w": AWKWARD["nan"]}).plot_dist()
    with pytest.raises(InvalidArgument, match="nothing to plot"):
        posterior({"w": AWKWARD["empty"]}).plot_forest()
    with pytest.raises(TacitError, match="no trace"):
        posterior(trace={}).plot_trace()
    with pytest.raises(TacitError, match="without privacy"):
        posterior(privacy=NOT_PRIVATE["without noise"][0]).plot_privacy()
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(TacitError, match=r"tacit-bayes\[plots\]"):
        post.plot_dist()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TacitError, match=r"tacit-bayes\[plots\]"):
        post.plot_trace()


def test_a_chain_that_never_moved_is_told_from_one_that_mixes_badly():
    still = {"a": np.ones(100)}
    (said,) = mixing_warnings(still)
    assert "never moved" in said
    assert "inf" not in said
