"""The base class of the scikit-learn estimators: declared arguments, the ledger, clones, and checks of arrays."""

import inspect
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_random_state, column_or_1d, get_tags
from sklearn.utils.validation import validate_data

from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.fit import fit as private_fit
from tacit.data.cells import Cells, read_numbers
from tacit.data.columns import Kind, Number
from tacit.data.schema import Schema
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.method import Method
from tacit.models.jax_model import Model
from tacit.results.posterior import Posterior
from tacit.results.summary import CONVERGENCE_SENTENCES


def check_bounds(
    name: str, bounds: tuple[ArrayLike, ArrayLike] | None, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high of each feature."""
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


def scale_to_bounds(
    numbers: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Clips numbers to [low, high] and maps this to [-1, 1]. NaN stays NaN."""
    scaled: NDArray[np.float64] = (np.clip(numbers, low, high) - low) / (high - low) * 2 - 1
    return scaled


def check_target(estimator: object, y: ArrayLike | None) -> NDArray[Any]:
    """Targets as a one-dimensional array."""
    if y is None:
        raise InvalidArgument(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    found = _as_array("y", y)
    if found.ndim != 1 and found.shape[1:] != (1,):
        raise InvalidArgument("y should be a 1d array: pass one target for each row.")
    target: NDArray[Any] = column_or_1d(found, warn=True)
    return target


def check_features(features: ArrayLike) -> None:
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


def _as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be an array, or lists of one length.") from None
    if array.dtype.kind == "c":
        raise InvalidArgument("Complex data not supported.")
    return array


def check_same_length(features: NDArray[Any], target: NDArray[Any]) -> None:
    """Raises if the numbers of rows and targets differ, without telling them: they are private."""
    if len(features) != len(target):
        raise InvalidArgument("X and y must have the same number of rows; pass a target for each.")


def label_codes(target: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Positions of labels among the classes, each by itself; NaN for any other label."""
    places = {label: float(place) for place, label in enumerate(classes.tolist())}
    codes = np.full(len(target), np.nan)
    for row, label in enumerate(target.tolist()):
        if isinstance(label, str | int | float):
            codes[row] = places.get(label, np.nan)
    return codes


def steps_before(estimator: object) -> list[Any]:
    """The steps that changed the rows in the pipelines that are fitting an estimator, first ones first.

    A pipeline tells its last step nothing of the others. So the pipelines are those among the callers.
    """
    found: list[Any] = []
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


NO_LEDGER = "no ledger"
# An estimator sees the steps of a pipeline that calls it, and nothing else that was done to rows: somebody
# has to answer for that. Values outside the bounds would tell of it, too, but an error because of a value would
# be a release that nobody has paid for.
_PREPROCESSING = {
    "none": "rows came to fit as they were recorded",
    "public": "what was done to rows before fit is set by public facts, each row by itself",
}
_DECLARATION = (
    "Declared by whoever called fit, and not checked: {before}. A step that was fitted to these rows, such "
    "as a scaler in a pipeline, is not covered and voids the guarantee.{seen}"
)


# A dataclass, because scikit-learn wants an __init__ that names every argument and only stores it.
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateBayes(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: arguments, the ledger, and clones."""

    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    preprocessing: Literal["none", "public"] | None = None
    ledger: Ledger | Literal["no ledger"] | None = None
    clones: Literal["refuse", "charge"] = "refuse"
    prior_scale: float = 1.0
    method: Method | None = None
    size: int | None = None
    random_state: int | RandomState | None = None

    _is_clone = False

    def __sklearn_clone__(self) -> Self:
        """A copy to be fitted anew, which knows that it is one.

        It is refused here and not only when it is fitted: a search would fit the other steps of a
        pipeline first, and wrap the error into one of its own.
        """
        if self.clones == "refuse":
            raise BudgetError(self._about_clones())
        copied: Self = super().__sklearn_clone__()
        copied._is_clone = True
        return copied

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        tags.target_tags.required = True
        return tags

    def _read(self, features: ArrayLike, *, reset: bool) -> NDArray[np.float64]:
        """Features scaled to [-1, 1] by their bounds, each cell by itself; NaN where missing."""
        check_features(features)
        least = {"ensure_min_samples": 0} if reset else {}
        array = validate_data(
            self, features, reset=reset, dtype=None, ensure_all_finite=False, **least
        )
        if array.dtype.kind in "SU":
            array = array.astype(object)
        low, high = check_bounds("bounds", self.bounds, array.shape[1])
        numbers = read_numbers(Cells(array, shape=array.shape[1:]), array.shape[1:])
        return scale_to_bounds(numbers, low, high)

    def _refuse(self) -> None:
        """Says what must be declared before anything is read or charged."""
        if self.bounds is None:
            raise InvalidArgument(
                "Declare bounds=(low, high) of the features, as numbers or arrays; they are public, and "
                "must not come from the data."
            )
        if self.preprocessing not in tuple(_PREPROCESSING):
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
        steps = ", ".join(type(step).__name__ for step in steps_before(self))
        if steps and self.preprocessing == "none":
            raise InvalidArgument(
                f'preprocessing="none" says that rows come to fit as they were recorded, but this pipeline has '
                f"changed them: {steps}. Leave these steps out, since the bounds already scale the features; "
                'or declare preprocessing="public" if each is defined by public facts and acts on each row by '
                "itself. Nothing was charged."
            )

    def _about_clones(self) -> str:
        """Why clones are refused, and how to allow them."""
        return (
            "Searches, cross-validation and ensembles make a clone for every fit, and each fit costs "
            f"epsilon {self.epsilon:g} at delta {self.delta:g}; nothing was spent. To allow it, set a "
            'ledger with clones="charge", which charges every fit until the ledger\'s budget is spent.'
        )

    def _refuse_clone(self) -> None:
        """Raises unless clones may be fitted and there is a ledger to charge."""
        cost = f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        if self.clones == "refuse":  # set after it was cloned
            raise BudgetError(self._about_clones())
        if not isinstance(self.ledger, Ledger):
            raise BudgetError(
                f"Fits of clones cost {cost} each and need a tacit.Ledger to be charged to; nothing "
                "was spent."
            )

    def _fit(
        self, model: Model, features: NDArray[np.float64], target: NDArray[Any], kind: Kind
    ) -> Posterior:
        """Fits a model of the columns ``features`` and ``target``, and charges the ledger."""
        check_same_length(features, target)
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
            ledger=self.ledger if isinstance(self.ledger, Ledger) else None,
            seed=seed,
        )

    def _keep(self, posterior: Posterior, public: tuple[str, ...] = ()) -> None:
        """Keeps a posterior, and warns if the fit did not converge."""
        steps = steps_before(self)
        seen = f" Steps of the pipeline: {', '.join(map(_describe_step, steps))}." if steps else ""
        before = _PREPROCESSING[str(self.preprocessing)]
        statement = replace(
            posterior.privacy,
            public=(*posterior.privacy.public, *public),
            declared=_DECLARATION.format(before=before, seen=seen),
        )
        self.posterior_ = replace(posterior, privacy=statement, model=None, schema=None)
        self.privacy_ = statement
        self.converged_ = posterior.converged
        self.intervals_ = posterior.intervals
        if posterior.converged is False:
            sentences = " ".join([CONVERGENCE_SENTENCES[False], *posterior.said])
            warnings.warn(sentences, ConvergenceWarning, stacklevel=3)


def _describe_step(step: Any) -> str:
    """The class of a step of a pipeline, and whether scikit-learn has just fitted it."""
    stays = isinstance(step, FrozenEstimator) or not get_tags(step).requires_fit
    return type(step).__name__ if stays else f"{type(step).__name__}, fitted to these rows"
