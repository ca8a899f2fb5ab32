"""The interface of privacy schemes, and what they share.

A scheme is a set of public settings. From them, a budget and the number of answers, `prepare` makes what
one site does in a run (`Prepared`), with noise calibrated for all answers together. Every site does this
for itself.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray

from tacit.accounting import PLD, Budget
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.client import Work
from tacit.federated.schemes.trust import ONLY_THE_SITE, SEVERAL_SITES
from tacit.federated.server import Aggregate
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.shares import extra_delta

# The share of delta that covers sums of shares of noise, which are not exactly normal, and the largest
# epsilon for which it is enough.
FOR_SHARES, _UP_TO = 2.0**-40, 100.0


@dataclass(frozen=True, kw_only=True)
class RunSetting:
    """What a site knows about a run, from its own settings. Nothing of it comes by message.

    Args:
        target: What sites fit together, as the method makes it: a `tacit.federated.target.Target`, or what
            pooled scoring has of its own.
        budget: The budget of the site, or None for a run without privacy.
        answers: The number of answers that are charged.
        sites: The number of sites that take part.
        together: The number of sites that answer in one round.
        damping: The factor that the server multiplies changes by.
        dropouts: How many of the sites that answer together may be missing.
        rows_bound: The declared bound on the number of units at a site, if there is one.
    """

    target: Any
    budget: Budget | None
    answers: int
    sites: int
    together: int
    damping: float = 1.0
    dropouts: int = 0
    rows_bound: int | None = None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a site does in a run, and the event of all its answers together.

    ``in_factor`` says whether answers that were used go into a factor of the site.
    """

    work: Work
    event: DpEvent | None
    in_factor: bool = True


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """Settings of the server that a scheme needs; see `tacit.federated.server.Server`.

    ``mark`` identifies a server that adds noise; see `tacit.federated.transport.Task`.
    """

    whole: bool = False
    tracked: bool = True
    aggregate: Aggregate | None = None
    mark: bytes = b""
    grid: float | None = None


class Scheme(Protocol):
    """How sites protect their data.

    ``protects`` is ``"rows"`` (each unit of the rows) or ``"data set"`` (everything that a site
    holds). ``trust`` has sentences that say who is trusted.
    """

    @property
    def protects(self) -> str:
        """The unit of privacy."""
        ...

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted, in sentences for the statement."""
        ...

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself, so that any schedule is possible."""
        ...

    @property
    def own_factors(self) -> bool:
        """Whether sites keep hidden noise in factors of their own."""
        ...

    @property
    def split(self) -> bool:
        """Whether only the sum of all sites' messages has enough noise."""
        ...

    def prepare(self, setting: RunSetting) -> Prepared:
        """What a site does, with noise calibrated to its budget."""
        ...

    def aggregation(self, setting: RunSetting, source: Randomness) -> Aggregation:
        """What the server does."""
        ...


class EachMessagePrivate:
    """What schemes share that protect rows and make every message private by itself."""

    protects: ClassVar[str] = "rows"
    trust: ClassVar[tuple[str, ...]] = (ONLY_THE_SITE, SEVERAL_SITES)
    each_message_private: ClassVar[bool] = True
    own_factors: ClassVar[bool] = False
    split: ClassVar[bool] = False

    def aggregation(self, setting: RunSetting, source: Randomness) -> Aggregation:  # noqa: ARG002
        """The sum of the changes."""
        return Aggregation()


def covered(event: DpEvent, budget: Budget | None) -> DpEvent:
    """The event, if the budget covers it; otherwise raises `BudgetError`."""
    if budget is not None:
        spent = PLD().epsilon(event, budget.delta, budget.adjacency)
        if not (spent <= budget.epsilon):
            raise BudgetError(
                f"The given noise_multiplier costs more than {budget}; leave it out to have it "
                "calibrated."
            )
    return event


def no_inputs(_: int, steps: int) -> NDArray[np.float32]:
    """Inputs of steps that take none."""
    return np.zeros(steps, np.float32)


def refuse_coarse_shares(
    mechanism: NoisySums, setting: RunSetting, budget: Budget, honest: int, advice: str
) -> None:
    """Refuses shares of noise whose sum is further from normal than delta allows. Lemma F1.

    Args:
        mechanism: What a site releases.
        setting: The setting of the run.
        budget: The budget of a site.
        honest: The number of sites in a round that do not reveal their noise.
        advice: What to do instead.
    """
    extra = extra_delta(
        mechanism.noise_std / mechanism.grid,
        honest,
        numbers=mechanism.dimension * setting.answers,
        epsilon=max(budget.epsilon, _UP_TO),
    )
    if extra > FOR_SHARES * budget.delta:
        raise InvalidArgument(
            "A site's share of the noise is so few lattice points that the sum of shares is not "
            f"normal; {advice}."
        )
