"""Kaplan-Meier curves of a look: against curves computed row by row, and how often intervals contain them under noise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.errors import InvalidArgument

RNG = np.random.default_rng(11)
ROWS = 3000
ARM, WARD = RNG.choice(["x", "y"], ROWS), RNG.choice(list("pqr"), ROWS, p=[0.6, 0.3, 0.1])
UNTIL = RNG.exponential(np.where(ARM == "x", 20, 40))
CENSORED = RNG.uniform(0, 80, ROWS)
TABLE = pd.DataFrame(
    {
        "months": np.minimum(np.minimum(UNTIL, CENSORED), 60),
        "died": (UNTIL <= CENSORED) & (UNTIL < 60),
        "arm": ARM,
        "ward": WARD,
    }
)
QUARTERS = TABLE.assign(months=(TABLE["months"] // 6).astype(int))
OTHERS = {
    "died": tacit.Binary(),
    "arm": tacit.Category(["y", "x"]),  # not in alphabetical order
    "ward": tacit.Category(["p", "q", "r"]),
}
NEARLY_EXACT = tacit.Budget(1e4, 1e-6)


def looked(table, time, tables=(("months", "died", "ward", "arm"),), budget=NEARLY_EXACT):
    schema = tacit.Schema({"months": time, **OTHERS})
    return tacit.explore(table, schema=schema, tables=list(tables), budget=budget)


@pytest.fixture(scope="module")
def counted():
    return looked(QUARTERS, tacit.Count(10))


def curve(table, times, *, at_once=True):
    """The product over the times of events, at or before each time, of those who survived it among those at risk."""
    months, died = table["months"].to_numpy(), table["died"].to_numpy()
    found = []
    for time in times:
        counts = np.unique(months[died & ((months <= time) if at_once else (months < time))])
        shares = [1 - (died & (months == t)).sum() / (months >= t).sum() for t in counts]
        found.append(np.prod(shares))
    return np.array(found)


def test_a_curve_of_counts_is_that_of_the_rows(counted):
    found = counted.survival("months", "died")
    assert found["time"].tolist() == list(range(11))
    assert found["value"].to_numpy() == pytest.approx(curve(QUARTERS, range(11)), abs=1e-3)
    # Nothing happens between two counts.
    between = counted.survival("months", "died", times=[2, 2.9, 0.5, 10])
    expected = curve(QUARTERS, [2, 2, 0, 10])
    assert between["time"].tolist() == [2, 2.9, 0.5, 10]
    assert between["value"].to_numpy() == pytest.approx(expected, abs=1e-3)
    assert (between["upper"] - between["lower"]).max() < 0.01


@pytest.mark.parametrize("by", [["ward", "arm"], ["arm", "ward"]])
def test_curves_of_groups_are_those_of_their_rows(counted, by):
    found = counted.survival("months", "died", by=by).set_index(by)
    for group, rows in QUARTERS.groupby(by):
        own = found.loc[group]
        assert own["value"].to_numpy() == pytest.approx(curve(rows, own["time"]), abs=0.01)
    nobody = found.loc[("missing", "missing")]
    assert nobody["value"].isna().all()
    assert (nobody["lower"].eq(0) & nobody["upper"].eq(1)).all()


def test_in_bins_of_numbers_the_interval_has_room_for_who_was_censored_first():
    """Also with events at the edges of bins, which count after them."""
    whole = TABLE.assign(months=np.ceil(TABLE["months"]))
    for table in (TABLE, whole):
        found = looked(table, tacit.Number(0, 60)).survival("months", "died")
        own = found[found["time"] < 60]
        expected = curve(table, own["time"], at_once=False)
        assert own["value"].to_numpy() == pytest.approx(expected, abs=0.02)
        assert (own["lower"] - 1e-3 <= expected).all()
        assert (expected <= own["upper"] + 1e-3).all()


def test_intervals_contain_the_noise(counted):
    """Nine times in ten at each time; where too few are left for the noise, there is no estimate."""
    exact, noise = counted.estimates, 4.0
    expected, hits = curve(QUARTERS, range(11)), []
    for _ in range(200):
        noisy = exact.released + RNG.normal(0, noise, exact.released.shape)
        own = replace(exact, released=noisy, noise_std=noise)
        _, lower, upper = own.survival("months", "died")
        hits.append((lower[1:] <= expected) & (expected <= upper[1:]))
    assert 0.85 < np.mean(hits) < 0.95
    values, lower, upper = replace(own, noise_std=400.0).survival("months", "died")
    known = ~np.isnan(values)
    assert known[0]
    assert not known[-1]
    assert (lower[~known] == 0).all()
    assert (upper[~known] == upper[known].min()).all()


def test_what_a_curve_cannot_be_made_of_is_refused(counted):
    for wrong in ([11], [-0.5], [float("nan")], 5, "ab"):
        with pytest.raises(InvalidArgument, match="times must be numbers between 0 and 10"):
            counted.survival("months", "died", times=wrong)
    for pair in (("died", "months"), ("months", "arm")):
        with pytest.raises(InvalidArgument, match="and a binary event"):
            counted.survival(*pair)
    with pytest.raises(InvalidArgument, match="No table of months, died"):
        looked(QUARTERS, tacit.Count(10), ["months", "died"]).survival("months", "died")
