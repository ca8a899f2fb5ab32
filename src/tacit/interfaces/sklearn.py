"""Estimators for scikit-learn: generalised linear models of arrays, within a privacy budget.

What scikit-learn would learn from the data is declared instead: bounds of the features, the
classes, bounds of the target, the preprocessing, and the ledger that every fit is charged to.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.data.cells import Cells, read_numbers
from tacit.data.columns import Count, Number
from tacit.data.schema import Schema
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.base import Method
from tacit.interfaces.fit import fit as private_fit
from tacit.models.arrays import gaussian, in_own_units, logistic, softmax
from tacit.models.model import Model
from tacit.results.posterior import Posterior
from tacit.results.wording import CONVERGED

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

    from tacit.interfaces.sklearn_inputs import (
        codes_of,
        limits,
        refuse_form,
        refuse_unequal,
        scaled,
        target_of,
    )
except ImportError as error:
    raise ImportError(
        "The estimators need scikit-learn 1.6 or later; pip install 'tacit[sklearn]'."
    ) from error

FROM_DATA, NO_LEDGER = "from data", "no ledger"
_LABELS_READ = "the labels that occur in the data, which were read from them"
# An estimator cannot see the steps before it in a pipeline; it can make somebody answer for them.
_BEFORE = {
    "none": "rows came to fit as they were recorded",
    "public": "what was done to rows before fit is set by public facts, each row by itself",
}
_VOIDS = (
    "as was declared: a step that was fitted to them, such as a scaler in a pipeline, is not covered "
    "and voids this"
)
# Numbers that a block of predictions may take of memory.
_MOST = 2**22


class _PrivateBayes(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: arguments, the ledger, and clones."""

    epsilon: float
    delta: float
    bounds: Any
    preprocessing: str | None
    ledger: Ledger | str | None
    clones: str
    prior_scale: float
    method: Method | None
    random_state: Any

    _is_clone = False

    def __sklearn_clone__(self) -> Self:
        """A copy to be fitted anew, which knows that it is one."""
        copied: Self = super().__sklearn_clone__()
        copied._is_clone = True
        return copied

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        tags.target_tags.required = True
        return tags

    def _read(self, features: Any, *, reset: bool) -> NDArray[np.float64]:
        """Features between -1 and 1 by their bounds, each cell by itself; a gap is the middle."""
        refuse_form(features)
        least = {"ensure_min_samples": 0} if reset else {}
        array = validate_data(
            self, features, reset=reset, dtype=None, ensure_all_finite=False, **least
        )
        if array.dtype.kind in "SU":
            array = array.astype(object)
        low, high = limits("bounds", self.bounds, array.shape[1])
        numbers = read_numbers(Cells(array, shape=array.shape[1:]), array.shape[1:])
        return np.nan_to_num(scaled(numbers, low, high), nan=0.0)

    def _refuse(self) -> None:
        """Says what must be declared before anything is read or charged."""
        if self.bounds is None:
            raise InvalidArgument(
                "Declare bounds=(low, high) of the features, as numbers or arrays; they are public, and "
                "must not come from the data."
            )
        if self.preprocessing not in tuple(_BEFORE):
            raise InvalidArgument(
                'Declare what was done to the rows before fit: preprocessing="none", or "public" if every '
                "step is defined by public facts and acts on each row by itself. A step that is fitted to "
                "these rows, such as StandardScaler, would reveal them outside the budget. The bounds "
                "already scale the features, and tacit.private_scales learns scales within a budget."
            )
        if self.ledger is None:
            raise InvalidArgument(
                "Pass the ledger to charge: ledger=tacit.Ledger(path), or "
                f"ledger={NO_LEDGER!r} to run without one."
            )
        if not isinstance(self.ledger, Ledger) and self.ledger != NO_LEDGER:
            raise InvalidArgument(f"ledger must be a tacit.Ledger or {NO_LEDGER!r}.")
        if self.clones not in ("refuse", "charge"):
            raise InvalidArgument('clones must be "refuse" or "charge".')
        if self._is_clone:
            self._refuse_clone()

    def _refuse_clone(self) -> None:
        cost = f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        if self.clones == "refuse":
            raise BudgetError(
                "This is a clone: searches, cross-validation and ensembles make one for every fit, and "
                f"each fit costs {cost}; nothing was spent. To allow it, set a ledger with "
                'clones="charge", which charges every fit until the ledger\'s budget is spent.'
            )
        if not isinstance(self.ledger, Ledger):
            raise BudgetError(
                f"Fits of clones cost {cost} each and need a tacit.Ledger to be charged to; nothing "
                "was spent."
            )

    def _fit(
        self, model: Model, columns: dict[str, Any], schema: Schema, method: Method | None
    ) -> Posterior:
        seed = None
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return private_fit(
            model,
            columns,
            schema=schema,
            budget=Budget(self.epsilon, self.delta),
            method=method,
            ledger=self.ledger if isinstance(self.ledger, Ledger) else None,
            seed=seed,
        )

    def _keep(self, posterior: Posterior, public: tuple[str, ...] = ()) -> None:
        before = f"{_BEFORE[str(self.preprocessing)]}, {_VOIDS}"
        statement = replace(
            posterior.privacy,
            public=(*posterior.privacy.public, *public),
            assumptions=(*posterior.privacy.assumptions, before),
        )
        self.posterior_ = replace(posterior, privacy=statement, model=None, schema=None)
        self.privacy_ = statement
        self.converged_ = posterior.converged
        self.intervals_ = posterior.intervals
        if posterior.converged is False:
            sentences = " ".join([CONVERGED[False], *posterior.said])
            warnings.warn(sentences, ConvergenceWarning, stacklevel=3)


class PrivateBayesClassifier(ClassifierMixin, _PrivateBayes):  # type: ignore[misc]
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
            the statement repeats it.
        ledger: A `tacit.Ledger`, which every fit is charged to in full, or ``"no ledger"``.
            Required.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features scaled
            to [-1, 1].
        method: Settings of one of Tacit's methods.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`.
        privacy_: The privacy statement.
        classes_: The labels.
        converged_: Whether the fit converged, or None if the method cannot tell.
        intervals_: Whether the intervals of ``posterior_`` account for the privacy noise.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        classes: Sequence[Any] | Literal["from data"] | None = None,
        preprocessing: Literal["none", "public"] | None = None,
        ledger: Ledger | Literal["no ledger"] | None = None,
        clones: Literal["refuse", "charge"] = "refuse",
        prior_scale: float = 2.5,
        method: Method | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.preprocessing = preprocessing
        self.ledger = ledger
        self.clones = clones
        self.prior_scale = prior_scale
        self.method = method
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's names)
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
        target = target_of(self, y)
        features = self._read(X, reset=True)
        refuse_unequal(features, target)
        classes = self._declared(target)
        model_of = logistic if len(classes) == 2 else softmax
        model = model_of(features.shape[1], len(classes), float(self.prior_scale))
        schema = Schema(
            {
                "features": Number(-1, 1, shape=(features.shape[1],)),
                "target": Count(len(classes) - 1),
            }
        )
        columns = {"features": features, "target": codes_of(target, classes)}
        posterior = self._fit(model, columns, schema, self.method)
        self.classes_ = classes
        self._keep(posterior, (_LABELS_READ,) if _said_from_data(self.classes) else ())
        return self

    def _declared(self, target: NDArray[Any]) -> NDArray[Any]:
        if self.classes is None:
            raise InvalidArgument(
                "Declare classes=[...], the labels; or classes='from data' to read them from the data, "
                "which reveals a label that occurs in only one row."
            )
        if _said_from_data(self.classes):
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

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Posterior predictive probabilities of the classes.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of shape [rows, classes].
        """
        check_is_fitted(self)
        features = self._read(X, reset=False)
        draws = self.posterior_.draws

        def chances(part: NDArray[np.float64]) -> NDArray[np.float64]:
            scores = _scores(part, draws)
            if scores.ndim == 2:  # two classes: one score
                yes = 1 / (1 + np.exp(-scores))
                return np.stack([1 - yes.mean(axis=0), yes.mean(axis=0)], axis=1)
            weights = np.exp(scores - scores.max(axis=2, keepdims=True))
            found: NDArray[np.float64] = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=0)
            return found

        return _in_blocks(features, chances, self.posterior_.num_draws * len(self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row.

        Args:
            X: Features, an array of shape [rows, features].

        Returns:
            An array of labels.
        """
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


class PrivateBayesRegressor(RegressorMixin, _PrivateBayes):  # type: ignore[misc]
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
            the statement repeats it.
        ledger: A `tacit.Ledger`, which every fit is charged to in full, or ``"no ledger"``.
            Required.
        clones: ``"refuse"``, or ``"charge"`` to let searches and cross-validation fit clones, each
            of which is charged to the ledger.
        prior_scale: Standard deviation of the normal prior of the coefficients, for features and targets
            scaled to [-1, 1].
        method: Settings of one of Tacit's methods.
        random_state: Makes a fit reproducible. The result is then not private.

    Attributes:
        posterior_: The `tacit.Posterior`.
        privacy_: The privacy statement.
        converged_: Whether the fit converged, or None if the method cannot tell.
        intervals_: Whether the intervals of ``posterior_`` account for the privacy noise.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bounds: tuple[float, float] | None = None,
        preprocessing: Literal["none", "public"] | None = None,
        ledger: Ledger | Literal["no ledger"] | None = None,
        clones: Literal["refuse", "charge"] = "refuse",
        prior_scale: float = 1.0,
        method: Method | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.preprocessing = preprocessing
        self.ledger = ledger
        self.clones = clones
        self.prior_scale = prior_scale
        self.method = method
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
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
        low, high = limits("target_bounds", self.target_bounds, 1)
        target = target_of(self, y)
        features = self._read(X, reset=True)
        refuse_unequal(features, target)
        numbers = read_numbers(Cells(target), ())
        size = features.shape[1]
        schema = Schema({"features": Number(-1, 1, shape=(size,)), "target": Number(-1, 1)})
        columns = {"features": features, "target": scaled(numbers, low[0], high[0])}
        posterior = self._fit(gaussian(size, float(self.prior_scale)), columns, schema, self.method)
        posterior = replace(
            posterior,
            draws=in_own_units(posterior.draws),
            unconstrained_mean=None,
            unconstrained_covariance=None,
        )
        self.limits_ = float(low[0]), float(high[0])
        self._keep(posterior)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """Posterior predictive means of the targets.

        Args:
            X: Features, an array of shape [rows, features].
            return_std: Whether to return standard deviations too. They account for the privacy
                noise only if ``intervals_`` says so.

        Returns:
            An array of means; with ``return_std``, a tuple of means and standard deviations.
        """
        check_is_fitted(self)
        features = self._read(X, reset=False)
        draws = self.posterior_.draws
        noise = np.mean(np.asarray(draws["noise"], np.float64) ** 2)

        def moments(part: NDArray[np.float64]) -> NDArray[np.float64]:
            scores = _scores(part, draws)
            return np.stack([scores.mean(axis=0), np.sqrt(scores.var(axis=0) + noise)], axis=1)

        found = _in_blocks(features, moments, self.posterior_.num_draws)
        low, high = self.limits_
        means = low + (found[:, 0] + 1) / 2 * (high - low)
        return (means, found[:, 1] / 2 * (high - low)) if return_std else means


def _said_from_data(classes: Any) -> bool:
    return isinstance(classes, str) and classes == FROM_DATA


def _scores(features: NDArray[np.float64], draws: Any) -> NDArray[np.float64]:
    """Linear predictors: [draws, rows], or [draws, rows, classes]."""
    slopes = np.asarray(draws["coefficients"], np.float64)
    intercept = np.asarray(draws["intercept"], np.float64)
    scores: NDArray[np.float64] = np.einsum("nf,df...->dn...", features, slopes)
    return scores + intercept[:, None]


def _in_blocks(features: NDArray[np.float64], function: Any, per_row: int) -> NDArray[np.float64]:
    size = max(1, _MOST // per_row)
    starts = range(0, max(len(features), 1), size)
    return np.concatenate([function(features[start : start + size]) for start in starts])
