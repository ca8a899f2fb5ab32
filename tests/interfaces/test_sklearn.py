"""Estimators: scikit-learn's conventions where they are safe, and no spending unasked."""

import copy
import pickle
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.errors import BudgetError, ForecastWarning, InvalidArgument

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator,
    estimator_checks_generator,
)

# Fits here are far too short.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = tacit.Variational(num_steps=5, sampling_rate=1.0)
RAW = {"preprocessing": "none"}
FREE = {"bounds": (-4, 4), "method": QUICK, **RAW}
# What scikit-learn asks for and privacy forbids: whether an error is raised would tell.
AGAINST_PRIVACY = {
    "check_dtype_object": "a cell that is no number counts as the middle of its bounds",
    "check_estimators_empty_data_messages": "how many rows there are, also none, is private",
    "check_supervised_y_no_nan": "a row whose target is missing is left out, silently",
}
# With classes="from data" the labels are read, and an empty or odd set of them is an error.
CLASSIFIER_FAILS = {"check_dtype_object"}
SOME_CHECKS = {
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_requires_y_none",
    "check_complex_data",
    "check_estimator_sparse_array",
    "check_set_params",
    "check_dtype_object",
}


def data(count=300, seed=0, features=2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, (count, features))
    score = 0.5 + 1.5 * x[:, 0] - x[:, 1]
    return x, score + rng.logistic(size=count) > 0, score + rng.normal(size=count)


def ledger(path, epsilon=100.0):
    return tacit.Ledger.new(path / "book.db", total=tacit.Budget(epsilon, 0.5))


def both(path):
    """The two estimators as scikit-learn's checks need them."""
    common = {"bounds": (-5, 5), "clones": "charge", "method": QUICK, **RAW}
    book = ledger(path, 1e6)
    return (
        tacit.PrivateBayesClassifier(classes="from data", ledger=book, **common),
        tacit.PrivateBayesRegressor(target_bounds=(-5, 5), ledger=book, **common),
    )


@pytest.mark.parametrize("which", [0, 1], ids=["classifier", "regressor"])
def test_some_of_scikit_learns_checks(which, tmp_path):
    estimator, ran = both(tmp_path)[which], set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each, check in estimator_checks_generator(estimator, legacy=True):
            name = getattr(check, "func", check).__name__
            if name in SOME_CHECKS:
                ran.add(name)
                if name in AGAINST_PRIVACY:
                    with pytest.raises(AssertionError):
                        check(each)
                else:
                    check(each)
    assert len(ran) >= 7


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["classifier", "regressor"])
def test_scikit_learns_checks_pass_but_for_what_privacy_forbids(which, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(both(tmp_path)[which], on_fail=None, on_skip=None)
    failed = {each["check_name"] for each in found if each["status"] == "failed"}
    assert failed == (set(AGAINST_PRIVACY), CLASSIFIER_FAILS)[which == 0]
    assert sum(each["status"] == "passed" for each in found) > 40


def test_a_classifier_learns_within_its_budget(tmp_path):
    x, y, _ = data(4000)
    book = ledger(tmp_path)
    model = tacit.PrivateBayesClassifier(
        epsilon=2, bounds=(-4, 4), classes=[False, True], ledger=book, **RAW
    ).fit(x, y)
    new, truth, _ = data(2000, seed=1)
    best = np.mean((0.5 + 1.5 * new[:, 0] - new[:, 1] > 0) == truth)
    assert model.score(new, truth) > best - 0.05
    chances = model.predict_proba(new)
    assert chances.shape == (2000, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert model.privacy_.is_private
    assert model.privacy_.budget_left == book.left
    assert book.left.epsilon == pytest.approx(98)


@pytest.mark.slow
def test_a_classifier_of_three_classes_with_bounds_of_their_own():
    x, _, score = data(3000)
    label = np.array(["low", "middle", "up"])[np.digitize(score, [-2, 2])]
    scales = np.array([1.0, 1000.0])
    model = tacit.PrivateBayesClassifier(
        epsilon=4,
        bounds=([-4, -4000], [4, 4000]),
        classes=["low", "middle", "up"],
        random_state=0,
        **RAW,
    ).fit(x * scales, label)
    assert list(model.classes_) == ["low", "middle", "up"]
    assert np.mean(model.predict(x * scales) == label) > 0.7  # 0.4 without looking
    assert not model.privacy_.is_private  # a seed was given


@pytest.mark.slow
def test_a_regressor_learns_and_knows_how_sure_it_is():
    x, _, y = data(4000)
    model = tacit.PrivateBayesRegressor(
        epsilon=2,
        bounds=(-4, 4),
        target_bounds=(-15, 15),
        random_state=0,
        **RAW,
    ).fit(x, y)
    new, _, truth = data(2000, seed=1)
    means, deviations = model.predict(new, return_std=True)
    np.testing.assert_array_equal(means, model.predict(new))
    assert model.score(new, truth) > 0.8
    within = np.mean(np.abs(truth - means) < 2 * deviations)
    assert within > 0.9  # 0.95 if the noise, of one, were known
    assert deviations.mean() < 1.5
    assert 0.8 < model.posterior_.mean()["noise"] < 1.3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bounds": None}, "bounds"),
        ({"bounds": (1, -1)}, "below"),
        ({"bounds": ([0, 0, 0], [1, 1, 1])}, "2 features"),
        ({"bounds": (0, np.inf)}, "finite"),
        ({"bounds": 3}, "bounds"),
        ({"classes": None}, "classes"),
        ({"classes": "yes"}, "classes"),
        ({"classes": [1]}, "two classes"),
        ({"preprocessing": None}, "StandardScaler"),
        ({"preprocessing": "scaled"}, "rows come to fit as they were recorded"),
        ({"ledger": "book.db"}, "Ledger"),
        ({"clones": "maybe"}, "clones"),
        ({"epsilon": -1}, "epsilon"),
        ({"prior_scale": 0}, "prior_scale"),
    ],
)
def test_what_is_not_declared_is_refused_before_anything_is_charged(arguments, words, tmp_path):
    x, y, _ = data(60)
    book = ledger(tmp_path)
    given = {**FREE, "classes": [0, 1], "ledger": book} | arguments
    with pytest.raises(InvalidArgument, match=words):
        tacit.PrivateBayesClassifier(**given).fit(x, y)
    assert not book.charges


def test_all_that_is_missing_is_asked_for_at_once():
    x, y, _ = data(60)
    for estimator, own in (
        (tacit.PrivateBayesClassifier, "classes="),
        (tacit.PrivateBayesRegressor, "target_bounds="),
    ):
        with pytest.raises(InvalidArgument) as refused:
            estimator().fit(x, y)
        for words in ("bounds=(low, high)", "preprocessing=", own, "ledger="):
            assert words in str(refused.value)


def test_coefficients_are_named_and_in_the_units_of_the_features():
    x, y, score = data(300)
    table = pd.DataFrame(x * [1, 1000] + [0, 5000], columns=["age", "dose"])
    common = {**RAW, "bounds": ([-4, 1000], [4, 9000]), "random_state": 0, "epsilon": 50}
    found = tacit.PrivateBayesRegressor(target_bounds=(-15, 15), **common).fit(table, score)
    assert list(found.feature_names_in_) == ["age", "dose"]
    assert found.coef_ == pytest.approx([1.5, -0.001], rel=0.3)
    by_hand = found.intercept_ + table.to_numpy().clip(*common["bounds"]) @ found.coef_
    assert found.predict(table) == pytest.approx(by_hand, rel=1e-6)
    summary = {line.name: line.mean for line in found.posterior_.summary().lines}
    assert summary["coefficients[dose]"] == pytest.approx(found.coef_[1])
    assert summary["intercept"] == pytest.approx(found.intercept_)
    classes = tacit.PrivateBayesClassifier(classes=[False, True], **common).fit(table, y)
    assert classes.coef_.shape == (1, 2)
    assert classes.intercept_.shape == (1,)
    assert classes.coef_[0, 0] > 0 > classes.coef_[0, 1]
    assert "coefficients[age]" in str(classes.posterior_.summary())


def test_a_regressor_needs_bounds_of_its_target():
    x, _, y = data(60)
    with pytest.raises(InvalidArgument, match="target_bounds"):
        tacit.PrivateBayesRegressor(**FREE).fit(x, y)
    with pytest.raises(NotFittedError):
        tacit.PrivateBayesRegressor(**FREE).predict(x)


def same(one, other):
    for name, draws in one.posterior_.draws.items():
        np.testing.assert_array_equal(draws, other.posterior_.draws[name])


def test_bad_cells_follow_the_rule_silently():
    """As NaN, so the middle of the bounds; as infinite, so the bound; as text, so its number."""
    x, y, _ = data(60)

    def fitted(x, y):
        return tacit.PrivateBayesClassifier(classes=[0, 1], random_state=0, **FREE).fit(x, y)

    plain, bad = x.copy(), x.astype(object)
    plain[:5, 0] = 0.0, 4.0, -4.0, 0.0, 2.5
    bad[:5, 0] = np.nan, np.inf, -1e300, "not a number", "2.5"
    same(fitted(plain, y), fitted(bad, y))
    labels = y.astype(object)
    labels[:3] = "unheard of", None, {"a": 1}
    left = fitted(x, labels)
    assert np.isfinite(left.predict_proba(bad)).all()
    numbers = np.where(y, 1.0, 0.0)
    numbers[:3] = np.nan, 7, 0.5
    same(left, fitted(x, numbers))  # the same three rows are left out


def test_an_empty_table_fits_the_prior():
    empty = tacit.PrivateBayesClassifier(classes=[0, 1], **FREE).fit(np.empty((0, 2)), [])
    assert np.isfinite(empty.predict_proba([[0.0, 1.0]])).all()
    regressor = tacit.PrivateBayesRegressor(target_bounds=(0, 1), **FREE)
    assert np.isfinite(regressor.fit(np.empty((0, 2)), []).predict([[0.0, 1.0]])).all()


def test_an_error_of_shape_does_not_tell_how_many_rows_there_are():
    x, y, _ = data(137)
    with pytest.raises(InvalidArgument) as caught:
        tacit.PrivateBayesClassifier(classes=[0, 1], **FREE).fit(x, y[:-1])
    assert "13" not in str(caught.value)


CELL = 3.140625
WRONG_FORMS = {
    "one dimension": (np.full(137, CELL), np.ones(137)),
    "three dimensions": (np.full((137, 2, 2), CELL), np.ones(137)),
    "complex": (np.full((137, 2), CELL + 1j), np.ones(137)),
    "lists of unlike lengths": ([[CELL]] * 136 + [[CELL, 2]], np.ones(137)),
    "no features": (np.empty((137, 0)), np.ones(137)),
    "targets of two columns": (np.zeros((137, 2)), np.full((137, 2), CELL)),
    "complex targets": (np.zeros((137, 2)), np.full(137, CELL + 1j)),
    "targets of unlike lengths": (np.zeros((137, 2)), [[CELL]] * 136 + [[1, 2]]),
}


@pytest.mark.parametrize("form", WRONG_FORMS)
def test_an_error_of_form_tells_no_cell_and_no_count(form, tmp_path):
    """scikit-learn's own words for some of these print the array."""
    x, y = WRONG_FORMS[form]
    for estimator in both(tmp_path):
        with pytest.raises(InvalidArgument) as caught:
            estimator.fit(x, y)
        text = "".join(traceback.format_exception(caught.value))
        assert "3.14" not in text
        assert "137" not in str(caught.value)
        assert not estimator.ledger.charges


def test_a_wrong_form_of_new_rows_tells_no_cell():
    x, y, _ = data(60)
    fitted = tacit.PrivateBayesClassifier(classes=[0, 1], **FREE).fit(x, y)
    for form in ("one dimension", "complex", "lists of unlike lengths"):
        with pytest.raises(InvalidArgument) as caught:
            fitted.predict(WRONG_FORMS[form][0])
        assert "3.14" not in str(caught.value)


def test_the_statement_says_what_was_read_and_what_is_missing():
    x, y, _ = data(60)
    read = tacit.PrivateBayesClassifier(classes="from data", **FREE).fit(x, y)
    declared = tacit.PrivateBayesClassifier(classes=[False, True], **FREE).fit(x, y)
    assert "labels that occur in the data" in str(read.privacy_)
    assert "labels that occur in the data" not in str(declared.privacy_)
    assert "no ledger: nothing limits" in str(declared.privacy_)
    assert read.posterior_.privacy == read.privacy_
    assert declared.privacy_.is_private


def test_a_pipeline_is_fitted_only_if_somebody_answers_for_its_steps(tmp_path):
    """A scaler learns exact means of the rows: it is seen in a pipeline, and elsewhere it must be declared."""
    x, y, _ = data(60)
    book = ledger(tmp_path)
    given = {**FREE, "ledger": book, "classes": [0, 1]}
    for unsaid in (None, ["none"]):
        silent = tacit.PrivateBayesClassifier(**{**given, "preprocessing": unsaid})
        with pytest.raises(InvalidArgument, match=r"StandardScaler.*bounds.*private_scales"):
            make_pipeline(StandardScaler(), silent).fit(x, y)
    raw = tacit.PrivateBayesClassifier(**{**given, "preprocessing": "none"})
    kept = make_pipeline("passthrough", StandardScaler())
    for several in (make_pipeline(StandardScaler(), raw), make_pipeline(kept, "passthrough", raw)):
        with pytest.raises(InvalidArgument, match=r"changed them: (StandardScaler|Pipeline)\."):
            several.fit(x, y)
    nested = make_pipeline(FunctionTransformer(), make_pipeline(StandardScaler(), raw))
    with pytest.raises(InvalidArgument, match="changed them: FunctionTransformer, StandardScaler"):
        nested.fit(x, y)
    assert not book.charges
    public = FrozenEstimator(StandardScaler().fit(data(60, seed=9)[0]))
    answered = tacit.PrivateBayesClassifier(**{**given, "preprocessing": "public"})
    statement = make_pipeline(public, answered).fit(x, y)[-1].privacy_
    assert "before fit is set by public facts" in str(statement)
    assert "scaler in a pipeline, is not covered and voids the guarantee" in str(statement)
    assert "Steps of the pipeline: FrozenEstimator." in str(statement)
    assert statement == tacit.PrivacyStatement.from_json(statement.to_json())
    wrong = make_pipeline(FunctionTransformer(), StandardScaler(), answered).fit(x, y)[-1].privacy_
    assert "FunctionTransformer, StandardScaler, fitted to these rows." in str(wrong)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_every_statement_says_that_steps_before_are_not_covered(kind):
    x, y, score = data(60)
    if kind == "classifier":
        model = tacit.PrivateBayesClassifier(classes=[0, 1], **FREE).fit(x, y)
    else:
        model = tacit.PrivateBayesRegressor(target_bounds=(-15, 15), **FREE).fit(x, score)
    statement = model.privacy_
    assert str(statement).startswith("Declared by whoever called fit, and not checked: rows came")
    registered = statement.to_registry()
    for said in (str(statement), statement._repr_html_(), str(registered)):
        assert "rows came to fit as they were recorded" in said
        assert "A step that was fitted to these rows" in said
    page = statement._repr_html_()
    assert page.index("not checked") < page.index("epsilon")
    assert model.posterior_.privacy.declared == statement.declared


def test_nothing_fitted_holds_rows_and_it_can_be_pickled():
    frame = pd.DataFrame(data(337)[0], columns=["age", "dose"])
    model = tacit.PrivateBayesRegressor(target_bounds=(-15, 15), **FREE).fit(frame, data(337)[2])
    assert list(model.feature_names_in_) == ["age", "dose"]
    kept = pickle.dumps(model)
    fewer = tacit.PrivateBayesRegressor(target_bounds=(-15, 15), **FREE)
    fewer.fit(frame.iloc[:60], data(337)[2][:60])
    # Nothing grows with the rows, of which there are 277 more: not by one byte for each.
    assert abs(len(kept) - len(pickle.dumps(fewer))) < 277
    again = pickle.loads(kept)  # noqa: S301
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.privacy_ == model.privacy_


# Searches: a clone is fitted for every candidate and fold.


def test_a_copied_ledger_is_the_same_book(tmp_path):
    book = ledger(tmp_path)
    x, y, _ = data(60)
    for copied in (copy.deepcopy(book), copy.copy(book), pickle.loads(pickle.dumps(book))):  # noqa: S301
        model = tacit.PrivateBayesClassifier(
            bounds=(-4, 4), classes=[0, 1], ledger=copied, method=QUICK, **RAW
        )
        model.fit(x, y)
    assert len(book.charges) == 3
    assert book.left.epsilon == pytest.approx(97)


def test_searches_and_cross_validation_do_not_spend_unless_told_to(tmp_path):
    x, y, _ = data(60)
    book = ledger(tmp_path)
    model = tacit.PrivateBayesClassifier(**{**FREE, "ledger": book}, classes=[0, 1])
    search = GridSearchCV(model, {"prior_scale": [1, 2]}, cv=2)
    before = FunctionTransformer(lambda _: pytest.fail("the step before was fitted"))
    # scikit-learn would wrap an error of `fit` into a ValueError that blames the model's settings.
    for attempt in (
        lambda: clone(model),
        lambda: search.fit(x, y),
        lambda: cross_val_score(model, x, y, cv=2),
        lambda: cross_val_score(make_pipeline(before, model), x, y, cv=2),
    ):
        with pytest.raises(BudgetError, match=r"^Searches.*epsilon 1 at delta 1e-6.*clones="):
            attempt()
    late = clone(model.set_params(clones="charge")).set_params(clones="refuse")
    with pytest.raises(BudgetError, match="Searches"):
        late.fit(x, y)
    model.set_params(clones="refuse")
    assert not book.charges
    # A pipeline fits the estimator itself, once.
    make_pipeline("passthrough", model).fit(x, y)
    assert len(book.charges) == 1
    free = clone(model.set_params(ledger=None, clones="charge"))
    with pytest.raises(BudgetError, match=r"need a tacit\.Ledger"):
        free.fit(x, y)


def test_a_search_that_may_spend_is_stopped_by_the_ledger(tmp_path):
    x, y, _ = data(60)
    book = ledger(tmp_path, epsilon=3.5)
    model = tacit.PrivateBayesClassifier(
        bounds=(-4, 4), classes=[0, 1], ledger=book, clones="charge", method=QUICK, **RAW
    )
    search = GridSearchCV(
        model, {"prior_scale": [1, 2]}, cv=2, refit=False
    )  # four fits of one each
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        search.fit(x, y)
    assert len(book.charges) == 3
    assert sum(each.epsilon for each in book.charges) <= 3.5
    assert np.isnan(search.cv_results_["mean_test_score"]).any()


@pytest.mark.slow
def test_a_budget_that_is_too_small_is_told_before_the_charge(tmp_path):
    x, y, _ = data(60)
    book = ledger(tmp_path)
    model = tacit.PrivateBayesClassifier(
        epsilon=0.05, bounds=(-4, 4), classes=[0, 1], ledger=book, size=60, **RAW
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecastWarning)
        with pytest.raises(ForecastWarning, match="hopeless"):
            model.fit(x, y)
    assert not book.charges


def test_it_says_whether_it_converged_and_what_intervals_include():
    x, y, _ = data()
    short = tacit.PrivateBayesClassifier(classes=[False, True], **FREE)
    with pytest.warns(ConvergenceWarning, match="DID NOT CONVERGE"):
        short.fit(x, y)
    assert short.converged_ is False
    assert short.intervals_ == "noise not included"
    assert short.posterior_.intervals == short.intervals_


@pytest.mark.slow
def test_what_the_page_shows_runs(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs" / "start" / "sklearn.md"
    blocks = re.findall(r"```python exec.*\n([\s\S]*?)```", page.read_text("utf-8"))
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {}
    exec("\n".join(blocks), names)  # noqa: S102
    said = capsys.readouterr().out
    assert "but this pipeline has changed them: StandardScaler" in said
    assert "before fit is set by public facts" in said
    assert 'set a ledger with clones="charge"' in said
    assert len(names["ledger"].charges) == 2
    alone, private = (float(each) for each in re.findall(r"\]\] (0\.\d+)", said))
    assert private == pytest.approx(alone, abs=0.03)


@pytest.mark.slow
@pytest.mark.processes
def test_importing_tacit_does_not_import_scikit_learn():
    code = "import sys, tacit; tacit.fit; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
