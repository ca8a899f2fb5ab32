import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import ADJACENCIES, Budget
from tacit.errors import InvalidArgument

budgets = st.builds(
    Budget,
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 1e-6, 1e-5]),
    st.sampled_from(ADJACENCIES),
)


@given(budgets, budgets, budgets)
def test_is_a_partial_order(a, b, c):
    assert a <= a  # noqa: PLR0124
    assert not (a <= b and b <= a) or a == b
    assert not (a <= b and b <= c) or a <= c
    assert (a < b) == (a <= b and a != b)
    assert (a >= b) == (b <= a)
    assert (a > b) == (b < a)


def test_trading_epsilon_for_delta_is_not_comparable():
    assert not Budget(1, 1e-5) <= Budget(2, 1e-6)
    assert not Budget(2, 1e-6) <= Budget(1, 1e-5)


def test_adjacencies_are_not_comparable():
    assert not Budget(1, 0, "replace") <= Budget(5, 0, "add-remove")
    assert not Budget(1, 0, "add-remove") <= Budget(5, 0, "replace")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((-1.0,), "epsilon"),
        ((math.nan,), "epsilon"),
        ((math.inf,), "epsilon"),
        (("1",), "epsilon"),
        ((1.0, 1.0), "delta"),
        ((1.0, -1e-9), "delta"),
        ((1.0, math.nan), "delta"),
        ((1.0, 0.0, "swap"), "adjacency"),
    ],
)
def test_refuses_what_is_no_budget(arguments, word):
    with pytest.raises(InvalidArgument, match=word):
        Budget(*arguments)


def test_best_guess_runs_from_a_coin_to_certainty():
    assert Budget(0).best_guess == 0.5
    assert Budget(0, 0.5).best_guess == 0.75
    assert Budget(1e4).best_guess == pytest.approx(1)
    assert Budget(math.log(3)).best_guess == pytest.approx(0.75)


def test_explanation_never_understates():
    for epsilon in (0.01, 0.5, 1, 4, 8, 12):
        percent = float(Budget(epsilon, 1e-6).explain().split("most ")[1].split("%")[0])
        assert percent / 100 >= Budget(epsilon, 1e-6).best_guess
        assert percent <= 100
    assert "which of two records" in Budget(1, 0, "replace").explain()
