"""The overhead of the in-process engine, in milliseconds for each site and round.

    python benchmarks/federated.py

A posterior of 100 dimensions, 20 sites, synchronous rounds. The engine is everything except a site's own
computation: tasks, digests, the journal, and updates that keep q and all cavities proper. The limit is 2 ms
for a site. Times are CPU times of the process, so that other programs do not matter. For comparison, the times
with a journal on disk and with a release of the gate are printed as well.
"""

import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from tacit import Budget, Ledger, Model, Rows
from tacit.accounting import events
from tacit.federated.journal import LedgerJournal, RunTerms
from tacit.federated.protocol import InProcess
from tacit.federated.pvi import PVIServer
from tacit.federated.schemes import ClippedStatistics, RunSetting
from tacit.federated.server import Schedule, run_schedule
from tacit.federated.site import Client
from tacit.federated.targets import ConjugateTarget
from tacit.models import Parameter
from tacit.models.exponential_families import DiagonalGaussian, FullGaussian

DIMENSION, SITES, ROUNDS, LIMIT = 100, 20, 20, 2.0


class Idle:
    """A site that answers at once."""

    grid = None

    def __init__(self, family):
        self.size = family.size
        mean = np.random.default_rng(0).normal(size=DIMENSION)
        self._likelihood = family.from_moments(mean, np.full(DIMENSION, 2.0))

    def change(self, rows, posterior, factor, source):  # noqa: ARG002
        """From the factor to a known likelihood."""
        return self._likelihood - factor


def means(family):
    """A mean for each coordinate, from rows with known precision."""
    return ConjugateTarget(
        model=Model(
            parameters={"mean": Parameter((DIMENSION,))},
            log_prior=lambda p: -0.5 * jnp.sum(p["mean"] ** 2),
            log_likelihood=lambda p, row: -0.5 * jnp.sum((row["y"] - p["mean"]) ** 2),
        ).unit_model,
        family=family,
        prior=family.from_moments(np.zeros(DIMENSION), np.ones(DIMENSION)),
        statistic=lambda row, _: jnp.concatenate([jnp.ones(DIMENSION), row["y"]]),
        from_draws=lambda drawn: {"mean": drawn},
    )


def per_site(family, work, journal=None, rounds=ROUNDS, budget=None, event=None):
    """Milliseconds of CPU time for each round and site: the least of three runs."""
    prior = family.from_moments(np.zeros(DIMENSION), np.ones(DIMENSION))
    rows = Rows({"y": np.random.default_rng(0).normal(size=(50, DIMENSION))})
    best = np.inf
    for number in range(3):
        run = f"run {number}"
        terms = RunTerms(run=run, answers=rounds, event=event, budget=budget)
        clients = [
            Client(
                f"s{i}",
                rows,
                work,
                terms,
                None if journal is None else journal(i),
                family=family,
            )
            for i in range(SITES)
        ]
        transport = InProcess(clients)
        server = PVIServer(run=run, family=family, prior=prior, sites=transport.sites)
        began = time.process_time()
        run_schedule(server, transport, Schedule(num_rounds=rounds))
        best = min(best, (time.process_time() - began) / (rounds * SITES))
    return 1e3 * best


def main():
    diagonal, full = DiagonalGaussian(DIMENSION), FullGaussian(DIMENSION)
    found = {
        "engine, mean-field": per_site(diagonal, Idle(diagonal)),
        "engine, full covariance": per_site(full, Idle(full)),
    }
    budget = Budget(1, 1e-5)
    setting = RunSetting(
        target=means(diagonal), budget=budget, answers=ROUNDS, sites=SITES, together=SITES
    )
    work = ClippedStatistics(clip=20.0).prepare(setting).work
    beside = {"mean-field, with a release of the gate": per_site(diagonal, work)}
    with tempfile.TemporaryDirectory() as folder:
        total = Budget(10, 1e-3)

        def journal(i):
            file = Path(folder) / f"{i}.db"
            return LedgerJournal(Ledger(file) if file.exists() else Ledger.new(file, total=total))

        beside["mean-field, with a journal on disk"] = per_site(
            diagonal, Idle(diagonal), journal, 3, budget, events.gaussian(10.0)
        )
    print(f"{DIMENSION} dimensions, {SITES} sites; milliseconds for each site and round")
    for name, value in found.items():
        print(f"{name:40} {value:7.3f}   limit {LIMIT:g}: {'yes' if value < LIMIT else 'NO'}")
    for name, value in beside.items():
        print(f"{name:40} {value:7.3f}")


if __name__ == "__main__":
    main()
