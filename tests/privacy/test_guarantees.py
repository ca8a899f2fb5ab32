"""The sections "Formal guarantees" of releases: their theorems are there, and their sensitivities are those that are charged.

What is charged is asked of the accountant, and what is done of the code that clips and draws noise: neither is
taken from the docstring or from a mechanism's description of itself.
"""

import inspect
import math
import re
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import tacit
from tacit import conjugate
from tacit.accounting import ADJACENCIES, PLD, Renyi, events
from tacit.errors import UnsupportedEvent
from tacit.federated.schemes import ClippedChanges, RunSetting
from tacit.federated.targets import conjugate_target
from tacit.papers.response import randomised_response
from tacit.privacy import clipping
from tacit.privacy.distributed import add_server_noise
from tacit.privacy.mechanisms import BarkerTests, NoisySums, Release, SampledBarkerTests
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood
from tacit.privacy.one_draw.exact import GridDraws, StatisticDraws
from tacit.privacy.one_draw.gate import _DRAW_FUNCTIONS
from tacit.privacy.one_draw.logistic import LogisticDraws

SOURCE = Path(tacit.__file__).parent
PROOFS = [SOURCE / "privacy" / "PROOFS.md", SOURCE / "federated" / "PROOFS.md"]
FIELDS = (
    "Released",
    "Neighbours",
    "Sensitivity under add-remove",
    "Sensitivity under replace",
    "Event",
    "Public inputs",
    "Theorem",
)
RELEASES = {
    release.__name__: release
    for release in (
        *(each for name, each in vars(Release).items() if not name.startswith("_")),
        *(draw for _, draw in _DRAW_FUNCTIONS.values()),
        randomised_response,
        add_server_noise,
    )
}


def guarantee(release):
    """The fields of a release's section."""
    text = inspect.cleandoc(release.__doc__).partition("Formal guarantees:\n")[2]
    found = {}
    for line in inspect.cleandoc(text).splitlines():
        if not line.startswith(" "):
            name, _, said = line.partition(": ")
            found[name] = said
        else:
            found[name] += " " + line.strip()
    return found


def headings():
    """Theorems, lemmas and corollaries of both files, as (kind, number)."""
    text = "\n".join(path.read_text() for path in PROOFS)
    return re.findall(r"^## (Theorem|Lemma|Corollary) (F?\d+[A-Z]?)\b", text, re.MULTILINE)


def test_numbers_of_theorems_and_lemmas_are_used_once_and_in_order():
    found = headings()
    assert len(found) > 20
    assert len(set(found)) == len(found)
    for kind in ("Theorem", "Lemma"):
        for letter in ("", "F"):
            own = [n for k, n in found if k == kind and re.fullmatch(rf"{letter}\d+", n)]
            numbers = [int(n.removeprefix(letter)) for n in own]
            assert numbers == list(range(numbers[0], numbers[0] + len(own)))


@pytest.mark.parametrize("folder", ["privacy", "federated"])
def test_what_the_code_cites_exists(folder):
    """Theorems of papers are cited with their authors, and not by the boundary's code."""
    known = set(headings())
    for path in (SOURCE / folder).rglob("*.py"):
        text = re.sub(r"\s*\n[ #]*", " ", path.read_text())
        for kind, number in re.findall(r"(?<!\. )(Theorem|Lemma) (F\d+|1S|\d+)\b", text):
            cited = (kind, number) in known or re.search(rf"\d{{4}}, {kind} {number}\b", text)
            assert cited, f"{path.name}: {kind} {number}"


@pytest.mark.parametrize("name", RELEASES)
def test_every_release_states_its_guarantee(name):
    said = guarantee(RELEASES[name])
    assert tuple(said) == FIELDS
    cited = re.findall(r"\bF?\d+[A-Z]?\b", said["Theorem"])
    known = {number for kind, number in headings() if kind == "Theorem"}
    assert set(cited) <= known
    if not cited:
        (section,) = re.findall(r'see "(.+)"', said["Theorem"])
        assert any(f"## {section}" in path.read_text() for path in PROOFS)


def test_every_theorem_of_a_release_names_it():
    """The other way round: a theorem on a release of the boundary is cited by it."""
    text = PROOFS[0].read_text()
    for number, names in re.findall(r"^## Theorem (\d+)[^(\n]*\((.*?)\)", text, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            if name in RELEASES:
                assert re.search(rf"\b{number}\b", guarantee(RELEASES[name])["Theorem"]), name


def stated(name, adjacency, mechanism):
    """The sensitivity that a release states, as a number, or None if there is none."""
    said = guarantee(RELEASES[name])[f"Sensitivity under {adjacency}"]
    exceptions = re.findall(r"none for `(\w+)`", said)
    if said.startswith("none") or mechanism.get("kind") in exceptions:
        return None
    (formula,) = re.match(r"`([^`]+)`", said).groups()
    return eval(formula, {"log": math.log, "sqrt": math.sqrt}, mechanism)  # noqa: S307


def fields(mechanism, kind=None):
    """The public numbers of a mechanism, for a formula."""
    names = [name for name in dir(mechanism) if not name.startswith("_")]
    own = {name: getattr(mechanism, name) for name in names}
    return own | {"kind": kind or type(mechanism).__name__}


def gaussian_epsilon(mu, delta):
    """Of the Gaussian mechanism, by its exact curve (Balle and Wang 2018)."""

    def beyond(epsilon):
        return (
            ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta
        )

    return brentq(beyond, 0, 200)


def summing(**more):
    settings = {"sampling_rate": 1.0, "num_steps": 1, "clip": 0.7, "dimension": 3}
    return NoisySums(**settings, **{"noise_multiplier": 1.3, **more})


def moved(mechanism, adjacency):
    """How far the most extreme units move a step's sum: by the code that clips them."""
    clip, lattice = jnp.float32(mechanism.clip), mechanism.lattice
    if isinstance(mechanism, NoisySums):
        place = clipping.clip_to_lattice if lattice.order == 2 else clipping.clip_to_lattice_l1
        ends = [
            np.asarray(place(jnp.float32([s, s, 0]) * 1e9, clip, lattice.points)) for s in (1, -1)
        ]
    else:
        ends = np.asarray(clipping.clip_ratios(jnp.float32([jnp.inf, -jnp.inf]), clip, lattice))
    change = ends[0] - (ends[1] if adjacency == "replace" else 0)
    order = getattr(lattice, "order", 1)
    return np.linalg.norm(np.atleast_1d(change), order) * mechanism.clip / lattice.points


STEPS = {
    "sums": ("noisy_sum", summing()),
    "sums, Laplace": ("noisy_sum", summing(laplace=True)),
    "sums with secrets": ("noisy_sum", summing(secrets=True)),
    "tests": ("noisy_test", BarkerTests(num_steps=1, ratio_bound=0.8)),
    "published tests": (
        "noisy_test",
        BarkerTests(num_steps=1, ratio_bound=0.8, noise_variance=2),
    ),
}


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("case", STEPS)
def test_the_sensitivity_of_a_step_is_stated_enforced_and_charged(case, adjacency):
    name, mechanism = STEPS[case]
    sensitivity = stated(name, adjacency, fields(mechanism))
    assert 0.998 * sensitivity <= moved(mechanism, adjacency) <= sensitivity * (1 + 1e-6)
    drawn = replace(mechanism, num_steps=60_000).noise(Randomness(1), 0, 60_000)
    is_test = isinstance(mechanism, BarkerTests)
    spread = drawn.view(np.float64).std() if is_test else drawn.std() * mechanism.grid
    if case == "sums, Laplace":
        expected, delta = sensitivity / (spread / math.sqrt(2)), 0.0
    elif case == "tests":  # logistic noise: the log odds move by what the sum does
        expected, delta = sensitivity / (spread / (math.pi / math.sqrt(3))), 0.0
    else:
        expected, delta = gaussian_epsilon(sensitivity / spread, 1e-5), 1e-5
    assert PLD().epsilon(mechanism.event, delta, adjacency) == pytest.approx(expected, rel=0.02)


def test_a_test_on_a_batch_has_a_bound_under_replace_alone():
    mechanism = SampledBarkerTests(num_steps=1, batch_size=50, dataset_size=900, tempered_size=90)
    assert stated("noisy_test", "add-remove", fields(mechanism)) is None
    sensitivity = stated("noisy_test", "replace", fields(mechanism))
    assert 0.998 * sensitivity <= moved(mechanism, "replace") <= sensitivity
    assert Renyi().epsilon(mechanism.event, 1e-5, "replace") < math.inf
    with pytest.raises(UnsupportedEvent):
        Renyi().epsilon(mechanism.event, 1e-5, "add-remove")


GRID = {"power": 0.3, "low": (0.0,), "high": (1.0,), "points": (5,)}
TABLES = {"at_low": np.array([0.0, 0.7, 1.1]), "at_high": np.array([0.4, -0.9, 0.0])}
DRAWS = {
    "bounded": ("draw_from_grid", GridDraws(claim=BoundedLikelihood(bound=1.7), **GRID)),
    "Lipschitz": ("draw_from_grid", GridDraws(claim=LipschitzLikelihood(slope=1.7, radius=2), **GRID)),
    "statistic": (
        "draw_by_statistic",
        StatisticDraws(
            column="y", low=0, high=1, steps=4, places=np.arange(3.0), prior=np.zeros(3), power=0.5,
            rows_per_unit=2, **TABLES,
        ),
    ),
    "logistic": (
        "draw_by_rejection",
        LogisticDraws(
            features="x", outcome="y", dimension=2, radius=1.5, precision=4.0, power=0.5,
            resolution=0.1, rows_per_unit=3,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("case", DRAWS)
def test_the_sensitivity_of_a_draw_is_the_one_that_is_charged(case, adjacency):
    name, mechanism = DRAWS[case]
    claim = type(mechanism.claim).__name__ if isinstance(mechanism, GridDraws) else None
    sensitivity = stated(name, adjacency, fields(mechanism, claim))
    if sensitivity is None:
        with pytest.raises(UnsupportedEvent):
            PLD().epsilon(mechanism.event, 0.0, adjacency)
        return
    charged = PLD().epsilon(mechanism.event, 1e-5 if case == "logistic" else 0.0, adjacency)
    wanted = gaussian_epsilon(sensitivity, 1e-5) if case == "logistic" else sensitivity
    assert charged == pytest.approx(wanted, rel=1e-3)


def test_the_sensitivity_of_an_answer_is_the_one_that_is_charged():
    given = {"noise": 0.4, "num_categories": 5}
    event = events.randomised_response(**given)
    assert stated("randomised_response", "add-remove", given) is None
    with pytest.raises(UnsupportedEvent):
        PLD().epsilon(event, 0.0, "add-remove")
    charged = PLD().epsilon(event, 0.0, "replace")
    assert charged == pytest.approx(stated("randomised_response", "replace", given), rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_sensitivity_of_a_total_is_the_one_that_is_charged(adjacency):
    """The noise that the server adds, over the lattice points of a clip at the sites."""
    target = conjugate_target(conjugate.Bernoulli("y"))
    scheme = ClippedChanges(noise="server", clip=0.5, noise_multiplier=1.7)
    setting = RunSetting(target=target, budget=None, answers=1, sites=3, together=3)
    prepared, server = scheme.prepare(setting), scheme.aggregation(setting, Randomness(0))
    points = prepared.work.mechanism.lattice.points
    mu = stated("add_server_noise", adjacency, {"points": points}) / server.aggregate.points
    charged = PLD().epsilon(prepared.event, 1e-5, adjacency)
    assert charged == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-3)
