"""A private held-out score at a site: near the truth, charged, and refused before the charge."""

import numpy as np
import pytest
from scipy.special import expit

from tacit import Budget, Ledger
from tacit.accounting import events
from tacit.api.federated import held_out_score
from tacit.cli import project
from tacit.cli.main import main
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.deploy import open_ledger
from tacit.federated.settings import SiteSettings
from tacit.inference.held_out import ScoreRange
from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement

MEAN = np.array([-0.5, 1.0, -1.0])
LARGE = Budget(50, 1e-6)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "study"
    project.write_project(folder, ("a", "b"), "run-1")
    path = folder / "sites" / "a" / "site.toml"
    path.write_text(
        path.read_text()
        .replace("# held_out", "held_out")
        .replace("held_out.csv", "../b/data.csv")
        .replace("epsilon = 3.0", "epsilon = 60.0")
    )
    open_ledger(SiteSettings.from_file(path))
    return path


def a_posterior(mean=MEAN):
    """One of hardly any width, so that its mean density is that at its mean."""
    statement = PrivacyStatement(
        event=events.gaussian(1.0),
        delta=1e-6,
        adjacency="add-remove",
        unit="row",
        public=(),
        seeded=False,
    )
    return Posterior(
        draws={"intercept": np.zeros(2)},
        unconstrained_mean=mean,
        unconstrained_covariance=1e-12 * np.eye(len(mean)),
        privacy=statement,
    )


def log_densities(path):
    """Of the held-out rows, without Tacit."""
    age, dose, ill = np.loadtxt(path.parent / "../b/data.csv", delimiter=",", skiprows=1).T
    chance = expit(MEAN[0] + MEAN[1] * (age - 59) / 41 + MEAN[2] * (dose - 25) / 25)
    return np.log(np.where(ill == 1, chance, 1 - chance))


@pytest.mark.parametrize("low", [-5.0, -0.5])
def test_a_score_is_the_mean_of_clipped_log_densities_and_is_charged(site, low):
    ledger = Ledger(SiteSettings.from_file(site).ledger)
    before, budget = len(ledger.charges), Budget(25, 1e-6)
    found = held_out_score(site, a_posterior(), budget, ScoreRange(low=low))
    values = np.clip(log_densities(site), low, 0)
    assert abs(found.mean - values.mean()) < 6 * found.noise_sd
    assert found.noise_sd < 0.02
    assert found.rows_sd == pytest.approx(values.std() / np.sqrt(len(values)), rel=0.2)
    (charge,) = ledger.charges[before:]
    assert (charge.label, charge.delta) == ("held-out score of run run-1", 1e-6)
    assert 24 < charge.epsilon <= 25


def test_too_few_rows_for_the_noise_are_said_to_be(site):
    found = held_out_score(site, a_posterior(), Budget(0.01, 1e-7), ScoreRange())
    assert found.mean is None
    assert "too few" in str(found)


def test_nothing_is_charged_for_what_is_refused(site, tmp_path, capsys):
    ledger = Ledger(SiteSettings.from_file(site).ledger)
    before = len(ledger.charges)
    with pytest.raises(InvalidArgument, match="not the parameters of this study's model"):
        held_out_score(site, a_posterior(np.zeros(2)), LARGE, ScoreRange())
    with pytest.raises(BudgetError):
        held_out_score(site, a_posterior(), Budget(100, 1e-6), ScoreRange())
    with pytest.raises(InvalidArgument, match="lower to a higher"):
        ScoreRange(low=0.0, high=0.0)
    plain = site.with_name("plain.toml")
    plain.write_text(site.read_text().replace("held_out =", "# held_out ="))
    a_posterior().save(tmp_path / "posterior.nc")
    command = ["federated", "score", str(plain), str(tmp_path / "posterior.nc")]
    assert main([*command, "--epsilon", "1", "--delta", "1e-6"]) == 2
    assert "names no held-out rows" in capsys.readouterr().err
    assert len(ledger.charges) == before
