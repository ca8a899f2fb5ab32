"""Settings of a federated fit, and a fit with all sites in this process.

`partitioned` prepares every site with its own budget, runs the schedule and returns natural
parameters. A deployment does the same with its own `Transport`, using `site_of` at each site and
`server_of` at the server.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import Budget
from tacit.accounting.journal import Journal, LedgerJournal, Terms
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument
from tacit.federated.client import Client
from tacit.federated.describe import described
from tacit.federated.local import family_of
from tacit.federated.schemes.base import Prepared, RunSetting, Scheme
from tacit.federated.schemes.optimised import Optimised
from tacit.federated.server import Schedule, ScheduleName, Server, conduct
from tacit.federated.target import Approximate, ConjugateTarget, Target, conjugate_target
from tacit.federated.transport import InProcess
from tacit.inference.guides import Guide, MeanField
from tacit.models.base import AnyModel
from tacit.models.natural import Vector
from tacit.models.reading import called
from tacit.models.statistic import Conjugate
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """Partitioned variational inference. All settings are public and the same at all sites.

    Args:
        scheme: How sites protect their data; see `tacit.federated.schemes` and docs/federated.md.
        num_rounds: How often every site is asked.
        schedule: ``"synchronous"``, ``"sequential"`` or ``"asynchronous"``.
        damping: Factor that a site's change is multiplied by. By default 1, or one over the square
            root of the number of sites for synchronous private optimisation.
        group_size: Number of sites that are asked at a time.
        spare_answers: Answers that are charged in addition to the rounds, for tasks that must be
            asked again.
        guide: The family of the posterior: ``tacit.methods.MeanField()`` or ``tacit.methods.FullRank()``. Conjugate
            models have a family of their own and ignore it.
        num_draws: Number of pairs of opposite draws that expectations are computed with.
    """

    scheme: Scheme = field(default_factory=Optimised)
    num_rounds: int = 10
    schedule: ScheduleName = "synchronous"
    damping: float | None = None
    group_size: int | None = None
    spare_answers: int = 0
    guide: Guide = field(default_factory=MeanField)
    num_draws: int = 8

    def __post_init__(self) -> None:
        _ = self.rounds(1)
        _validate.count("spare_answers", self.spare_answers, least=0)
        if self.schedule != "synchronous" and not self.scheme.each_message_private:
            raise InvalidArgument(
                "With this scheme only the sum over all sites is private, so all sites must answer in "
                'the same round; use schedule="synchronous".'
            )

    def rounds(self, sites: int) -> Schedule:
        """The schedule: which sites are asked when."""
        damping = self.damping
        if damping is None:
            together = isinstance(self.scheme, Optimised) and self.schedule == "synchronous"
            damping = sites**-0.5 if together else 1.0
        return Schedule(
            num_rounds=self.num_rounds,
            kind=self.schedule,
            group_size=self.group_size,
            damping=damping,
        )

    def target(self, model: AnyModel | ConjugateTarget) -> Target:
        """What sites fit together: the model, with the natural parameters of its posterior."""
        if isinstance(model, ConjugateTarget):
            return model
        if isinstance(model, Conjugate):
            return conjugate_target(model)
        family = family_of(self.guide, model.dimension)
        return Approximate(model=model, family=family, num_draws=self.num_draws)

    def setting(self, target: Target, budget: Budget | None, sites: int) -> RunSetting:
        """What one site knows about the run."""
        together = sites if self.group_size is None else self.group_size
        if not self.scheme.each_message_private and sites % together:
            raise InvalidArgument(
                f"{sites} sites cannot be divided into groups of {together}; sites that share noise "
                "need groups of equal size."
            )
        return RunSetting(
            target=target,
            budget=budget,
            answers=self.num_rounds + self.spare_answers,
            sites=sites,
            together=together,
            damping=self.rounds(sites).damping,
        )

    def about(self, target: Target, sites: int, rows: Rows) -> str:
        """A digest that identifies the study; it depends on the types of the columns, not on values."""
        return described((self, sites), target, rows)


@dataclass(frozen=True, kw_only=True)
class SiteCost:
    """What a run costs one site, and the ledger that is charged, if it is at hand."""

    event: DpEvent | None
    budget: Budget | None
    ledger: Ledger | None = None


@dataclass(frozen=True, kw_only=True)
class ReadySite:
    """A site that is ready to answer, and what the run costs it."""

    client: Client
    cost: SiteCost


def site_of(
    name: str,
    rows: Rows | Callable[[], Rows],
    method: Partitioned,
    target: Target,
    *,
    run: str,
    sites: int,
    budget: Budget | None,
    ledger: Ledger | None = None,
    prepared: Prepared | None = None,
    about: str = "",
    seed: int | None = None,
) -> ReadySite:
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
        about: `Partitioned.about`, which a ledger needs to tell studies with one name apart.
        seed: Makes answers reproducible, and the run not private.

    Returns:
        The client, and what the run costs.
    """
    ready = prepared or method.scheme.prepare(method.setting(target, budget, sites))
    terms = Terms(
        run=run,
        answers=method.num_rounds + method.spare_answers,
        event=ready.event,
        budget=budget,
        label=f"federated run {run}: {called(target.model)}",
        about=about,
    )
    journal: Journal | None = None if ledger is None else LedgerJournal(ledger)
    key = None if seed is None else seeded_keys(f"{seed}|{name}")
    client = Client(
        name,
        rows,
        ready.work,
        terms,
        journal,
        key,
        seeded=seed is not None,
        family=target.family,
        hidden=not (method.scheme.each_message_private or method.scheme.own_factors),
    )
    cost = SiteCost(event=ready.event, budget=budget, ledger=ledger)
    return ReadySite(client=client, cost=cost)


def server_of(
    method: Partitioned,
    target: Target,
    names: tuple[str, ...],
    *,
    run: str,
    budget: Budget | None,
    source: Randomness,
) -> Server:
    """The server of a run. The budget is used only if the server adds noise."""
    aggregation = method.scheme.aggregation(method.setting(target, budget, len(names)), source)
    return Server(
        run=run,
        family=target.family,
        prior=target.prior,
        sites=names,
        damping=method.rounds(len(names)).damping,
        whole=aggregation.whole,
        tracked=aggregation.tracked,
        aggregate=aggregation.aggregate,
        mark=aggregation.mark,
        grid=aggregation.grid,
    )


@dataclass(frozen=True, kw_only=True)
class FederatedResult:
    """Natural parameters of the posterior, those after every update, and the cost at each site."""

    posterior: Vector
    trace: Vector
    costs: Mapping[str, SiteCost]


def partitioned(
    method: Partitioned,
    target: Target,
    rows: Mapping[str, Rows],
    budgets: Mapping[str, Budget | None],
    *,
    run: str,
    ledgers: Mapping[str, Ledger] | None = None,
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
        seed: Makes the run reproducible, and not private.
        progress: Is called with the number of rounds done.

    Returns:
        Natural parameters of the posterior, and the cost at each site.
    """
    names, shared = tuple(rows), set(budgets.values())
    if not method.scheme.each_message_private and len(shared) > 1:
        raise InvalidArgument("Sites that share noise need the same budget; pass one for all.")
    prepared = {
        budget: method.scheme.prepare(method.setting(target, budget, len(names)))
        for budget in shared
    }
    sites = {
        name: site_of(
            name,
            rows[name],
            method,
            target,
            run=run,
            sites=len(names),
            budget=budgets[name],
            ledger=(ledgers or {}).get(name),
            prepared=prepared[budgets[name]],
            about=method.about(target, len(names), rows[name]) if name in (ledgers or {}) else "",
            seed=seed,
        )
        for name in names
    }
    server = server_of(
        method, target, names, run=run, budget=next(iter(shared)), source=Randomness(seed)
    )
    transport = InProcess([site.client for site in sites.values()])
    trace = conduct(server, transport, method.rounds(len(names)), progress)
    costs = {name: site.cost for name, site in sites.items()}
    return FederatedResult(posterior=server.posterior, trace=trace, costs=costs)


def seeded_keys(label: str) -> Callable[[int], bytes]:
    """Keys that depend on a label and a round only: the same in every process."""

    def key(number: int) -> bytes:
        return hashlib.sha256(f"tacit:{label}|{number}".encode()).digest()

    return key
