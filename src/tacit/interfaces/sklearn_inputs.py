"""Checks and scaling of the arrays that scikit-learn passes, each row by itself."""

import inspect
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d

from tacit.errors import InvalidArgument


def limits(
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


def scaled(
    numbers: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Clips numbers to [low, high] and maps this to [-1, 1]. NaN stays NaN."""
    scaled: NDArray[np.float64] = (np.clip(numbers, low, high) - low) / (high - low) * 2 - 1
    return scaled


def target_of(estimator: object, y: ArrayLike | None) -> NDArray[Any]:
    """Targets as a one-dimensional array."""
    if y is None:
        raise InvalidArgument(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    found = _array("y", y)
    if found.ndim != 1 and found.shape[1:] != (1,):
        raise InvalidArgument("y should be a 1d array: pass one target for each row.")
    target: NDArray[Any] = column_or_1d(found, warn=True)
    return target


def refuse_form(features: ArrayLike) -> None:
    """Raises if features have a wrong shape. scikit-learn's own messages contain cells and counts."""
    if not issparse(features):  # sparse ones are refused by their type
        shape = _array("X", features).shape
        if len(shape) != 2:
            raise InvalidArgument(
                f"Expected 2D array, got {len(shape)}D array instead. Reshape your data: a row for each "
                "unit and a column for each feature."
            )
        if shape[1] == 0:
            raise InvalidArgument(
                "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
            )


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be an array, or lists of one length.") from None
    if array.dtype.kind == "c":
        raise InvalidArgument("Complex data not supported.")
    return array


def refuse_unequal(features: NDArray[Any], target: NDArray[Any]) -> None:
    """Raises if the numbers of rows and targets differ, without telling them: they are private."""
    if len(features) != len(target):
        raise InvalidArgument("X and y must have the same number of rows; pass a target for each.")


def codes_of(target: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
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
