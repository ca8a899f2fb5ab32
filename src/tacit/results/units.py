"""Parameters in the units of the table, as a model's `tacit.models.reading.Reading` says."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import InvalidArgument
from tacit.models.reading import Reading, Units
from tacit.results.draws import Array, NamedDraws
from tacit.results.summary import Summary, summary_lines
from tacit.results.wording import trust

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

# A standard deviation that is a smaller part of the outcome's range needs tighter bounds; one that
# is so close to where the fit began may not have moved.
_SMALL, _CLOSE = 1 / 40, 0.15


def summarised(posterior: "Posterior", level: float, units: Units | None) -> Summary:
    """See `Posterior.summary`."""
    reading = posterior.reading
    asked = checked(reading, units)
    shown = in_units(posterior.draws, reading, asked)
    mixing = (posterior.effective_sizes(), posterior.r_hats()) if posterior.chain else ()
    cost = (posterior.privacy.headline,) if posterior.privacy.is_private else ()
    return Summary(
        lines=summary_lines(
            *(shown.mean(), shown.sd(), shown.interval(level), *mixing),
            labels=posterior.labels,
            meanings=meanings(reading, asked),
        ),
        level=level,
        warnings=posterior.warnings,
        trust=trust(level, posterior.intervals, posterior.converged),
        notes=(*notes(reading), *posterior.course, *cost),
        chain=posterior.chain,
        intervals=posterior.intervals,
        ratio=None if reading is None else reading.ratio,
    )


def checked(reading: Reading | None, units: Units | None) -> Units:
    """The units that were asked for; raises if the model says nothing of units, or of these."""
    if reading is not None:
        return reading.units(units)
    if units:
        raise InvalidArgument(
            "units are for models by formula; this posterior's model does not say what one unit is."
        )
    return {}


def in_units(draws: Mapping[str, Array], reading: Reading | None, units: Units) -> NamedDraws:
    """Draws in the units that are shown."""
    if reading is None:
        return NamedDraws(draws=draws)
    known = reading.parameters
    factors = {name: known[name].factor(units) for name in draws if name in known}
    scaled = {
        name: value if factors.get(name, 1.0) == 1 else value * np.asarray(factors[name])
        for name, value in draws.items()
    }
    return NamedDraws(draws=scaled)


def meanings(reading: Reading | None, units: Units) -> dict[str, tuple[str, bool, str]]:
    """For each parameter: what one unit is, whether it is a ratio, and where its prior is."""
    if reading is None:
        return {}
    return {
        name: (each.words(units), each.ratio, _prior_range(reading, name, units))
        for name, each in reading.parameters.items()
    }


def _prior_range(reading: Reading, name: str, units: Units) -> str:
    meaning = reading.parameters[name]
    prior = meaning.prior
    if prior is None:
        return ""
    if prior.low is None or prior.high is None:
        return prior.formula
    factor = meaning.factor(units)
    return f"{factor * prior.low:.3g} to {factor * prior.high:.3g}"


def notes(reading: Reading | None) -> tuple[str, ...]:
    """How to read the numbers: their scale, the reference, and the kinds of priors."""
    if reading is None:
        return ()
    found = [f"Coefficients are changes of {reading.scale}.{_about_ratio(reading)}"]
    if reading.reference:
        at = ", ".join(f"{each.column} {each.value}" for each in reading.reference)
        found.append(f"Reference: {at}.")
    found += [f"{name}: {each.note}." for name, each in reading.parameters.items() if each.note]
    kinds: dict[str, list[str]] = {}
    for name, each in reading.parameters.items():
        if each.prior is not None and each.prior.name:
            kinds.setdefault(each.prior.name, []).append(name)
    listed = "; ".join(f"{kind} for {', '.join(names)}" for kind, names in kinds.items())
    return (*found, *([f"Priors: {listed}."] if listed else []))


def _about_ratio(reading: Reading) -> str:
    if reading.ratio is None:
        return ""
    several = reading.ratio.replace("ratio", "ratios", 1)
    return f" Their exponentials are {several}, with intervals in brackets."


def about_bounds(posterior: "Posterior") -> tuple[str, ...]:
    """Whether the declared bounds of the outcome suit what was learnt. From released values only."""
    reading = posterior.reading
    if reading is None or reading.bounds is None:
        return ()
    spread = next((n for n, m in reading.parameters.items() if m.start is not None), None)
    if spread is None or spread not in posterior.draws:
        return ()
    low, high = reading.bounds
    start, found = reading.parameters[spread].start, float(np.mean(posterior.draws[spread]))
    range_ = f"the declared bounds of {reading.outcome}, {low:.4g} to {high:.4g}"
    if found < _SMALL * (high - low):
        text = (
            f"{spread} is {found:.3g}, a small part of {range_}. Bounds that are much wider than the "
            "outcomes cost precision: declare tighter ones if they are known without these data."
        )
        return (text,)
    if start is not None and abs(found / start - 1) < _CLOSE and not posterior.converged:
        text = (
            f"{spread} is {found:.3g}, about where the fit began ({start:.3g}, by {range_}), so it may "
            "never have moved. Declare tighter bounds if they are known without these data, or use "
            "tacit.Scoring()."
        )
        return (text,)
    return ()
