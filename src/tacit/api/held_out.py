"""A private held-out score at a site, charged to its ledger."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.plan import check_ledger
from tacit.errors import InvalidArgument
from tacit.federated.deploy import SiteSettings, load_study
from tacit.inference.held_out import HeldOutScore, ScoreRelease, gaussian_draws
from tacit.results.posterior import Posterior


def held_out_score(
    path: Path, posterior: Posterior, budget: Budget, release: ScoreRelease
) -> HeldOutScore:
    """Releases how well a posterior predicts the held-out rows of a site, and charges the site's ledger.

    Args:
        path: The settings of the site, whose ``held_out`` names a file of rows that were not fitted.
        posterior: The result of the study.
        budget: What the release may cost, under the ledger's adjacency. It is charged every time.
        release: The range of scores.

    Returns:
        The score.

    Raises:
        InvalidArgument: If the settings name no held-out rows, or the posterior has not as many
            parameters as the study's model. Nothing is charged.
        BudgetError: If the ledger refuses the charge. Nothing is released.
    """
    settings = SiteSettings.from_file(path)
    if settings.held_out is None:
        raise InvalidArgument(
            f'{path} names no held-out rows: held_out = "held_out.csv", a file of rows that are not in data.'
        )
    study = load_study(settings.study)
    model, mean = study.target.model, posterior.unconstrained_mean
    covariance = posterior.unconstrained_covariance
    if (
        mean is None
        or covariance is None
        or len(mean) != model.dimension
        or not np.isfinite(covariance).all()
    ):
        raise InvalidArgument(
            "The posterior has not the parameters of this study's model, or is not normal on the "
            "unconstrained scale."
        )
    draws = gaussian_draws(mean, covariance)
    ledger = Ledger(settings.ledger, settings.total, unit=study.unit)
    budget = replace(budget, adjacency=ledger.total.adjacency)
    plan = release.calibrate(budget)
    rows = study.read(settings.held_out)
    check_ledger(ledger, [budget], [rows])
    ledger.charge(plan.event, budget, label=f"held-out score of run {study.run}")
    return release.run(rows, plan, model, draws)
