"""Estimators for scikit-learn: generalised linear models of arrays, within a privacy budget.

What scikit-learn would learn from the data is declared instead: bounds of the features, the
classes, bounds of the target, the preprocessing, and the ledger that every fit is charged to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.columns import Binary, Category, Number
from tacit.errors import InvalidArgument, MissingPackage
from tacit.models.jax_model import (
    classification_model,
    regression_model,
    unscale_regression_draws,
)

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils import Tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

    from tacit.api.sklearn_base import PrivateBayes, check_bounds, check_target, label_codes
except ImportError as error:  # an older scikit-learn lacks some of these names
    raise MissingPackage("sklearn", "This module (scikit-learn 1.6 or later)") from error

FROM_DATA = "from data"
_LABELS_FROM_DATA = "the labels that occur in the data, which were read from them"
_MAX_BLOCK_NUMBERS = 2**22  # numbers in one block of predictions, to limit memory


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
        ledger: A `tacit.Ledger`, which every fit is charged to in full, or ``"no ledger"``.
            Required.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features scaled
            to [-1, 1].
        method: Settings of one of Tacit's methods.
        size: About how many rows there are, a public number that is not counted in the data. Settings
            are chosen for it.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`.
        privacy_: The privacy statement.
        classes_: The labels.
        converged_: Whether the fit converged, or None if the method cannot tell.
        intervals_: Whether the intervals of ``posterior_`` account for the privacy noise.
    """

    classes: Sequence[Any] | NDArray[Any] | Literal["from data"] | None = None
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
        self._refuse()
        target = check_target(self, y)
        features = self._read(X, reset=True)
        classes = self._declared(target)
        count = len(classes)
        model = classification_model(features.shape[1], count, float(self.prior_scale))
        kind = Binary() if count == 2 else Category(range(count))
        posterior = self._fit(model, features, label_codes(target, classes), kind)
        self.classes_ = classes
        self._keep(posterior, (_LABELS_FROM_DATA,) if _reads_labels(self.classes) else ())
        return self

    def _declared(self, target: NDArray[Any]) -> NDArray[Any]:
        """The declared classes, sorted, or those that occur in the targets."""
        if self.classes is None:
            raise InvalidArgument(
                "Declare classes=[...], the labels; or classes='from data' to read them from the data, "
                "which reveals a label that occurs in only one row."
            )
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

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior predictive probabilities of the classes.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of shape [rows, classes].
        """
        check_is_fitted(self)
        features = np.nan_to_num(self._read(X, reset=False), nan=0.0)
        draws = self.posterior_.draws

        def chances(part: NDArray[np.float64]) -> NDArray[np.float64]:
            scores = _linear_predictors(part, draws)
            if scores.ndim == 2:  # two classes: one score
                yes = 1 / (1 + np.exp(-scores))
                return np.stack([1 - yes.mean(axis=0), yes.mean(axis=0)], axis=1)
            weights = np.exp(scores - scores.max(axis=2, keepdims=True))
            found: NDArray[np.float64] = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=0)
            return found

        return _predict_in_blocks(features, chances, self.posterior_.num_draws * len(self.classes_))

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of labels.
        """
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayesRegressor(RegressorMixin, PrivateBayes):  # type: ignore[misc]
    """Bayesian linear regression with normal errors, within a privacy budget.

    The coefficients and the error scale of ``posterior_`` refer to features and targets scaled to
    [-1, 1].

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
        ledger: A `tacit.Ledger`, which every fit is charged to in full, or ``"no ledger"``.
            Required.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features and targets
            scaled to [-1, 1].
        method: Settings of one of Tacit's methods.
        size: About how many rows there are, a public number that is not counted in the data. Settings
            are chosen for it.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`.
        privacy_: The privacy statement.
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
        self._refuse()
        if self.target_bounds is None:
            raise InvalidArgument(
                "Declare target_bounds=(low, high) of the target; they are public, and must not come "
                "from the data."
            )
        low, high = check_bounds("target_bounds", self.target_bounds, 1)
        target = check_target(self, y)
        features = self._read(X, reset=True)
        model = regression_model(features.shape[1], float(self.prior_scale))
        kind = Number(float(low[0]), float(high[0]), scaled=True)
        posterior = self._fit(model, features, target, kind)
        posterior = replace(
            posterior,
            draws=unscale_regression_draws(posterior.draws),
            unconstrained_mean=None,
            unconstrained_covariance=None,
        )
        self.limits_ = float(low[0]), float(high[0])
        self._keep(posterior)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:  # noqa: N803
        """Posterior predictive means of the targets.

        Args:
            X: Features, an array of shape [rows, features].
            return_std: Whether to return standard deviations too. They account for the privacy
                noise only if ``intervals_`` says so.

        Returns:
            An array of means; with ``return_std``, a tuple of means and standard deviations.
        """
        check_is_fitted(self)
        features = np.nan_to_num(self._read(X, reset=False), nan=0.0)
        draws = self.posterior_.draws
        noise = np.mean(np.asarray(draws["noise"], np.float64) ** 2)

        def moments(part: NDArray[np.float64]) -> NDArray[np.float64]:
            scores = _linear_predictors(part, draws)
            return np.stack([scores.mean(axis=0), np.sqrt(scores.var(axis=0) + noise)], axis=1)

        found = _predict_in_blocks(features, moments, self.posterior_.num_draws)
        low, high = self.limits_
        means = low + (found[:, 0] + 1) / 2 * (high - low)
        return (means, found[:, 1] / 2 * (high - low)) if return_std else means


def _reads_labels(classes: object) -> bool:
    """Whether the labels should be read from the data."""
    return isinstance(classes, str) and classes == FROM_DATA


# Predictions by hand: in double precision, and without a compilation for each call.
def _linear_predictors(
    features: NDArray[np.float64], draws: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Linear predictors: [draws, rows], or [draws, rows, classes]."""
    slopes = np.asarray(draws["coefficients"], np.float64)
    intercept = np.asarray(draws["intercept"], np.float64)
    scores: NDArray[np.float64] = np.einsum("nf,df...->dn...", features, slopes)
    return scores + intercept[:, None]


def _predict_in_blocks(
    features: NDArray[np.float64],
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    per_row: int,
) -> NDArray[np.float64]:
    """Predictions of blocks of rows, joined."""
    size = max(1, _MAX_BLOCK_NUMBERS // per_row)
    starts = range(0, max(len(features), 1), size)
    return np.concatenate([function(features[start : start + size]) for start in starts])
