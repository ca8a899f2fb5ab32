"""What single sites do to a posterior is seen, and a site can be taken out."""

import logging

import numpy as np
import pytest
from through_origin import through_origin

from tacit import Rows
from tacit.errors import InvalidArgument, TacitError
from tacit.federated import Partitioned
from tacit.federated.method import run_in_process
from tacit.federated.schemes import WithoutPrivacy

TARGET = through_origin(2, noise_sd=0.5, prior_sd=3.0)
METHOD = Partitioned(scheme=WithoutPrivacy(), num_rounds=2)


def fitted(slopes):
    rng = np.random.default_rng(1)
    rows = {}
    for name, slope in slopes.items():
        x = rng.normal(size=(30, 2)).astype(np.float32)
        y = (x @ slope + 0.5 * rng.normal(size=30)).astype(np.float32)
        rows[name] = Rows({"x": x, "y": y})
    return run_in_process(METHOD, TARGET, rows, dict.fromkeys(rows), run="r").server


@pytest.fixture(scope="module")
def server():
    return fitted({"north": [1.0, -2.0], "south": [1.0, -2.0], "west": [40.0, 9.0]})


def test_a_site_that_moves_the_posterior_is_named_and_can_be_left_out(server):
    found = server.influence()
    assert max(found, key=lambda name: found[name].moved) == "west"
    said = METHOD.fitted(TARGET, server, 0).messages
    assert any(each.startswith("Without west the posterior would move") for each in said)
    alone = fitted({"north": [1.0, -2.0], "south": [1.0, -2.0]})
    assert np.allclose(server.without(["west"]), alone.posterior, rtol=1e-4)


def test_sites_that_are_alike_are_not_named():
    alike = fitted({"north": [1.0, -2.0], "south": [1.0, -2.0], "west": [1.0, -2.0]})
    assert max(each.moved for each in alike.influence().values()) < 3
    assert not [each for each in METHOD.fitted(TARGET, alike, 0).messages if "leave it out" in each]


def test_no_round_accuses_a_site_and_the_end_has_the_influence_of_all(caplog):
    with caplog.at_level(logging.INFO, "tacit"):
        held = fitted({"north": [1.0, -2.0], "west": [40.0, 9.0]})
        assert not caplog.records
        METHOD.fitted(TARGET, held, 0)
    found = held.influence()
    for name in found:
        assert f"{name} {found[name].moved:.1f}" in caplog.records[-1].getMessage()


def test_what_is_not_known_is_not_told(server):
    server.factors["north"] = server.posterior
    with pytest.raises(TacitError, match="not a distribution"):
        server.without(["north", "south"])
    assert server.influence()["north"].moved == np.inf
    server.tracked = False
    assert server.influence() == {}
    with pytest.raises(InvalidArgument, match="sum of answers"):
        server.without(["west"])
