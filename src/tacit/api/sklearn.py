"""Estimators for scikit-learn: generalised linear models of arrays, within a privacy budget.

What scikit-learn would learn from the data is declared instead: bounds of the features, the
classes, bounds of the target, the preprocessing, and the ledger that every fit is charged to.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from tacit._format import format_number
from tacit._typing import Floats
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.fit import fit as private_fit
from tacit.data.cells import Cells, read_numbers
from tacit.data.columns import Binary, Category, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import BudgetError, InvalidArgument, MissingPackage
from tacit.inference.method import Method
from tacit.models.jax_model import (
    Model,
    classification_model,
    regression_model,
    unscale_regression_draws,
)
from tacit.results.posterior import Posterior
from tacit.results.summary import CONVERGENCE_SENTENCES

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline
    from sklearn.utils import Tags, check_random_state, column_or_1d, get_tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # an older scikit-learn lacks some of these names
    raise MissingPackage("sklearn", "This module (scikit-learn 1.6 or later)") from error

# Labels or cells of any type, as a user passes them.
Cell = np.generic

# An estimator sees the steps of a pipeline that calls it, but nothing else that was done to the rows, so the user has
# to declare it. Values outside the bounds would show it, too, but an error that depends on a value would be a release
# that is not charged.
_PREPROCESSING = {
    "none": "rows came to fit as they were recorded",
    "public": "what was done to rows before fit is set by public facts, each row by itself",
}
_DECLARATION = (
    "Declared by whoever called fit, and not checked: {before}. A step that was fitted to these rows, such "
    "as a scaler in a pipeline, is not covered and voids the guarantee.{seen}"
)
FROM_DATA = "from data"
_LABELS_FROM_DATA = "the labels that occur in the data, which were read from them"
_MAX_BLOCK_NUMBERS = 2**22  # numbers in one block of predictions, to limit memory


# A dataclass, because scikit-learn wants an __init__ that names every argument and only stores it.
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayes(BaseEstimator):  # type: ignore[misc]
    """The base class of both estimators: arguments, checks of what is declared, the ledger, and clones."""

    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    preprocessing: Literal["none", "public"] | None = None
    ledger: Ledger | None = None
    clones: Literal["refuse", "charge"] = "refuse"
    prior_scale: float = 1.0
    method: Method | str | None = None
    size: int | None = None
    random_state: int | RandomState | None = None

    _is_clone = False

    def __sklearn_clone__(self) -> Self:
        """A copy to be fitted anew, which knows that it is one.

        It is refused here and not only when it is fitted: a search would fit the other steps of a
        pipeline first, and wrap the error into one of its own.
        """
        if self.clones == "refuse":
            raise BudgetError(self._clone_message())
        copied: Self = super().__sklearn_clone__()
        copied._is_clone = True
        return copied

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        tags.target_tags.required = True
        return tags

    def _scale_features(self, features: ArrayLike, *, reset: bool) -> Floats:
        """Features scaled to [-1, 1] by their bounds, each cell by itself; NaN where missing."""
        _check_features(features)
        least = {"ensure_min_samples": 0} if reset else {}
        array = validate_data(
            self, features, reset=reset, dtype=None, ensure_all_finite=False, **least
        )
        if array.dtype.kind in "SU":
            array = array.astype(object)
        low, high = _check_bounds("bounds", self.bounds, array.shape[1])
        numbers = read_numbers(Cells(array, shape=array.shape[1:]), array.shape[1:])
        return scale_to_bounds(numbers, low, high)

    def _clip_features(self, features: ArrayLike) -> Floats:
        """Features of new rows within their bounds; the middle where one is missing."""
        low, high = _check_bounds("bounds", self.bounds, self.n_features_in_)
        scaled = np.nan_to_num(self._scale_features(features, reset=False), nan=0.0)
        return np.asarray(low + (scaled + 1) / 2 * (high - low))

    def _in_user_units(
        self,
        posterior: Posterior,
        target: tuple[float, float] = (-1.0, 1.0),
        classes: Sequence[str] = (),
    ) -> Posterior:
        """A posterior for features and targets as they were passed, its coefficients named by features.

        ``coefficients`` are per one of a feature, and the intercept is where all features are zero, as
        ``coef_`` and ``intercept_`` are.
        """
        low, high = _check_bounds("bounds", self.bounds, self.n_features_in_)
        wide = (target[1] - target[0]) / 2
        draws = {name: np.asarray(each, np.float64) for name, each in posterior.draws.items()}
        shape = (-1, *[1] * (draws["coefficients"].ndim - 2))
        slopes = wide * draws["coefficients"] / ((high - low) / 2).reshape(shape)
        level = (target[0] + target[1]) / 2 + wide * draws["intercept"]
        draws["intercept"] = level - np.einsum("f,df...->d...", (low + high) / 2, slopes)
        draws["coefficients"] = slopes
        if "noise" in draws:
            draws["noise"] = wide * draws["noise"]
        names = getattr(self, "feature_names_in_", None)
        listed = [f"x{i}" for i in range(len(low))] if names is None else list(map(str, names))
        axes = [[str(each) for each in classes]] if len(classes) > 2 else []
        labels = {"coefficients": [listed, *axes], **({"intercept": axes} if axes else {})}
        return replace(
            posterior,
            draws=draws,
            labels=labels,
            unconstrained_mean=None,
            unconstrained_covariance=None,
        )

    def _missing_declarations(self) -> list[str]:
        """What is not declared, each in words."""
        found = []
        if self.bounds is None:
            found.append(
                "bounds=(low, high) of the features, as numbers or arrays, which are public and must not come "
                "from the data"
            )
        if self.preprocessing not in tuple(_PREPROCESSING):
            found.append(
                'preprocessing="none" if rows come to fit as they were recorded, or "public" if every step before '
                "is defined by public facts and acts on each row by itself (a step that is fitted to these rows, "
                "such as StandardScaler, would reveal them outside the budget; the bounds already scale the features, "
                "and tacit.private_scales learns scales within a budget)"
            )
        return found

    def _check_declarations(self) -> None:
        """Raises if something is not declared, before anything is read or charged."""
        if missing := self._missing_declarations():
            book = " Pass ledger= as well, to limit how often the data are used."
            said = f"Declare {'; and '.join(missing)}."
            raise InvalidArgument(said + (book if self.ledger is None else ""))
        if not isinstance(self.ledger, Ledger | None):
            raise InvalidArgument(
                "ledger must be a tacit.Ledger(path), or None to fit without one."
            )
        if self.clones not in ("refuse", "charge"):
            raise InvalidArgument('clones must be "refuse" or "charge".')
        if self._is_clone:
            self._check_clone()
        steps = ", ".join(type(step).__name__ for step in steps_before(self))
        if steps and self.preprocessing == "none":
            raise InvalidArgument(
                f'preprocessing="none" says that rows come to fit as they were recorded, but this pipeline has '
                f"changed them: {steps}. Leave these steps out, since the bounds already scale the features; "
                'or declare preprocessing="public" if each is defined by public facts and acts on each row by '
                "itself. Nothing was charged."
            )

    def _clone_message(self) -> str:
        """Why clones are refused, and how to allow them."""
        return (
            "Searches, cross-validation and ensembles make a clone for every fit, and each fit costs "
            f"epsilon {self.epsilon:g} at delta {format_number(self.delta)}; nothing was spent. To allow it, set a "
            'ledger with clones="charge", which charges every fit until the ledger\'s budget is spent.'
        )

    def _check_clone(self) -> None:
        """Raises unless clones may be fitted and there is a ledger to charge."""
        cost = f"epsilon {self.epsilon:g} at delta {format_number(self.delta)}"
        if self.clones == "refuse":  # set after it was cloned
            raise BudgetError(self._clone_message())
        if not isinstance(self.ledger, Ledger):
            raise BudgetError(
                f"Fits of clones cost {cost} each and need a tacit.Ledger to be charged to; nothing "
                "was spent."
            )

    def _fit(self, model: Model, features: Floats, target: NDArray[Cell], kind: Kind) -> Posterior:
        """Fits a model of the columns ``features`` and ``target``, and charges the ledger."""
        if len(features) != len(target):  # without these numbers, which are private
            raise InvalidArgument(
                "X and y must have the same number of rows; pass a target for each."
            )
        # A missing feature counts as the middle of its bounds.
        columns = Number(-1, 1, shape=features.shape[1:], missing=0.0)
        seed = None
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return private_fit(
            model,
            {"features": features, "target": target},
            schema=Schema({"features": columns, "target": kind}),
            budget=Budget(self.epsilon, self.delta),
            method=self.method,
            size=self.size,
            ledger=self.ledger,
            seed=seed,
            progress=False,
        )

    def _store(self, posterior: Posterior, public: tuple[str, ...] = ()) -> None:
        """Sets the fitted attributes, and warns if the fit did not converge."""
        steps = steps_before(self)
        seen = f" Steps of the pipeline: {', '.join(map(_describe_step, steps))}." if steps else ""
        before = _PREPROCESSING[str(self.preprocessing)]
        statement = replace(
            posterior.privacy,
            public=(*posterior.privacy.public, *public),
            declared=_DECLARATION.format(before=before, seen=seen),
        )
        self.posterior_ = replace(posterior, privacy=statement, model=None, schema=None)
        means = posterior.mean()
        # As scikit-learn has them: a row for each class, or one for two classes; no rows for a regression.
        self.coef_, self.intercept_ = means["coefficients"].T, means["intercept"]
        self.privacy_ = statement
        self.converged_ = posterior.converged
        self.intervals_ = posterior.intervals
        if posterior.converged is False:
            sentences = " ".join([CONVERGENCE_SENTENCES[False], *posterior.messages])
            warnings.warn(sentences, ConvergenceWarning, stacklevel=3)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayesClassifier(ClassifierMixin, PrivateBayes):  # type: ignore[misc]
    """Bayesian logistic or softmax regression within a privacy budget.

    A fit that did not converge warns with scikit-learn's ``ConvergenceWarning``.

    Args:
        epsilon: Epsilon of each fit.
        delta: Delta of each fit.
        bounds: (low, high) of the features: two numbers, or two arrays with one value per feature.
            They are public and must not come from the data. Values outside are clipped; a missing
            or non-numeric value counts as the middle of its bounds.
        classes: The labels. Rows with any other label are left out. ``"from data"`` reads the
            labels from the data, and the statement says so.
        preprocessing: What was done to the rows before `fit`, including earlier steps of a
            pipeline: ``"none"``, or ``"public"`` if every step is defined by public facts and acts
            on each row by itself. A step that is fitted to the rows voids the guarantee. Required;
            the statement begins with it. ``"none"`` is refused in a pipeline with other steps.
        ledger: A `tacit.Ledger`, which every fit is charged to in full. With None, nothing limits how
            often the data are used, and the statement says so.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features scaled
            to [-1, 1].
        method: One of Tacit's methods by name, or its settings.
        size: About how many rows there are, a public number that is not counted in the data. Settings
            are chosen for it.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`, whose coefficients are named by features and are per one of a
            feature.
        coef_: Posterior means of the coefficients, [1 or classes, features].
        intercept_: Posterior means of the intercepts, where all features are zero.
        privacy_: The privacy statement.
        classes_: The labels.
        feature_names_in_: Names of the features, if they were passed in a data frame.
        converged_: Whether the fit converged, or None if the method cannot tell.
        intervals_: Whether the intervals of ``posterior_`` account for the privacy noise.
    """

    classes: Sequence[object] | NDArray[Cell] | Literal["from data"] | None = None
    prior_scale: float = 2.5

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803 (scikit-learn's names)
        """Fits the model to private rows and charges the ledger.

        Args:
            X: Features, an array of shape [rows, features].
            y: Labels, one per row.

        Returns:
            The estimator.

        Raises:
            InvalidArgument: If a required declaration is missing, or a type or shape is wrong.
                Nothing is charged.
            BudgetError: If this is a clone that must not be fitted, or the ledger refuses the
                charge.
        """
        self._check_declarations()
        target = _check_target(self, y)
        features = self._scale_features(X, reset=True)
        classes = self._find_classes(target)
        count = len(classes)
        model = classification_model(features.shape[1], count, float(self.prior_scale))
        kind = Binary() if count == 2 else Category(range(count))
        posterior = self._fit(model, features, _label_codes(target, classes), kind)
        self.classes_ = classes
        posterior = self._in_user_units(posterior, classes=classes.tolist())
        self._store(posterior, (_LABELS_FROM_DATA,) if _reads_labels(self.classes) else ())
        if count == 2:
            self.coef_, self.intercept_ = self.coef_[None], np.atleast_1d(self.intercept_)
        return self

    def _missing_declarations(self) -> list[str]:
        """What is not declared, each in words."""
        labels = (
            "classes=[...], the labels, or classes='from data' to read them from the data, which reveals a "
            "label that occurs in only one row"
        )
        return [*super()._missing_declarations(), *([labels] if self.classes is None else [])]

    def _find_classes(self, target: NDArray[Cell]) -> NDArray[Cell]:
        """The declared classes, sorted, or those that occur in the targets."""
        if _reads_labels(self.classes):
            check_classification_targets(target)
            classes = np.unique(target)
        elif isinstance(self.classes, str):
            raise InvalidArgument(f"classes must be a list of labels or {FROM_DATA!r}.")
        else:
            classes = np.unique(np.asarray(self.classes))
        if len(classes) < 2:
            raise InvalidArgument(
                f"A classifier needs two classes or more; got {len(classes)} class."
            )
        return classes

    def predict_proba(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Posterior predictive probabilities of the classes.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of shape [rows, classes].
        """
        check_is_fitted(self)
        features, draws = self._clip_features(X), self.posterior_.draws

        def chances(part: Floats) -> Floats:
            scores = _linear_predictors(part, draws)
            if scores.ndim == 2:  # two classes: one score
                yes = 1 / (1 + np.exp(-scores))
                return np.stack([1 - yes.mean(axis=0), yes.mean(axis=0)], axis=1)
            weights = np.exp(scores - scores.max(axis=2, keepdims=True))
            found: Floats = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=0)
            return found

        return _predict_in_blocks(features, chances, self.posterior_.num_draws * len(self.classes_))

    def predict(self, X: ArrayLike) -> NDArray[Cell]:  # noqa: N803
        """The most probable class of each row.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of labels.
        """
        check_is_fitted(self)
        labels: NDArray[Cell] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayesRegressor(RegressorMixin, PrivateBayes):  # type: ignore[misc]
    """Bayesian linear regression with normal errors, within a privacy budget.

    Args:
        epsilon: Epsilon of each fit.
        delta: Delta of each fit.
        bounds: (low, high) of the features: two numbers, or two arrays with one value per feature.
            They are public and must not come from the data. Values outside are clipped; a missing
            or non-numeric value counts as the middle of its bounds.
        target_bounds: (low, high) of the target. They are public and must not come from the data.
            Targets outside are clipped; rows without a target are left out.
        preprocessing: What was done to the rows before `fit`, including earlier steps of a
            pipeline: ``"none"``, or ``"public"`` if every step is defined by public facts and acts
            on each row by itself. A step that is fitted to the rows voids the guarantee. Required;
            the statement begins with it. ``"none"`` is refused in a pipeline with other steps.
        ledger: A `tacit.Ledger`, which every fit is charged to in full. With None, nothing limits how
            often the data are used, and the statement says so.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features and targets
            scaled to [-1, 1].
        method: One of Tacit's methods by name, or its settings.
        size: About how many rows there are, a public number that is not counted in the data. Settings
            are chosen for it.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`, whose coefficients are named by features and are per one of a
            feature.
        coef_: Posterior means of the coefficients, one for each feature.
        intercept_: Posterior mean of the intercept, where all features are zero.
        privacy_: The privacy statement.
        feature_names_in_: Names of the features, if they were passed in a data frame.
        converged_: Whether the fit converged, or None if the method cannot tell.
        intervals_: Whether the intervals of ``posterior_`` account for the privacy noise.
    """

    target_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Fits the model to private rows and charges the ledger.

        Args:
            X: Features, an array of shape [rows, features].
            y: Targets, one per row.

        Returns:
            The estimator.

        Raises:
            InvalidArgument: If a required declaration is missing, or a type or shape is wrong.
                Nothing is charged.
            BudgetError: If this is a clone that must not be fitted, or the ledger refuses the
                charge.
        """
        self._check_declarations()
        low, high = _check_bounds("target_bounds", self.target_bounds, 1)
        target = _check_target(self, y)
        features = self._scale_features(X, reset=True)
        model = regression_model(features.shape[1], float(self.prior_scale))
        kind = Number(float(low[0]), float(high[0]), scaled=True)
        posterior = self._fit(model, features, target, kind)
        posterior = replace(posterior, draws=unscale_regression_draws(posterior.draws))
        self._store(self._in_user_units(posterior, (float(low[0]), float(high[0]))))
        return self

    def _missing_declarations(self) -> list[str]:
        """What is not declared, each in words."""
        bounds = "target_bounds=(low, high) of the target, which must not come from the data either"
        return [*super()._missing_declarations(), *([bounds] if self.target_bounds is None else [])]

    def predict(
        self,
        X: ArrayLike,  # noqa: N803
        return_std: bool = False,
    ) -> Floats | tuple[Floats, Floats]:
        """Posterior predictive means of the targets.

        Args:
            X: Features, an array of shape [rows, features].
            return_std: Whether to return standard deviations too. They account for the privacy
                noise only if ``intervals_`` says so.

        Returns:
            An array of means; with ``return_std``, a tuple of means and standard deviations.
        """
        check_is_fitted(self)
        features, draws = self._clip_features(X), self.posterior_.draws
        noise = np.mean(np.asarray(draws["noise"], np.float64) ** 2)

        def moments(part: Floats) -> Floats:
            scores = _linear_predictors(part, draws)
            return np.stack([scores.mean(axis=0), np.sqrt(scores.var(axis=0) + noise)], axis=1)

        found = _predict_in_blocks(features, moments, self.posterior_.num_draws)
        return (found[:, 0], found[:, 1]) if return_std else found[:, 0]


def _check_bounds(
    name: str, bounds: tuple[ArrayLike, ArrayLike] | None, size: int
) -> tuple[Floats, Floats]:
    """The lower and upper bound of each feature."""
    try:
        both = () if bounds is None else bounds
        low, high = (np.broadcast_to(np.asarray(each, np.float64), (size,)) for each in both)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{name} must be (low, high), each a number or one for each of the {size} features."
        ) from error
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise InvalidArgument(f"{name} must be finite, with every low below its high.")
    return low, high


def scale_to_bounds(numbers: Floats, low: Floats, high: Floats) -> Floats:
    """Clips numbers to [low, high] and maps this to [-1, 1]. NaN stays NaN."""
    scaled: Floats = (np.clip(numbers, low, high) - low) / (high - low) * 2 - 1
    return scaled


def _check_target(estimator: object, y: ArrayLike | None) -> NDArray[Cell]:
    """Targets as a one-dimensional array."""
    if y is None:
        raise InvalidArgument(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    found = _as_array("y", y)
    if found.ndim != 1 and found.shape[1:] != (1,):
        raise InvalidArgument("y should be a 1d array: pass one target for each row.")
    target: NDArray[Cell] = column_or_1d(found, warn=True)
    return target


def _check_features(features: ArrayLike) -> None:
    """Raises if features have a wrong shape. scikit-learn's own messages contain cells and counts."""
    if not issparse(features):  # sparse ones are refused by their type
        shape = _as_array("X", features).shape
        if len(shape) != 2:
            raise InvalidArgument(
                f"Expected 2D array, got {len(shape)}D array instead. Reshape your data: a row for each "
                "unit and a column for each feature."
            )
        if shape[1] == 0:
            raise InvalidArgument(
                "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
            )


def _as_array(name: str, values: ArrayLike) -> NDArray[Cell]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be an array, or lists of one length.") from None
    if array.dtype.kind == "c":
        raise InvalidArgument("Complex data not supported.")
    return array


def _label_codes(target: NDArray[Cell], classes: NDArray[Cell]) -> Floats:
    """The index of each label among the classes, by that label alone; NaN for other labels."""
    places = {label: float(place) for place, label in enumerate(classes.tolist())}
    codes = np.full(len(target), np.nan)
    for row, label in enumerate(target.tolist()):
        if isinstance(label, str | int | float):
            codes[row] = places.get(label, np.nan)
    return codes


def steps_before(estimator: object) -> list[BaseEstimator]:
    """The steps that changed the rows in the pipelines that are fitting an estimator, first ones first.

    A pipeline tells its last step nothing of the others. So the pipelines are those among the callers.
    """
    found: list[BaseEstimator] = []
    at_work, frame = {id(estimator)}, inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and id(caller) not in at_work:
            steps = [step for _, step in caller.steps]
            place = next((i for i, step in enumerate(steps) if id(step) in at_work), -1)
            changing = [
                step for step in steps[:place] if step is not None and not isinstance(step, str)
            ]
            found = changing + found
        at_work.add(id(caller))
        frame = frame.f_back
    return found


def _describe_step(step: BaseEstimator) -> str:
    """The class of a step of a pipeline, and whether scikit-learn has just fitted it."""
    stays = isinstance(step, FrozenEstimator) or not get_tags(step).requires_fit
    return type(step).__name__ if stays else f"{type(step).__name__}, fitted to these rows"


def _reads_labels(classes: object) -> bool:
    """Whether the labels should be read from the data."""
    return isinstance(classes, str) and classes == FROM_DATA


# Predictions are computed in NumPy: in double precision, and without compiling for each shape.
def _linear_predictors(features: Floats, draws: Mapping[str, NDArray[Cell]]) -> Floats:
    """Linear predictors: [draws, rows], or [draws, rows, classes]."""
    slopes = np.asarray(draws["coefficients"], np.float64)
    intercept = np.asarray(draws["intercept"], np.float64)
    scores: Floats = np.einsum("nf,df...->dn...", features, slopes)
    return scores + intercept[:, None]


def _predict_in_blocks(
    features: Floats,
    function: Callable[[Floats], Floats],
    per_row: int,
) -> Floats:
    """Predictions of blocks of rows, joined."""
    size = max(1, _MAX_BLOCK_NUMBERS // per_row)
    starts = range(0, max(len(features), 1), size)
    return np.concatenate([function(features[start : start + size]) for start in starts])
