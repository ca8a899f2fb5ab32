"""Masks hide what a site sends, cancel in the sum, and are refused to a server that cheats."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from masked_sites import MaskedInProcess
from scipy import stats
from through_origin import through_origin

from tacit import Budget, Ledger, Rows
from tacit.errors import InvalidArgument
from tacit.federated import Partitioned
from tacit.federated.masks import LedgerMaskKeys, MaskedSite, Masker, Roster
from tacit.federated.method import prepare_site, run_in_process
from tacit.federated.protocol import Offer, Session, Task
from tacit.federated.schemes import ClippedChanges
from tacit.federated.server import run_schedule
from tacit.privacy.noise import Randomness

NAMES = ("north", "south", "west")
IDENTITIES = {name: Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32)) for name in NAMES}
ROSTER = Roster(
    members={name: key.public_key().public_bytes_raw() for name, key in IDENTITIES.items()}
)
FIRST = Session("r", 1)
ABOUT = b"a posterior"


def maskers(roster=ROSTER, keys=None):
    keys = keys or {}
    return {name: Masker(name, IDENTITIES[name], roster, keys.get(name)) for name in NAMES}


def offers_of(sites, session=FIRST):
    return [site.offer(session) for site in sites.values()]


def masked(sites, values, session=FIRST):
    offers = offers_of(sites, session)
    return {name: site.mask(session, offers, values[name], ABOUT) for name, site in sites.items()}


def test_the_sum_is_exact_also_for_negative_and_large_numbers():
    rng = np.random.default_rng(0)
    values = {name: rng.integers(-(2**60), 2**60, size=1000) for name in NAMES}
    total = np.sum(list(masked(maskers(), values).values()), axis=0)
    assert np.array_equal(total, sum(values.values()))


@pytest.mark.parametrize("shift", [0, 10, 56])
def test_what_a_site_sends_is_uniform_whatever_it_holds(shift):
    constant = {name: np.full(200_000, 7) for name in NAMES}
    for sent in masked(maskers(), constant).values():
        bins = np.bincount((sent.view(np.uint64) >> np.uint64(shift)) & np.uint64(255))
        assert stats.chisquare(bins, ddof=0).pvalue > 1e-6
        neighbours = np.bincount((sent[1:] ^ sent[:-1]).view(np.uint64) >> np.uint64(56))
        assert stats.chisquare(neighbours).pvalue > 1e-6
    # The sum over two of three sites, which a server may form, is as uniform.
    two = masked(maskers(), constant)
    partial = (two["north"] + two["west"]).view(np.uint64) >> np.uint64(56)
    assert stats.chisquare(np.bincount(partial)).pvalue > 1e-6


def test_two_values_masked_in_two_attempts_have_nothing_in_common():
    sites, values = maskers(), {name: np.zeros(1000, np.int64) for name in NAMES}
    one = masked(sites, values)
    two = masked(sites, values, Session("r", 1, 2))
    for name in NAMES:
        assert not np.intersect1d(one[name], two[name]).size
    assert not np.sum(list(two.values()), axis=0).any()


@pytest.mark.parametrize("told", [1, 2, 4, 100])
def test_a_client_told_a_wrong_number_of_sites_refuses(told):
    sites = maskers()
    offers = (offers_of(sites) * 34)[:told]
    with pytest.raises(InvalidArgument, match="expects 3 sites"):
        sites["north"].mask(FIRST, offers, np.zeros(3, np.int64), ABOUT)


def stranger(session=FIRST):
    key = Ed25519PrivateKey.generate()
    roster = Roster(members={**ROSTER.members, "east": key.public_key().public_bytes_raw()})
    return Masker("east", key, roster).offer(session)


def forgeries(sites):
    north, south, west = offers_of(sites)
    other_round = maskers()["west"].offer(Session("r", 2))
    other_run = maskers()["west"].offer(Session("other", 1))
    other_attempt = maskers()["west"].offer(Session("r", 1, 2))
    return {
        "unknown": [north, south, stranger()],
        "not its own": [north, south, replace(stranger(), site="west")],
        "key exchanged": [north, south, replace(west, key=south.key)],
        "unsigned": [north, south, Offer("west", west.key, bytes(64))],
        "of another round": [north, south, other_round],
        "of another run": [north, south, other_run],
        "of another attempt": [north, south, other_attempt],
        "twice the same": [north, south, south],
        "without itself": [south, west, stranger()],
    }


@pytest.mark.parametrize("kind", forgeries(maskers()))
def test_a_forged_or_replayed_key_is_refused(kind):
    sites = maskers()
    with pytest.raises(InvalidArgument):
        sites["north"].mask(FIRST, forgeries(sites)[kind], np.zeros(3, np.int64), ABOUT)


def test_a_member_with_other_terms_is_refused_whatever_the_server_says():
    """Its share of the noise could be smaller than the others count on."""
    sites = {name: Masker(name, IDENTITIES[name], ROSTER, terms=b"epsilon 1") for name in NAMES}
    sites["west"] = Masker("west", IDENTITIES["west"], ROSTER, terms=b"epsilon 10")
    with pytest.raises(InvalidArgument, match="another study"):
        sites["north"].mask(FIRST, offers_of(sites), np.zeros(3, np.int64), ABOUT)


@pytest.fixture(params=["memory", "disk"])
def keys(request, tmp_path):
    if request.param == "memory":
        return dict.fromkeys(NAMES)
    return {
        name: LedgerMaskKeys(Ledger.new(tmp_path / f"{name}.db", total=Budget(1, 1e-5)))
        for name in NAMES
    }


def test_a_key_masks_one_message(keys):
    sites = maskers(keys=keys)
    offers, values = offers_of(sites), np.arange(5)
    assert offers_of(sites) == offers  # asked again before it is used
    first = sites["north"].mask(FIRST, offers, values, ABOUT)
    assert np.array_equal(sites["north"].mask(FIRST, offers, values, ABOUT), first)
    with pytest.raises(InvalidArgument, match="another attempt"):
        sites["north"].mask(FIRST, offers, values + 1, b"another posterior")
    with pytest.raises(InvalidArgument, match="used its key"):
        sites["north"].offer(FIRST)


def test_a_key_survives_a_restart_and_is_then_gone(tmp_path):
    Ledger.new(tmp_path / "north.db", total=Budget(1, 1e-5))

    def north():
        book = Ledger(tmp_path / "north.db")
        return Masker("north", IDENTITIES["north"], ROSTER, LedgerMaskKeys(book))

    others = maskers()
    offers = [north().offer(FIRST), others["south"].offer(FIRST), others["west"].offer(FIRST)]
    values = {name: np.arange(4) for name in NAMES}
    sent = [north().mask(FIRST, offers, values["north"], ABOUT)]
    sent += [others[name].mask(FIRST, offers, values[name], ABOUT) for name in NAMES[1:]]
    assert np.array_equal(np.sum(sent, axis=0), 3 * np.arange(4))
    assert np.array_equal(north().mask(FIRST, offers, values["north"], ABOUT), sent[0])


def test_one_answer_goes_into_the_sum_of_one_group():
    sites = maskers(replace(ROSTER, together=2))
    offers = {name: site.offer(FIRST) for name, site in sites.items()}
    values = np.zeros(3, np.int64)
    sites["north"].mask(FIRST, [offers["north"], offers["south"]], values, ABOUT)
    again = Session("r", 1, 2)
    pair = [sites["north"].offer(again), sites["west"].offer(again)]
    with pytest.raises(InvalidArgument, match="different group of sites"):
        sites["north"].mask(again, pair, values, ABOUT)


def test_an_answer_that_was_masked_for_all_sites_is_not_masked_for_fewer():
    """The difference of the two sums would be the answer of the site that left, with its share of noise."""
    sites = maskers(replace(ROSTER, dropouts=1))
    values = np.zeros(3, np.int64)
    sites["north"].mask(FIRST, offers_of(sites), values, ABOUT)
    for attempt, left in enumerate(("south", "west"), start=2):
        again = Session("r", 1, attempt)
        fewer = [site.offer(again) for name, site in sites.items() if name != left]
        with pytest.raises(InvalidArgument, match="different group of sites"):
            sites["north"].mask(again, fewer, values, ABOUT)
    fewer = [sites[name].offer(Session("r", 2)) for name in ("north", "south")]
    sites["north"].mask(Session("r", 2), fewer, values, ABOUT)
    with pytest.raises(InvalidArgument, match="expects 2 to 3 sites in a round, but there are 1"):
        sites["south"].mask(Session("r", 2), fewer[1:], values, ABOUT)


def test_sites_that_were_told_differently_do_not_cancel():
    sites = maskers()
    offers = offers_of(sites)
    abouts = {"north": b"one posterior", "south": b"another", "west": b"another"}
    values = np.zeros(1000, np.int64)
    total = sum(site.mask(FIRST, offers, values, abouts[name]) for name, site in sites.items())
    assert np.median(np.abs(total.astype(np.float64))) > 2.0**60


RNG = np.random.default_rng(1)
X = RNG.normal(size=(90, 2)).astype(np.float32)
Y = (X @ [1.0, -2.0] + 0.5 * RNG.normal(size=90)).astype(np.float32)
TARGET = through_origin(2, noise_sd=0.5, prior_sd=3.0)
SHARES = {name: Rows({"x": X[i::3], "y": Y[i::3]}) for i, name in enumerate(NAMES)}
METHOD = Partitioned(
    scheme=ClippedChanges(clip=50.0, noise="split"), num_rounds=3, spare_answers=1, damping=0.5
)
BUDGET = Budget(20, 1e-5)


def masked_sites():
    sites = maskers()
    return [
        MaskedSite(
            prepare_site(
                name, SHARES[name], METHOD, TARGET, run="r", sites=3, budget=BUDGET, seed=1
            ),
            sites[name],
        )
        for name in NAMES
    ]


def masking_server():
    return METHOD.server(TARGET, NAMES, run="r", budget=BUDGET, source=Randomness(1))


def test_a_masked_fit_is_the_fit_without_masks():
    found = run_in_process(METHOD, TARGET, SHARES, dict.fromkeys(NAMES, BUDGET), run="r", seed=1)
    server = masking_server()
    run_schedule(server, MaskedInProcess(masked_sites()), METHOD.rounds(3))
    assert np.array_equal(server.posterior, found.server.posterior)
    assert np.abs(server.posterior - TARGET.prior).max() > 1


class LosesOne(MaskedInProcess):
    """In the second exchange an answer of a site is lost."""

    def exchange(self, tasks):
        replies = super().exchange(tasks)
        if self._attempt == 2:
            del replies["south"]
        return replies


def test_a_round_that_lacks_an_answer_is_asked_again_with_new_masks_and_costs_nothing():
    server, sites = masking_server(), LosesOne(masked_sites())
    trace = run_schedule(server, sites, METHOD.rounds(3))
    assert np.array_equal(
        trace, run_schedule(masking_server(), MaskedInProcess(masked_sites()), METHOD.rounds(3))
    )
    assert sites._attempt == 4


def test_no_question_tells_what_a_masked_answer_was():
    """Refusals cost nothing: by halving, a server would find what the sum hides."""
    sites, told = masked_sites(), set()
    run_schedule(masking_server(), MaskedInProcess(sites), METHOD.rounds(3))
    for size in (1e-9, 1e9, -1e9):
        share = np.array([size, 0, 0, 0, 0])
        task = Task(run="r", round=4, posterior=TARGET.prior, applied_round=3, applied_share=share)
        offers = [site.offer(Session("r", 4)) for site in sites]
        try:
            sites[0].answer(task, 1, offers)
        except InvalidArgument as error:
            told.add(str(error))
    assert told == {"north does not keep answers of this run in its own factor."}


def test_nothing_is_charged_before_the_keys_are_accepted(tmp_path):
    book = Ledger.new(tmp_path / "north.db", total=BUDGET, unit="data set")
    site = prepare_site(
        "north", SHARES["north"], METHOD, TARGET, run="r", sites=3, budget=BUDGET, ledger=book
    )
    sites = maskers()
    north = MaskedSite(site, sites["north"])
    task = masking_server().tasks(NAMES)["north"]
    with pytest.raises(InvalidArgument, match="expects 3 sites"):
        north.answer(task, 1, offers_of(sites)[:2])
    assert not book.charges
    north.answer(task, 1, offers_of(sites))
    assert len(book.charges) == 1


@pytest.mark.parametrize(
    ("members", "together"),
    [
        ({"a": bytes(32)}, None),
        ({"a": bytes(32), "b": bytes(32)}, None),
        ({"a": bytes(31), "b": bytes([1] * 31)}, None),
        (ROSTER.members, 4),
        (ROSTER.members, 1),
    ],
)
def test_rosters_that_name_nobody_to_hide_among_are_refused(members, together):
    with pytest.raises(InvalidArgument):
        Roster(members=members, together=together)


def test_shares_too_coarse_to_add_up_to_normal_noise_are_refused():
    METHOD.scheme.prepare(METHOD.setting(TARGET, BUDGET, 3))
    setting = METHOD.setting(TARGET, None, 3)
    replace(METHOD.scheme, noise_multiplier=1e-4).prepare(setting)
    with pytest.raises(InvalidArgument, match="so few lattice points"):
        replace(METHOD.scheme, noise_multiplier=1e-7).prepare(setting)


def test_a_question_that_two_processes_mask_at_once_gets_the_same_bytes(tmp_path):
    keys = LedgerMaskKeys(Ledger.new(tmp_path / "a.db", total=Budget(1, 1e-5), unit="data set"))
    keys.get_or_store(b"session", b"secret")
    assert keys.spend(b"session", b"question", b"one") == b"one"
    assert keys.spend(b"session", b"question", b"two") == b"one"
    with pytest.raises(InvalidArgument, match="has been used"):
        keys.spend(b"session", b"another", b"three")
