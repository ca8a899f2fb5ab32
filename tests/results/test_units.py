"""Numbers in the units of the table: coefficients, ratios, references and priors, and where they show."""

import json
import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import tacit
from tacit.accounting import events
from tacit.errors import InvalidArgument
from tacit.inference.result import UNLEARNED, Intervals
from tacit.models.front_ends import adapt_model
from tacit.results import drawings
from tacit.results.drawings import forest_bars
from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import Summary, SummaryLine, to_table_units, trust_sentence

RNG = np.random.default_rng(7)
N = 3000
DATA = {
    "age": RNG.uniform(18, 98, N),
    "dose": RNG.uniform(0, 50, N),
    "ward": RNG.choice(["A", "B", "elsewhere"], N),
    "sex": RNG.choice(["f", "m"], N),
}
_ETA = 0.03 * (DATA["age"] - 58) - 0.02 * DATA["dose"] + 0.6 * (DATA["ward"] == "B")
DATA["ill"] = RNG.uniform(size=N) < 1 / (1 + np.exp(-_ETA))
DATA["falls"] = RNG.poisson(np.exp(0.5 + 0.5 * _ETA))
DATA["score"] = 500 + 20 * _ETA + RNG.normal(0, 8, N)
SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(18, 98, measured_in="years"),
        "dose": tacit.Number(0, 50),
        "ward": tacit.Category(["A", "B"], other="other"),
        "sex": tacit.Binary(yes="m", no="f"),
        "ill": tacit.Binary(),
        "falls": tacit.Count(40),
        "score": tacit.Number(300, 700, measured_in="points"),
    }
)
TERMS = "age + dose + ward + sex"


def glm(outcome, terms=TERMS, **more):
    return tacit.glm(f"{outcome} ~ {terms}", schema=SCHEMA, **more)


@pytest.fixture(scope="module")
def fits():
    """Fits by the exact mode, which is compared with other software."""
    found = {name: tacit.fit_without_privacy(glm(name), DATA) for name in ("ill", "falls")}
    model, draws = glm("score"), np.random.default_rng(1)
    values = {"Intercept": 494.0, "age": 24.0, "dose": -10.0, "sex": 0.0, "sigma": 8.0}
    made_up = {name: draws.normal(value, 0.4, 500) for name, value in values.items()}
    made_up["ward"] = draws.normal([12.0, 0.0], 0.4, (500, 2))
    found["score"] = Posterior(
        draws={name: made_up[name] for name in model.function.order},
        privacy=found["ill"].privacy,
        labels=model.function.labels,
        interpretation=model.interpretation,
    )
    return found


def design():
    """The columns as statsmodels takes them, in the units of the table, at the reference."""
    columns = [
        np.ones(N),
        DATA["age"] - 58,
        DATA["dose"] - 25,
        DATA["ward"] == "B",
        DATA["ward"] == "elsewhere",
        DATA["sex"] == "m",
    ]
    return np.column_stack(columns).astype(float)


NAMES = ["Intercept", "age", "dose", "ward[B]", "ward[other]", "sex"]


def log_likelihood(outcome, beta):
    eta, y = design() @ beta, np.asarray(DATA[outcome], float)
    if outcome == "ill":
        return stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-eta))).sum()
    return stats.poisson.logpmf(y, np.exp(eta)).sum()


def most_likely(outcome):
    """Maximum likelihood in the units of the table, and standard errors by differences."""
    unit = np.array([1, 0.01, 0.02, 1, 1, 1])  # so that all numbers are of similar size

    def loss(z):
        return -log_likelihood(outcome, unit * z)

    found = optimize.minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-3}).x
    step = 0.05 * np.eye(6)
    curved = [
        [
            loss(found + a + b) - loss(found + a - b) - loss(found - a + b) + loss(found - a - b)
            for a in step
        ]
        for b in step
    ]
    errors = np.sqrt(np.diag(np.linalg.inv(np.array(curved) / (4 * 0.05**2))))
    return unit * found, unit * errors


@pytest.mark.parametrize(("outcome", "ratio"), [("ill", "odds ratio"), ("falls", "rate ratio")])
def test_numbers_are_those_of_maximum_likelihood_in_the_units_of_the_table(fits, outcome, ratio):
    values, errors = most_likely(outcome)
    lines = {line.name: line for line in fits[outcome].summary(units={"age": 1}).lines}
    for name, value, error in zip(NAMES, values, errors, strict=True):
        assert abs(lines[name].mean - value) < 0.3 * error, name  # the prior is weak
        assert lines[name].sd == pytest.approx(error, rel=0.1)
        if name != "Intercept":
            assert lines[name].ratio[0] == pytest.approx(np.exp(value), rel=0.1)
    assert fits[outcome].summary().ratio == ratio
    assert not lines["Intercept"].is_ratio


def test_units_that_are_asked_for_multiply(fits):
    post = fits["ill"]
    usual, asked = post.summary(), post.summary(units={"age": 1, "dose": 5})
    factors = [1, 0.1, 5, 1, 1, 1]
    for one, other, factor in zip(usual.lines, asked.lines, factors, strict=True):
        assert other.mean == pytest.approx(factor * one.mean, rel=1e-5)
        assert other.upper == pytest.approx(factor * one.upper, rel=1e-5)
    assert [line.unit for line in usual.lines] == [
        *("at the reference", "per 10 years", "per 1", "against A", "against A", "m against f")
    ]
    assert [line.unit for line in asked.lines][1:3] == ["per 1 year", "per 5"]
    drawn = post.in_units({"age": 80}).draws["age"]
    assert np.allclose(drawn, 8 * post.draws["age"])  # per ten years
    assert np.allclose(drawn, 2 * post.model_draws["age"])  # whose own unit is half of 18 to 98


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ({"ward": 2}, "not a number here; numbers with a unit are age, dose"),
        ({"age": 0}, "positive"),
        ({"age": "ten"}, "age"),
        (["age"], "mapping"),
    ],
)
def test_units_that_make_no_sense_are_one_sentence(fits, units, said):
    with pytest.raises(InvalidArgument, match=said):
        fits["ill"].summary(units=units)
    with pytest.raises(InvalidArgument, match="models by formula"):
        Posterior(draws={"a": np.zeros(3)}, privacy=fits["ill"].privacy).summary(units={"a": 1})


def test_a_summary_says_units_ratios_reference_priors_and_scale(fits):
    short, text = str(fits["ill"].summary()), fits["ill"].summary().details()
    for said in ("age, per 10 years", "ward[B] ", "odds ratio [90%]", "Reference: age 58 years"):
        assert said in short
    for said in ("against A", "95% of the prior", "Priors", "log-odds"):
        assert said not in short
    for said in (
        *("age, per 10 years", "dose, per 1", "ward[B], against A", "sex, m against f"),
        *("odds ratio", "95% of the prior", "the log-odds that ill is 1"),
        "Reference: age 58 years, dose 25, ward A, sex f.",
        "Priors: normal for Intercept, age, dose, ward, sex.",
    ):
        assert said in text
    half = stats.norm(0, 2.5).ppf(0.975)
    assert f"{-half / 4:.3g} to {half / 4:.3g}" in text  # of age: per 10 years, not per 40
    falls = fits["falls"].summary()
    assert "rate ratio" in str(falls)
    assert "the mean of score in points" in fits["score"].summary().details()
    assert fits["score"].summary().ratio is None
    assert "half-normal for sigma" in fits["score"].summary().details()
    frame = falls.to_pandas()
    assert list(frame.columns)[4:] == [
        *("rate ratio", "rate ratio 5%", "rate ratio 95%", "unit"),
    ]
    assert np.allclose(frame["rate ratio"][1:], np.exp(frame["mean"][1:]))


def test_a_file_keeps_how_to_read_it(fits, tmp_path):
    post = fits["falls"]
    post.save(tmp_path / "post.nc")
    again = Posterior.load(tmp_path / "post.nc")
    assert again == post
    assert str(again.summary(units={"age": 5})) == str(post.summary(units={"age": 5}))
    json.dumps(again.interpretation.to_dict())


def test_readings_of_unusual_terms():
    reading = glm("ill", "age * ward + bs(dose, df=4) + I(dose ** 2) + (age | ward)").interpretation
    known = reading.parameters
    assert known["age:ward"].words({}) == "per 10 years, against A"
    assert known["age:ward"].factor({"age": 20}) == pytest.approx(0.5)
    assert not known["bs(dose, df=4)"].ratio
    assert known["age|ward_sd"].role == "spread"
    assert known["age|ward_sd"].words({}) == "per 10 years"
    squares = known["I(dose ** 2)"]
    assert squares.factor({}) == pytest.approx(1 / 1250)
    assert reading.question == "How does ill depend on age, ward and dose?"
    product = glm("falls", "0 + ward + age:dose").interpretation.parameters
    assert product["age:dose"].words({"dose": 5}) == "per 10 years of age x 5 of dose"
    assert product["ward"].role == "intercept"
    assert not product["ward"].ratio
    levels = tacit.glm("ward ~ age", schema=SCHEMA).interpretation
    assert levels.scale == "the log-odds of each level of ward against A"
    assert tacit.glm("ill ~ age", schema=SCHEMA, link="probit").interpretation.ratio is None


@pytest.mark.parametrize("kind", ["normal", "cauchy", "laplace", "studentt"])
def test_the_ends_of_priors_hold_95_percent_of_their_draws(kind):
    prior = {"studentt": ("studentt", 4, 1, 2)}.get(kind, (kind, 1, 2))
    model = glm("ill", "dose", priors={"dose": prior})
    found = model.interpretation.parameters["dose"].prior
    drawn = np.asarray(model.priors["dose"].sample(jax.random.key(0), (100_000,)))
    assert np.mean(drawn < found.low) == pytest.approx(0.025, abs=0.003)
    assert np.mean(drawn > found.high) == pytest.approx(0.025, abs=0.003)


def test_the_ends_of_positive_priors_hold_95_percent_of_their_draws():
    for prior in (
        *(("halfnormal", 3), ("exponential", 0.5), ("gamma", 2, 0.1), ("lognormal", 1, 0.5)),
        ("halfcauchy", 2),
    ):
        model = glm("score", "dose", priors={"sigma": prior})
        found = model.interpretation.parameters["sigma"].prior
        drawn = np.asarray(model.priors["sigma"].sample(jax.random.key(1), (100_000,)))
        assert np.mean(drawn < found.low) == pytest.approx(0.025, abs=0.003), prior
        assert np.mean(drawn > found.high) == pytest.approx(0.025, abs=0.003), prior


# The first sentence


STATEMENT = PrivacyStatement(
    event=events.gaussian(5.0),
    delta=1e-6,
    adjacency="add-remove",
    unit="person",
    public=(),
    seeded=False,
)


def found(means, sds, **changes):
    """The headline of a posterior of ill ~ age + dose + ward + sex, by means and deviations in the model's units."""
    model, rng = glm("ill"), np.random.default_rng(2)
    names = {"Intercept": 0, "age": 1, "dose": 2, "ward": slice(3, 5), "sex": 5}
    drawn = rng.normal(means, sds, (1000, 6))
    fields = {"intervals": Intervals.INCLUDED, "converged": True, **changes}
    posterior = Posterior(
        draws=to_table_units({n: drawn[:, at] for n, at in names.items()}, model.interpretation),
        privacy=STATEMENT,
        labels=model.function.labels,
        interpretation=model.interpretation,
        **fields,
    )
    return posterior.summary()


@pytest.mark.parametrize(
    ("means", "sds", "said"),
    [
        ([0, 1, -1, 1, 0, 0.5], 0.1, "Age, dose, ward and sex are clearly related to ill."),
        (
            *([0, 1, 0, 0, 2, 0], [0.1, 0.1, 0.1, 0.1, 0.1, 1.0]),
            "Age and ward are clearly related to ill; no clear relation of dose; too few people for sex.",
        ),
        (
            *([0, 1, 0.18, 0, 0, 0], [0.1, 0.1, 0.1, 0.1, 0.1, 1.0]),
            "Age is clearly related to ill, dose perhaps; no clear relation of ward; too few people for sex.",
        ),
        (
            *([0, 0, 0.18, 0, 0, 0], 0.1),
            "Dose is perhaps related to ill; no clear relation of age, ward and sex.",
        ),
        ([0, 0, 0, 0, 0, 0], 0.1, "No clear relation between ill and age, dose, ward and sex."),
        ([0] * 6, 1.0, "Too few people to say how ill depends on age, dose, ward and sex."),
        ([0] * 6, 2.4, "Nothing was learned about ill: there are too few people for this budget"),
    ],
)
def test_the_headline_says_what_was_learned(means, sds, said):
    summary = found(means, sds)
    assert str(summary).startswith(said)
    assert str(summary).splitlines()[1].startswith("Converged. 90% credible intervals")
    assert said in summary._repr_html_()


@pytest.mark.parametrize(
    "changes",
    [{"converged": False}, {"intervals": Intervals.LEFT_OUT}, {"intervals": Intervals.UNKNOWN}],
)
def test_nothing_is_clear_if_intervals_cannot_be_trusted(changes):
    assert "clearly" not in str(found([0, 1, 1, 1, 1, 1], 0.1, **changes))


def test_of_another_model_it_says_of_what_little_was_learned():
    messages = ("It moved little.", f"{UNLEARNED} w: intervals are nearly the prior's.")
    drawn = np.random.default_rng(0).normal(size=500)
    post = Posterior(draws={"w": drawn}, privacy=STATEMENT, converged=True, messages=messages)
    first, second, *rest = str(post.summary()).splitlines()
    assert first == messages[1]
    assert second.startswith("Converged.")
    assert messages[1] not in rest


@pytest.mark.parametrize(
    ("last", "unit", "words"),
    [
        ("2022-12-31", "years", "per 1 year"),  # not per tenth of one
        ("2060-12-31", "years", "per 10 years"),
        ("2019-01-09", "days", "per 1 day"),
        ("2022-12-31", "days", "per 100 days"),
    ],
)
def test_dates_are_counted_in_whole_years_and_days(last, unit, words):
    seen = tacit.Date("2019-01-01", last, measured_in=unit)
    schema = tacit.Schema({"seen": seen, "ill": tacit.Binary()})
    found = tacit.glm("ill ~ seen", schema=schema).interpretation
    assert found.parameters["seen"].words({}) == words


def test_that_nothing_was_learned_is_said_once():
    messages = ("It moved little.", f"{UNLEARNED} age, dose: intervals are nearly the prior's.")
    text = str(found([0] * 6, 2.4, messages=messages))
    assert text.count("nearly the prior's") == 1
    assert messages[1] in str(found([0] * 6, 1.0, messages=messages))


def test_a_summary_says_aloud_that_there_was_no_ledger():
    text = str(found([0, 1, 1, 1, 1, 1], 0.1))
    assert text.splitlines()[-1] == (
        "Privacy: epsilon 0.83412 at delta 1e-6 per person; no ledger: nothing limits how often these data are used."
    )
    with_ledger = replace(STATEMENT, budget_left=tacit.Budget(2, 9e-6))
    assert with_ledger.cost_sentence.endswith("epsilon 2, delta 9e-6 left in the ledger.")


def test_ratios_can_be_plotted(fits):
    figure = fits["ill"].plot_forest(ratios=True)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "odds ratio"
    labels = [each.get_text() for each in axes.get_yticklabels()]
    assert labels[0] == "age, per 10 years"
    assert not any("Intercept" in each for each in labels)
    for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        assert np.exp(place) == pytest.approx(float(label.get_text()))
    with pytest.raises(InvalidArgument, match="no ratio to plot"):
        fits["score"].plot_forest(ratios=True)


def test_one_sentence_says_what_intervals_hold_and_whether_to_trust_the_fit():
    every = {
        trust_sentence(0.9, kind, converged)
        for kind in Intervals
        for converged in (True, False, None)
    }
    assert len(every) == 3 * len(Intervals)
    assert "too narrow" in trust_sentence(0.9, Intervals.LEFT_OUT, converged=True)
    assert trust_sentence(0.5, Intervals.INCLUDED, converged=True).startswith("Converged. 50%")
    assert "50%" in trust_sentence(0.5, Intervals.INCLUDED, converged=False)


# Bounds that are far too wide


def of_wide_bounds(sigma, statement, *, converged):
    schema = SCHEMA.with_columns({"score": tacit.Number(0, 300)})
    model = tacit.glm("score ~ age", schema=schema)
    draws = {"Intercept": np.full(50, 20.0), "age": np.full(50, 1.0), "sigma": np.full(50, sigma)}
    return Posterior(
        draws=draws, privacy=statement, interpretation=model.interpretation, converged=converged
    )


@pytest.mark.parametrize(
    ("sigma", "converged", "said"),
    [
        (2.4, True, "a small part of the declared bounds of score, 0 to 300"),
        (39.0, None, "about where the fit began (37.5"),
        (39.0, True, None),
        (20.0, None, None),
    ],
)
def test_bounds_that_do_not_suit_the_outcome_are_told(fits, sigma, converged, said, tmp_path):
    post = of_wide_bounds(sigma, fits["ill"].privacy, converged=converged)
    post.report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    for text in (str(post.summary()), page):
        if said is None:
            assert "declared bounds of score" not in text
        else:
            assert said in text
            assert "tighter" in text


# Pictures


def test_intercept_and_sigma_have_axes_of_their_own(fits):
    panels = drawings.forest_panels(forest_bars(fits["score"], 60))
    titles = [panel.title for panel in panels]
    assert titles[0] == "Coefficients"
    assert titles[-2:] == ["Intercept", "Standard deviations and shapes"]
    for panel in panels:
        names = {bar.name.split(",")[0] for bar in panel.bars}
        assert not ({"Intercept", "sigma"} & names) or len(names) == 1
        if panel.title.startswith("Coefficients"):
            assert any(text == "0" for _, text in panel.axis.ticks())
            ends = panel.axis.share(panel.bars[0].lower), panel.axis.share(panel.bars[0].upper)
            assert ends[1] - ends[0] > 0.005


def test_a_drawn_forest_has_a_line_at_zero_and_units(fits, tmp_path):
    figure = fits["score"].plot_forest(path=tmp_path / "forest.png")
    first = figure.axes[0]
    assert any(np.allclose(line.get_xdata(), 0) for line in first.get_lines())
    labels = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert "age, per 10 years" in labels
    assert len(figure.axes) >= 3
    spans = [axes.get_xlim() for axes in figure.axes]
    assert min(high - low for low, high in spans) < 10  # not stretched by an intercept of 500


@pytest.mark.filterwarnings("ignore")
def test_a_trace_names_its_lines(fits, tmp_path):
    post = fits["ill"]
    walked = Posterior(
        draws=post.draws,
        labels=post.labels,
        privacy=post.privacy,
        trace={"mean": np.cumsum(RNG.normal(size=(30, 6)), axis=0), "size": np.ones(30)},
    )
    figure = walked.plot_trace(path=tmp_path / "trace.png")
    first, second = figure.axes
    assert [text.get_text() for text in first.get_legend().get_texts()] == NAMES
    assert second.get_legend() is None  # a single line needs no name
    many = Posterior(
        draws={"w": np.zeros((5, 50))}, privacy=post.privacy, trace={"mean": np.zeros((9, 50))}
    )
    legend = many.plot_trace(path=tmp_path / "many.png").axes[0].get_legend()
    assert "30 more" in legend.get_title().get_text()


def test_a_trace_is_in_the_units_of_the_summary(fits, tmp_path):
    """Where every step is a draw, the last one is plotted as the draws have it; also of a file."""
    post = fits["score"]
    model = adapt_model(glm("score"), SCHEMA)
    steps = np.stack(
        [model.unconstrain({n: d[i] for n, d in post.model_draws.items()}) for i in range(3)]
    )
    found = {"mean": np.repeat(steps, 10, axis=0)}
    walked = replace(post, model=model, schema=SCHEMA, trace=found)
    walked.save(tmp_path / "post.nc")
    for each in (walked, Posterior.load(tmp_path / "post.nc")):
        panels = each.plot_trace(path=tmp_path / "trace.png").axes
        shown = {axes.get_ylabel(): axes.get_lines()[0].get_ydata()[-1] for axes in panels}
        for axes in panels:
            texts = axes.get_legend().get_texts() if axes.get_legend() else []
            shown |= {
                text.get_text(): line.get_ydata()[-1]
                for text, line in zip(texts, axes.get_lines(), strict=False)
            }
        assert shown["age"] == pytest.approx(post.draws["age"][2], rel=1e-4)
        assert shown["Intercept"] == pytest.approx(post.draws["Intercept"][2], rel=1e-4)
        assert shown["sigma"] == pytest.approx(post.draws["sigma"][2], rel=1e-4)


# Reports


def test_a_report_is_in_units_and_asks_a_question(fits, tmp_path):
    fits["ill"].report(
        tmp_path,
        units={"age": 5},
        settings={
            "method": "Scoring(num_steps=7)",
            "notes": {"purpose": "<b>Falls</b>", "approval": "2026-117"},
        },
    )
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    title = "How does ill depend on age, dose, ward and sex?"
    assert f"<h1>{title}</h1>" in page
    assert text.startswith(f"# {title}")
    top = page[: page.index("<h2>")]
    for said in ("90% credible intervals", "&lt;b&gt;Falls", "2026-117"):
        assert said in top
    assert "ill ~ age" not in top
    for said in ("per 5 years", "odds ratio", "age 58 years", "divided by a public scale"):
        assert said in page
        assert said in text
    folded = re.findall(r"<details>.*?</details>", page, re.DOTALL)
    assert any("Scoring(num_steps=7)" in each for each in folded)
    assert "Scoring(num_steps=7)" not in re.sub(
        r"<details>.*?</details>", "", page, flags=re.DOTALL
    )
    assert "A, B; anything else is other" in page  # levels, not how many there are
    assert "ill ~ age" in page


def test_notes_that_are_not_a_mapping_are_refused(fits, tmp_path):
    with pytest.raises(InvalidArgument, match="notes"):
        fits["ill"].report(tmp_path, settings={"notes": "purpose"})


@pytest.mark.parametrize(
    ("mean", "sd", "said"),
    [
        (0.0296, 0.0005, "1.030 [1.029, 1.031]"),
        (0.4, 0.2, "1.49 [1.07, 2.07]"),
        (-8.0, 1.0, "0.000335 [6.47e-05, 0.00174]"),
    ],
)
def test_a_ratio_has_digits_that_tell_its_ends_apart(mean, sd, said):
    ends = mean - 1.645 * sd, mean + 1.645 * sd
    summary = Summary(
        lines=(SummaryLine("x", mean, sd, *ends, is_ratio=True),), level=0.9, ratio="odds ratio"
    )
    assert said in str(summary)
