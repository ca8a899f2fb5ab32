"""The least noise, the most steps or the largest sampling rate that a budget allows.

Every answer is checked with the accountant before it is returned, so none overshoots. The
search stops within a relative `TOLERANCE` of the best.
"""

import math
from collections.abc import Callable

from tacit import _validate
from tacit.accounting import events
from tacit.accounting.accountants import PLD, Accountant
from tacit.accounting.budget import Budget
from tacit.accounting.events import DpEvent
from tacit.errors import BudgetError, TheoremDoesNotHold

TOLERANCE = 1e-5
_MIN_NOISE, _MAX_NOISE = 1e-4, 1e9
_MIN_SAMPLING_RATE = 1e-12


def noise_multiplier(
    budget: Budget,
    *,
    sampling_rate: float = 1.0,
    num_steps: int = 1,
    accountant: Accountant | None = None,
) -> float:
    """The least noise multiplier for steps of Poisson-sampled Gaussian noise.

    Args:
        budget: The budget to meet.
        sampling_rate: The probability with which a unit is in the sample of a step.
        num_steps: The number of steps.
        accountant: The accountant; by default `PLD`.

    Returns:
        The noise standard deviation divided by the clip. Its cost never exceeds the budget.

    Raises:
        BudgetError: If no noise meets the budget, or the budget needs none.

    Examples:
        >>> s = noise_multiplier(Budget(1, 1e-5), sampling_rate=0.005, num_steps=2000)
        >>> bool(PLD().epsilon(events.sampled_gaussian(s, 0.005, 2000), 1e-5) <= 1)
        True
    """
    rate = _validate.rate("sampling_rate", sampling_rate)
    steps = _validate.count("num_steps", num_steps)
    # A first guess from the central limit theorem: mu = q sqrt(T (exp(1/s^2) - 1)).
    mu = approximate_mu(budget) / (2 if budget.adjacency == "replace" else 1)
    guess = 1 / math.sqrt(max(math.log1p((mu / rate) ** 2 / steps), 1e-30))
    return calibrate(
        lambda scale: events.sampled_gaussian(scale, rate, steps), budget, accountant, guess
    )


def calibrate(
    make_event: Callable[[float], DpEvent],
    budget: Budget,
    accountant: Accountant | None = None,
    guess: float = 1.0,
) -> float:
    """The least noise for which an event fits the budget.

    Args:
        make_event: The event as a function of the noise. More noise must cost less.
        budget: The budget to meet.
        accountant: The accountant; by default `PLD`.
        guess: Where the search begins.

    Returns:
        The noise. Its cost never exceeds the budget.

    Raises:
        BudgetError: If no noise meets the budget, or the budget needs none.
    """
    if budget.epsilon == 0:
        raise BudgetError("An epsilon of 0 allows no use of the data; pass a positive epsilon.")
    spend = _epsilon_function(make_event, budget, accountant)
    low = high = min(max(guess, _MIN_NOISE), _MAX_NOISE)
    at_low = at_high = spend(high)
    while at_high > budget.epsilon:
        low, high = high, high * _step_factor(at_high / budget.epsilon)
        if high > _MAX_NOISE:
            raise BudgetError(
                f"No amount of noise brings this run to {budget} with the "
                f"{(accountant or PLD()).name} accountant. {_hint(budget, accountant)}"
            )
        at_low, at_high = at_high, spend(high)
    while at_low <= budget.epsilon:
        low, high = low / _step_factor(budget.epsilon / max(at_low, 1e-300)), low
        if low < _MIN_NOISE:
            raise BudgetError(
                f"{budget} needs no noise at all: its delta is so large that showing anyone's record "
                "with that probability would be allowed. Choose a delta well below one over the "
                "number of people."
            )
        at_low, at_high = spend(low), at_low
    return _regula_falsi(spend, budget.epsilon, (low, at_low), (high, at_high))


def num_steps(
    budget: Budget,
    *,
    noise_multiplier: float,
    sampling_rate: float = 1.0,
    accountant: Accountant | None = None,
) -> int:
    """The largest number of steps of Poisson-sampled Gaussian noise that fit the budget.

    Args:
        budget: The budget to meet.
        noise_multiplier: The noise standard deviation divided by the clip.
        sampling_rate: The probability with which a unit is in the sample of a step.
        accountant: The accountant; by default `PLD`.

    Returns:
        The number of steps.

    Raises:
        BudgetError: If not even one step fits, or any number does.
    """
    scale = _validate.positive("noise_multiplier", noise_multiplier)
    rate = _validate.rate("sampling_rate", sampling_rate)
    return max_steps(lambda steps: events.sampled_gaussian(scale, rate, steps), budget, accountant)


def max_steps(
    make_event: Callable[[int], DpEvent], budget: Budget, accountant: Accountant | None = None
) -> int:
    """The largest number of steps for which an event fits the budget.

    Args:
        make_event: The event as a function of the number of steps.
        budget: The budget to meet.
        accountant: The accountant; by default `PLD`.

    Returns:
        The number of steps.

    Raises:
        BudgetError: If not even one step fits, or any number does.
    """
    spend = _epsilon_function(lambda steps: make_event(round(steps)), budget, accountant)
    if not (spend(1) <= budget.epsilon):
        raise BudgetError(
            f"Not one step fits {budget}. Raise the noise or the budget, or lower the sampling "
            "rate or the bound."
        )
    low, high = 1, 2
    while spend(high) <= budget.epsilon:
        low, high = high, high * 2
        if high > events.MAX_STEPS:
            raise BudgetError(
                f"More than {events.MAX_STEPS:g} steps fit {budget}: the budget sets no limit that "
                "matters. Lower the noise."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spend(middle) <= budget.epsilon else (low, middle)
    return low


def sampling_rate(
    budget: Budget,
    *,
    noise_multiplier: float,
    num_steps: int = 1,
    accountant: Accountant | None = None,
) -> float:
    """The largest Poisson sampling rate that fits the budget.

    Args:
        budget: The budget to meet.
        noise_multiplier: The noise standard deviation divided by the clip.
        num_steps: The number of steps.
        accountant: The accountant; by default `PLD`.

    Returns:
        The sampling rate, at most 1.

    Raises:
        BudgetError: If no rate fits.
    """
    scale = _validate.positive("noise_multiplier", noise_multiplier)
    steps = _validate.count("num_steps", num_steps)
    spend = _epsilon_function(
        lambda rate: events.sampled_gaussian(scale, rate, steps), budget, accountant
    )
    if spend(1.0) <= budget.epsilon:
        return 1.0
    high, low = 1.0, 0.5
    while spend(low) > budget.epsilon:
        high, low = low, low / 2
        if low < _MIN_SAMPLING_RATE:
            raise BudgetError(
                f"No sampling rate brings {steps} steps at noise multiplier {scale:g} to "
                f"{budget}. {_hint(budget, accountant)}"
            )
    ends = [(1 / rate, spend(rate)) for rate in (high, low)]
    return 1 / _regula_falsi(lambda inverse: spend(1 / inverse), budget.epsilon, ends[0], ends[1])


def _step_factor(overshoot: float) -> float:
    """How far to move the noise, a little more than enough, as epsilon ~ noise^(-1 to -2)."""
    return min(max(1.02 * overshoot**0.8, 1.03), 3.0) if overshoot < 1e3 else 3.0


def _regula_falsi(
    spend: Callable[[float], float],
    target: float,
    too_low: tuple[float, float],
    fits: tuple[float, float],
) -> float:
    """The least x between two points (x, spend(x)) that fits, for a falling `spend`.

    Regula falsi on logarithms, with a bisection whenever it stalls.
    """
    (low, at_low), (high, at_high) = too_low, fits
    bisect = False
    while high > low * (1 + TOLERANCE) and at_high < target * (1 - TOLERANCE):
        middle = math.sqrt(low * high)
        if not bisect and at_high > 0 and at_low < math.inf:
            slope = math.log(high / low) / math.log(at_low / at_high)
            # Aim a little on the safe side, so that the end that fits moves.
            aim = low * math.exp(slope * math.log(at_low / (target * (1 - TOLERANCE / 2))))
            middle = min(max(aim, low * (1 + TOLERANCE / 4)), high / (1 + TOLERANCE / 4))
        before = high / low
        spent = spend(middle)
        if spent <= target:
            high, at_high = middle, spent
        else:
            low, at_low = middle, spent
        bisect = not bisect and math.log(high / low) > 0.5 * math.log(before)
    return high


def _epsilon_function(
    make_event: Callable[[float], DpEvent], budget: Budget, accountant: Accountant | None
) -> Callable[[float], float]:
    """Epsilon at the budget's delta; infinite where the accountant's theorem does not hold.

    If the budget has an advantage, and the event exceeds it by a factor, epsilon is at least the budget's times it.
    """
    chosen = accountant or PLD()

    def spend(value: float) -> float:
        event = make_event(value)
        try:
            epsilon = chosen.epsilon(event, budget.delta, budget.adjacency)
        except TheoremDoesNotHold:
            return math.inf
        if budget.advantage is None:
            return epsilon
        share = chosen.delta(event, 0.0, budget.adjacency) / budget.advantage
        return max(epsilon, share * budget.epsilon)

    return spend


def approximate_mu(budget: Budget) -> float:
    """About the mu of Gaussian differential privacy that fits the budget."""
    spread = math.sqrt(2 * max(-math.log(max(budget.delta, 1e-300)), 0.1))
    return math.sqrt(2 * budget.epsilon + spread**2) - spread + 1e-300


def _hint(budget: Budget, accountant: Accountant | None) -> str:
    if budget.is_pure:
        return "Gaussian noise needs a delta above 0: pass one, or use Laplace noise."
    if (accountant or PLD()).name != PLD.name:
        return "The pld accountant may be able to."
    return "Raise epsilon or delta."
