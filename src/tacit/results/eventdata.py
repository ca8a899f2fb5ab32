"""Events as plain data, so that a saved statement can be checked later."""

import math
from collections.abc import Mapping
from typing import Any

import attrs
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from tacit.accounting import events
from tacit.errors import InvalidArgument

_KINDS: dict[str, type[DpEvent]] = {
    name: kind
    for module in (dp_event, events)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, DpEvent)
}


def to_data(event: DpEvent) -> dict[str, Any]:
    """An event as nested dictionaries that JSON can hold.

    >>> to_data(events.sampled_gaussian(2.0, 0.5))["event"]
    {'kind': 'GaussianDpEvent', 'noise_multiplier': 2.0}
    """
    fields = {name: _plain(value) for name, value in attrs.asdict(event, recurse=False).items()}
    return {"kind": type(event).__name__, **fields}


def from_data(data: Mapping[str, Any]) -> DpEvent:
    """The event that `to_data` wrote."""
    try:
        fields = {name: _restored(value) for name, value in data.items() if name != "kind"}
        return _KINDS[data["kind"]](**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"This version of Tacit does not know this event: {error!r}."
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return to_data(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):  # NumPy's too; JSON has no infinity
        return float(value) if math.isfinite(value) else str(value)
    return value if isinstance(value, bool) else int(value)


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return from_data(value)
    if isinstance(value, list):
        return tuple(_restored(each) for each in value)
    return float(value) if isinstance(value, str) else value
