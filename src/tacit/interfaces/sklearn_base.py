"""What the scikit-learn estimators share: declarations, the ledger, clones, and reading features."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from attrs import evolve
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, check_random_state, get_tags
from sklearn.utils.validation import validate_data

from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.data.cells import Cells, read_numbers
from tacit.data.columns import Kind, Number
from tacit.data.schema import Schema
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.base import Method
from tacit.interfaces.fit import fit as private_fit
from tacit.interfaces.sklearn_inputs import (
    limits,
    refuse_form,
    refuse_unequal,
    scaled,
    steps_before,
)
from tacit.models.model import Model
from tacit.results.posterior import Posterior
from tacit.results.wording import CONVERGED

NO_LEDGER = "no ledger"
# An estimator sees the steps of a pipeline that calls it, and nothing else that was done to rows: somebody
# has to answer for that. Values outside the bounds would tell of it, too, but an error because of a value would
# be a release that nobody has paid for.
_BEFORE = {
    "none": "rows came to fit as they were recorded",
    "public": "what was done to rows before fit is set by public facts, each row by itself",
}
_DECLARED = (
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
        refuse_form(features)
        least = {"ensure_min_samples": 0} if reset else {}
        array = validate_data(
            self, features, reset=reset, dtype=None, ensure_all_finite=False, **least
        )
        if array.dtype.kind in "SU":
            array = array.astype(object)
        low, high = limits("bounds", self.bounds, array.shape[1])
        numbers = read_numbers(Cells(array, shape=array.shape[1:]), array.shape[1:])
        return scaled(numbers, low, high)

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
        refuse_unequal(features, target)
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
        seen = f" Steps of the pipeline: {', '.join(map(_described, steps))}." if steps else ""
        before = _BEFORE[str(self.preprocessing)]
        statement = evolve(
            posterior.privacy,
            public=(*posterior.privacy.public, *public),
            declared=_DECLARED.format(before=before, seen=seen),
        )
        self.posterior_ = evolve(posterior, privacy=statement, model=None, schema=None)
        self.privacy_ = statement
        self.converged_ = posterior.converged
        self.intervals_ = posterior.intervals
        if posterior.converged is False:
            sentences = " ".join([CONVERGED[False], *posterior.said])
            warnings.warn(sentences, ConvergenceWarning, stacklevel=3)


def _described(step: Any) -> str:
    """The class of a step of a pipeline, and whether scikit-learn has just fitted it."""
    stays = isinstance(step, FrozenEstimator) or not get_tags(step).requires_fit
    return type(step).__name__ if stays else f"{type(step).__name__}, fitted to these rows"
