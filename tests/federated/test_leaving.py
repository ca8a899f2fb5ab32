"""Sites that leave a run whose noise is shared: nobody's answer is in two sums, and the others go on."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from masked_sites import MaskedInProcess
from test_masks import IDENTITIES, ROSTER
from test_scored import BUDGET, MODEL, NAMES, sites_of

import tacit
from tacit.accounting import PLD, events
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument, LedgerError, TacitError
from tacit.federated import PooledScoring
from tacit.federated.masks import LedgerMaskKeys, MaskedSite, Masker, Roster
from tacit.federated.method import prepare_site
from tacit.federated.server import run_schedule
from tacit.privacy.noise import Randomness

METHOD = PooledScoring(num_rounds=6, noise="split", dishonest=0, dropouts=1, spare_answers=1)


@pytest.fixture(scope="module")
def target():
    return METHOD.target(MODEL)


class Leaving(MaskedInProcess):
    """West is gone from an exchange on: in its middle, or before it gave a key."""

    def __init__(self, sites, last, *, middle, returns=99):
        super().__init__(sites)
        self.last, self.middle, self.returns, self.asked = last, middle, returns, []

    def exchange(self, tasks):
        self.asked.append(next(iter(tasks.values())).round)
        there = len(self.asked)
        gone = self.last < there < self.returns
        if gone and not (self.middle and there == self.last + 1):
            tasks = {name: task for name, task in tasks.items() if name != "west"}
        replies = super().exchange(tasks)
        return {name: reply for name, reply in replies.items() if not (gone and name == "west")}


def masked_sites(method, target, rows):
    roster = replace(ROSTER, dropouts=method.dropouts)
    setting = {"run": "r", "sites": 3, "budget": BUDGET, "seed": 2}
    return [
        MaskedSite(
            prepare_site(name, rows[name], method, target, **setting),
            Masker(name, IDENTITIES[name], roster),
        )
        for name in NAMES
    ]


def run(target, method=METHOD, **leaving):
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    transport = Leaving(masked_sites(method, target, sites_of()), **leaving)
    run_schedule(server, transport, method.rounds(3))
    return server, transport


@pytest.mark.parametrize(
    ("middle", "asked"), [(True, [1, 2, 3, 4, 5, 6, 7]), (False, [1, 2, 3, 4, 5, 6])]
)
def test_a_site_that_leaves_for_good_does_not_end_the_run(target, middle, asked, caplog):
    server, transport = run(target, last=2, middle=middle)
    assert transport.asked == asked  # a round is given up only if answers were bound to all sites
    assert server.used == {"north": 6, "south": 6, "west": 2}
    assert server.abandoned == middle
    found = METHOD.fitted(target, server, 0)
    assert "The posterior is without the rows of west." in found.messages
    assert ("left in the middle" in caplog.text) == middle


def test_the_posterior_is_of_rounds_with_the_same_sites(target):
    """West misses one of three late rounds, and the others are of all sites."""
    server, _ = run(target, last=3, middle=False, returns=5)
    assert [len(each.members) for each in server.finished] == [3, 3, 3, 2, 3, 3]
    rounds, missing = server._rounds_without(())
    assert missing == ()
    assert [each.late for each in rounds.records] == [False, False, True, True]
    assert server.used["west"] == 5


def test_a_server_that_starts_again_knows_what_was_given_up(target):
    server, _ = run(target, last=2, middle=True)
    again = METHOD.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    states = [again.pack_state()]
    kept = METHOD.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    transport = Leaving(masked_sites(METHOD, target, sites_of()), last=2, middle=True)

    def keep(updated):
        if len(updated.trace) == len(states):  # not if a round was given up
            states.append(updated.pack_state())

    run_schedule(kept, transport, METHOD.rounds(3), save=keep)
    again.restore(states)
    rounds = [{n: each.round for n, each in s.applied.items()} for s in (again, server)]
    assert rounds[0] == rounds[1]
    assert (again.round, again.used, again.abandoned) == (server.round, server.used, 1)
    assert [each.members for each in again.finished] == [each.members for each in server.finished]


def test_as_many_sites_as_declared_may_leave_one_after_the_other(target):
    """Three leave in the middle of three consecutive rounds."""

    class OneByOne(MaskedInProcess):
        gone: tuple[str, ...] = ()

        def exchange(self, tasks):
            there = {name: task for name, task in tasks.items() if name not in self.gone}
            replies = super().exchange(there)
            if self._attempt in {2, 3, 4}:
                leaves = max(there)
                self.gone += (leaves,)
                del replies[leaves]
            return replies

    names = ("a", "b", "c", "d", "e")
    method = replace(METHOD, dropouts=3, spare_answers=3)
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    keys = {name: key.public_key().public_bytes_raw() for name, key in identities.items()}
    rows = dict(zip(names, 2 * tuple(sites_of().values()), strict=False))
    setting = {"run": "r", "sites": 5, "budget": BUDGET, "seed": 2}
    sites = [
        MaskedSite(
            prepare_site(name, rows[name], method, target, **setting),
            Masker(name, identities[name], Roster(members=keys, dropouts=3)),
        )
        for name in names
    ]
    server = method.server(target, names, run="r", budget=BUDGET, source=Randomness(0))
    run_schedule(server, OneByOne(sites), method.rounds(5))
    assert server.abandoned == 3
    assert server.used == {"a": 6, "b": 6, "c": 1, "d": 1, "e": 1}


def test_without_spare_sites_the_run_ends_with_a_sentence(target):
    class Silent(MaskedInProcess):
        def exchange(self, tasks):
            replies = super().exchange(tasks)
            return {name: reply for name, reply in replies.items() if name != "west"}

    method = replace(METHOD, dropouts=0)
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    transport = Silent(masked_sites(method, target, sites_of()))
    with pytest.raises(TacitError, match="3 consecutive rounds"):
        run_schedule(server, transport, method.rounds(3))


def test_the_noise_of_those_who_stay_is_enough(target):
    method = replace(METHOD, dishonest=2, dropouts=3, spare_answers=4)
    ready = method.scheme.prepare(method.setting(target, BUDGET, 11))
    of_sum = ready.work.mechanism.noise_std * np.sqrt(11 - 2 - 3)
    composed = events.gaussian(of_sum / np.sqrt(6 + 4))
    assert PLD().epsilon(composed, BUDGET.delta, "add-remove") <= BUDGET.epsilon * (1 + 1e-6)
    assert "up to 3 of the sites may leave" in " ".join(method.scheme.trust)


def test_a_sum_that_cannot_be_is_not_used(target, caplog):
    class Spoils(Leaving):
        def exchange(self, tasks):
            replies = super().exchange(tasks)
            if len(self.asked) == 2:
                wrong = replies["west"].change.copy()
                wrong[0] += 2**40
                replies["west"] = replace(replies["west"], change=wrong)
            return replies

    server = METHOD.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    transport = Spoils(masked_sites(METHOD, target, sites_of()), last=99, middle=False)
    run_schedule(server, transport, METHOD.rounds(3))
    assert "a site is not honest" in caplog.text
    assert transport.asked == [1, 2, 2, 3, 4, 5, 6]
    assert np.array_equal(server.trace, run(target, last=99, middle=False)[0].trace)


@pytest.mark.parametrize(
    "settings",
    [{"noise": "site"}, {"spare_answers": 0}, {"dropouts": -1}],
)
def test_settings_that_keep_no_promise_are_refused(settings):
    with pytest.raises(InvalidArgument):
        replace(METHOD, **settings)
    assert tacit.federated.PooledScoring().dropouts == 0


def test_two_sites_of_which_one_may_leave_are_refused(target):
    with pytest.raises(InvalidArgument, match="whose answer nobody masks"):
        METHOD.scheme.prepare(METHOD.setting(target, BUDGET, 2))


def test_a_ledger_without_the_group_of_an_answer_is_refused(tmp_path):
    """A copy from before the answer was masked would let a site mask it for another group."""
    path, copy = tmp_path / "a.db", tmp_path / "copy"
    book = Ledger.new(path, total=tacit.Budget(1, 1e-5))
    keys = LedgerMaskKeys(book)
    copy.write_bytes(path.read_bytes())
    assert keys.bind_group(b"round 1", b"all") == b"all"
    assert keys.bind_group(b"round 1", b"fewer") == b"all"
    path.write_bytes(copy.read_bytes())
    with pytest.raises(LedgerError):
        LedgerMaskKeys(Ledger(path)).bind_group(b"round 1", b"fewer")
