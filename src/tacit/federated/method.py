"""The interface of federated methods, and a run of one: its sites, and all of them in this process.

`run_in_process` prepares every site with its own budget, runs the schedule and returns the server. A deployment does
the same with its own `Transport`, using `prepare_site` at each site and the method's ``server`` at the server.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget
from tacit.accounting.events import DpEvent
from tacit.accounting.ledger import Ledger
from tacit.errors import Interrupted, InvalidArgument
from tacit.federated.agreement import short_digest
from tacit.federated.journal import Journal, LedgerJournal, RunTerms
from tacit.federated.protocol import InProcess
from tacit.federated.schemes import Prepared, RunSetting, Scheme
from tacit.federated.server import Schedule, Server, run_schedule
from tacit.federated.site import Client
from tacit.federated.targets import ConjugateTarget, F, T, study_digest
from tacit.inference.result import MethodResult
from tacit.models.base import UnitModel
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


class FederatedMethod(ABC, Generic[T]):
    """Settings of a run, which are public and the same at all sites."""

    num_rounds: int  # how often every site is asked
    spare_answers: int  # answers that are charged in addition to the rounds
    scheme: Scheme[T]  # how sites protect their data

    @abstractmethod
    def rounds(self, sites: int) -> Schedule:
        """Which sites are asked when."""

    @abstractmethod
    def setting(self, target: T, budget: Budget | None, sites: int) -> RunSetting[T]:
        """What one site knows about the run."""

    @abstractmethod
    def server(
        self,
        target: T,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,
    ) -> Server:
        """The server of a run. The budget says how much noise answers have, or the server adds."""

    def about(self, target: T, sites: int, rows: Rows) -> str:
        """A digest that identifies the study; it depends on the types of the columns, not on values."""
        return study_digest((self, sites), target, rows)


class FederatedFit(FederatedMethod[F], Generic[F]):
    """Settings of a fit. ``target`` makes of a model what the other functions take as ``target``."""

    @abstractmethod
    def target(self, model: UnitModel | ConjugateTarget) -> F:
        """What sites fit together."""

    @abstractmethod
    def fitted(self, target: F, server: Server, seed: int) -> MethodResult:
        """What a server found at the end of a run."""


@dataclass(frozen=True, kw_only=True)
class SiteCost:
    """What a run costs one site, and the ledger that is charged, if it is at hand.

    ``noise_std`` is the standard deviation of the noise in one of its answers, where results depend on it.
    """

    event: DpEvent | None
    budget: Budget | None
    ledger: Ledger | None = None
    noise_std: float = 0.0


def prepare_site(
    name: str,
    rows: Rows | Callable[[], Rows],
    method: FederatedMethod[T],
    target: T,
    *,
    run: str,
    sites: int,
    budget: Budget | None,
    ledger: Ledger | None = None,
    prepared: Prepared | None = None,
    about: str = "",
    seed: int | None = None,
) -> Client:
    """A site of a run, with noise calibrated for all answers. The first task charges the ledger.

    Args:
        name: The name of the site.
        rows: The rows, or a function that reads them when a task is computed.
        method: Settings of the run.
        target: What sites fit together.
        run: The name of the run.
        sites: The number of sites.
        budget: The budget of the site, or None for a run without privacy.
        ledger: The ledger to charge.
        prepared: The result of ``method.scheme.prepare``, if it is at hand.
        about: The method's ``about``, which a ledger needs to tell studies with one name apart.
        seed: Makes answers reproducible, and the run not private.

    Returns:
        The site, ready to answer tasks.
    """
    scheme = method.scheme
    ready = prepared or scheme.prepare(method.setting(target, budget, sites))
    terms = RunTerms(
        run=run,
        answers=method.num_rounds + method.spare_answers,
        event=ready.event,
        budget=budget,
        label=f"{charge_label(run)} {target.model.describe()}",
        # Answers that are repeated keep the noise of their seed, or of none.
        about=about if seed is None else f"{about}, seed {seed}",
    )
    journal: Journal | None = None if ledger is None else LedgerJournal(ledger)
    key = None if seed is None else seeded_keys(f"{seed}|{name}")
    return Client(
        name,
        rows,
        ready.work,
        terms,
        journal,
        key,
        seeded=seed is not None,
        family=target.family,
        in_factor=ready.in_factor,
    )


def charge_label(run: str) -> str:
    """How the label of a run's charge begins."""
    return f"federated run {run}:"


@dataclass(frozen=True, kw_only=True)
class FederatedResult:
    """The server at the end of a run, and the cost at each site."""

    server: Server
    costs: Mapping[str, SiteCost]

    @property
    def trace(self) -> NDArray[np.float64]:
        """A vector for every update."""
        return np.array(self.server.trace)


def run_in_process(
    method: FederatedMethod[T],
    target: T,
    rows: Mapping[str, Rows],
    budgets: Mapping[str, Budget | None],
    *,
    run: str,
    ledgers: Mapping[str, Ledger] | None = None,
    schema: str = "",
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FederatedResult:
    """Runs all sites and the server in this process.

    Args:
        method: Settings of the run.
        target: What sites fit together.
        rows: Rows of each site, by name.
        budgets: Budget of each site, by name.
        run: The name of the run.
        ledgers: Ledgers of sites, by name.
        schema: The public facts about columns, as text: with others, a run of the same name is another one.
        seed: Makes the run reproducible, and not private.
        progress: Is called with the number of rounds done.

    Returns:
        The server, and the cost at each site.

    Raises:
        Interrupted: If the run was interrupted, and a ledger was given.
    """
    names, shared = tuple(rows), set(budgets.values())
    if not method.scheme.each_message_private and len(shared) > 1:
        raise InvalidArgument("Sites that share noise need the same budget; pass one for all.")
    prepared = {
        budget: method.scheme.prepare(method.setting(target, budget, len(names)))
        for budget in shared
    }
    sites = [
        prepare_site(
            name,
            rows[name],
            method,
            target,
            run=run,
            sites=len(names),
            budget=budgets[name],
            ledger=(ledgers or {}).get(name),
            prepared=prepared[budgets[name]],
            about=study_about(method, target, len(names), rows[name], schema)
            if name in (ledgers or {})
            else "",
            seed=seed,
        )
        for name in names
    ]
    for site in sites:  # if one of them cannot pay, nobody does
        site.check_charge()
    # Sites may have different budgets; the most noise that any of them adds is what the server expects.
    noisiest = max(prepared, key=lambda budget: prepared[budget].noise_std)
    server = method.server(target, names, run=run, budget=noisiest, source=Randomness(seed))
    try:
        run_schedule(server, InProcess(sites), method.rounds(len(names)), progress)
    except KeyboardInterrupt as error:
        if not ledgers:
            raise
        raise Interrupted(
            f"Interrupted. Sites that have answered are charged for the whole run. With run={run!r} and the same settings it "
            "goes on, and nothing is charged again."
        ) from error
    costs = {
        name: SiteCost(
            event=prepared[budget].event,
            budget=budget,
            ledger=(ledgers or {}).get(name),
            noise_std=prepared[budget].noise_std,
        )
        for name, budget in budgets.items()
    }
    return FederatedResult(server=server, costs=costs)


def study_about(method: FederatedMethod[T], target: T, sites: int, rows: Rows, schema: str) -> str:
    """A digest that tells a study from another one with the same name, also by the schema of its rows."""
    about = method.about(target, sites, rows)
    return about if not schema else f"{about} {short_digest(schema)}"


def seeded_keys(label: str) -> Callable[[int], bytes]:
    """Keys that depend on a label and a round only: the same in every process."""

    def key(number: int) -> bytes:
        return hashlib.sha256(f"tacit:{label}|{number}".encode()).digest()

    return key
