"""Settings of a federated fit, and a fit with all sites in this process.

`partitioned` prepares every site with its own budget, runs the schedule and returns natural
parameters. A deployment does the same with its own `Transport`, using `site_of` at each site and
`server_of` at the server.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import Budget
from tacit.accounting.journal import Journal, LedgerJournal, Terms
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument
from tacit.federated.client import Client
from tacit.federated.describe import described
from tacit.federated.local import family_of
from tacit.federated.natural import Vector
from tacit.federated.optimise import Optimised
from tacit.federated.scheme import Prepared, Scheme, Setting
from tacit.federated.server import Schedule, ScheduleName, Server, conduct
from tacit.federated.target import Approximate, Conjugate, Target
from tacit.federated.transport import InProcess
from tacit.inference.guides import Guide, MeanField
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """Partitioned variational inference. All settings are public and the same at all sites.

    Args:
        scheme: How sites protect their data; see `tacit.federated.optimise`,
            `tacit.federated.changes` and docs/federated.md.
        num_rounds: How often every site is asked.
        schedule: ``"synchronous"``, ``"sequential"`` or ``"asynchronous"``.
        damping: Factor that a site's change is multiplied by. By default 1, or one over the square
            root of the number of sites for synchronous private optimisation.
        group_size: Number of sites that are asked at a time.
        spare_answers: Answers that are charged in addition to the rounds, for tasks that must be
            asked again.
        guide: The family of the posterior: ``tacit.MeanField()`` or ``tacit.FullRank()``.
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
        _ = self.plan(1)
        _validate.count("spare_answers", self.spare_answers, least=0)
        if self.schedule == "asynchronous" and not self.scheme.alone:
            raise InvalidArgument(
                "Noise that is shared needs all sites in a round; asynchronous sites add their own."
            )
        if self.schedule == "sequential" and not self.scheme.alone:
            raise InvalidArgument(
                "A round of one site would show its change; use schedule='synchronous'."
            )

    def plan(self, sites: int) -> Schedule:
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

    def target(self, model: Any) -> Target:
        """What sites fit together: a conjugate target as it is, or a model in the guide's family."""
        if isinstance(model, Conjugate | Approximate):
            return model
        family = family_of(self.guide, model.dimension)
        return Approximate(model=model, family=family, num_draws=self.num_draws)

    def setting(self, target: Target, budget: Budget | None, sites: int) -> Setting:
        """What one site knows of the run."""
        together = sites if self.group_size is None else self.group_size
        if not self.scheme.alone and sites % together:
            raise InvalidArgument(
                f"{sites} sites do not make groups of {together}; noise that is shared needs all "
                "groups to be as large."
            )
        return Setting(
            target=target,
            budget=budget,
            answers=self.num_rounds + self.spare_answers,
            sites=sites,
            together=together,
            damping=self.plan(sites).damping,
        )

    def about(self, target: Target, sites: int, rows: Rows) -> str:
        """What tells a run by this method from others; of the rows it has only their types."""
        return described((self, sites), target, rows)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A site that is ready: its client, and what its part of the run costs."""

    client: Client
    event: DpEvent | None
    budget: Budget | None
    ledger: Ledger | None


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
) -> Site:
    """A site of a run: calibrates its noise for all answers. Charges with the first task.

    ``about`` is `Partitioned.about`, without which a ledger cannot tell studies of one name apart.
    """
    ready = prepared or method.scheme.prepare(method.setting(target, budget, sites))
    terms = Terms(
        run=run,
        answers=method.num_rounds + method.spare_answers,
        event=ready.event,
        budget=budget,
        label=f"run {run}",
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
        hidden=not (method.scheme.alone or method.scheme.own_factors),
    )
    return Site(client=client, event=ready.event, budget=budget, ledger=ledger)


def server_of(
    method: Partitioned,
    target: Target,
    names: tuple[str, ...],
    *,
    run: str,
    budget: Budget | None,
    source: Randomness,
) -> Server:
    """The server of a run. Its budget matters only where the server adds the noise."""
    aggregation = method.scheme.aggregation(method.setting(target, budget, len(names)), source)
    return Server(
        run=run,
        family=target.family,
        prior=target.prior,
        sites=names,
        damping=method.plan(len(names)).damping,
        whole=aggregation.whole,
        tracked=aggregation.tracked,
        aggregate=aggregation.aggregate,
        mark=aggregation.mark,
        grid=aggregation.grid,
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """The posterior's natural parameters, those after every fold, and the sites."""

    posterior: Vector
    trace: Vector
    sites: Mapping[str, Site]


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
) -> Found:
    """All sites and the server in this process."""
    names, shared = tuple(rows), set(budgets.values())
    if not method.scheme.alone and len(shared) > 1:
        raise InvalidArgument("Sites that share noise have one budget; pass the same for all.")
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
    trace = conduct(server, transport, method.plan(len(names)), progress)
    return Found(posterior=server.posterior, trace=trace, sites=sites)


def seeded_keys(label: str) -> Callable[[int], bytes]:
    """Keys that follow from a seed, one for each round: the same in whatever process."""

    def key(number: int) -> bytes:
        return hashlib.sha256(f"tacit:{label}|{number}".encode()).digest()

    return key
