"""A server that lies to sites, and a site that lies to the server, over Flower's messages.

Whatever a server sends, nothing leaves a site that was not charged, and noise and clip are those that were charged. Whatever
a site sends, honest sites give no more answers than those of an honest run.
"""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("flwr")

from fake_grid import FakeGrid, as_by_flower  # noqa: F401 (for every test)
from flwr.app import ConfigRecord, Message, RecordDict
from sites_on_disk import NAMES, make_sites

from tacit.accounting import PLD
from tacit.accounting.ledger import Ledger
from tacit.errors import TacitError
from tacit.federated.deploy import OpenSite, answer_message, load_study
from tacit.federated.flower_grid import serve
from tacit.federated.protocol import task_fields
from tacit.federated.settings import SiteSettings

ANSWERS = 3  # one round, and two that are spare


def study_of(files):
    return load_study(files["north"].parent / "study.py")


def first_task(files):
    study = study_of(files)
    return task_fields(study.server().tasks(NAMES)["north"], agreed=study.agreement.text)


def asked(files, fields):
    """What the site of the first node says to a message."""
    message = Message(RecordDict({"tacit": ConfigRecord(fields)}), 1, "query")
    return dict(FakeGrid(files).call(message).content.config_records["tacit"])


def spent(file):
    """How many charges and answers the ledger of a site has, which lies beside a file of it."""
    with closing(sqlite3.connect(f"file:{file.parent / 'site.db'}?mode=ro", uri=True)) as book:
        names = {name for (name,) in book.execute("select name from sqlite_master")}
        count = "select count(*) from {}"
        return tuple(
            book.execute(count.format(name)).fetchone()[0] if name in names else 0
            for name in ("charges", "answers")
        )


def numbers(*values):
    return np.array(values, "<f8").tobytes()


def agreeing(fields, **parts):
    """Terms of the server that differ from those of the sites."""
    return {"agreed": json.dumps(json.loads(fields["agreed"]) | parts)}


# A server that lies ---------------------------------------------------------------------------

# What it changes in the first task of an honest one: each makes a task that no site answers.
REFUSED = {
    "a state that is NaN": lambda f: {"posterior": f["posterior"][:-8] + numbers(np.nan)},
    "an infinite state": lambda f: {"posterior": numbers(np.inf) + f["posterior"][8:]},
    "a huge state": lambda f: {"posterior": f["posterior"][:-8] + numbers(1e300)},
    "a state that is no distribution": lambda f: {
        "posterior": (-np.frombuffer(f["posterior"])).tobytes()
    },
    "a state too short": lambda f: {"posterior": f["posterior"][:-8]},
    "a state too long": lambda f: {"posterior": f["posterior"] + numbers(0.0)},
    "no state": lambda _: {"posterior": b""},
    "half a number": lambda f: {"posterior": f["posterior"][:-3]},
    "a state of text": lambda _: {"posterior": "0, 0, 0"},
    "a round of text": lambda _: {"round": "first"},
    "an answer that never was": lambda f: {
        "applied_round": 1,
        "applied_share": np.ones(len(f["posterior"]) // 8).tobytes(),
    },
    "another run": lambda _: {"run": "another"},
    "another kind of message": lambda _: {"kind": "rows"},
    "no kind of message": lambda _: {"kind": ""},
    "masks of nobody": lambda _: {"sites": ["north"], "keys": [], "signatures": []},
    "no terms": lambda _: {"agreed": ""},
    "another budget": lambda f: agreeing(f, budget="epsilon 1000"),
    "another method": lambda f: agreeing(f, method="ClippedStatistics(clip=1e9)"),
    "another model": lambda f: agreeing(f, model="0" * 64),
    "another schema": lambda f: agreeing(f, schema="[]"),
    "another list of sites": lambda f: agreeing(f, sites="north"),
    "another run in its terms": lambda f: agreeing(f, run="another"),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """Sites of which no answer was asked, and a first task for one of them."""
    files = make_sites(tmp_path_factory.mktemp("untouched"), rounds=1, seed=3)
    return files, first_task(files)


@pytest.mark.parametrize("name", REFUSED)
def test_a_task_of_a_lying_server_is_refused_and_costs_nothing(untouched, name):
    files, fields = untouched
    said = asked(files, {**fields, **REFUSED[name](fields)})
    assert set(said) == {"kind", "error"}
    assert spent(files["north"]) == (0, 0)


# What no site takes from a message: settings of its own, and a key of its noise.
ORDERS = {
    "clip": 1e9,
    "noise_multiplier": 0.0,
    "noise": "none",
    "sampling_rate": 1.0,
    "steps": 10**6,
    "epsilon": 1e9,
    "delta": 1.0,
    "answers": 10**6,
    "rounds": 10**6,
    "adjacency": "replace",
    "key": bytes(32),
    "seed": 0,
    "seeded": True,
    "site": "south",
    "name": "south",
    "grid": 1e9,
    "study": "study.py",
    "data": "data.csv",
    "ledger": "other.db",
    "hidden": True,
    "in_factor": True,
    "state": b"0",
}


def test_orders_about_clip_noise_and_budget_change_nothing(tmp_path):
    files = make_sites(tmp_path / "one", rounds=1, seed=3)
    others = make_sites(tmp_path / "other", rounds=1, seed=3)
    fields = first_task(files)
    assert asked(files, {**fields, **ORDERS}) == asked(others, fields)
    charges = [Ledger(each["north"].parent / "site.db").charges for each in (files, others)]
    assert [each.epsilon for each in charges[0]] == [each.epsilon for each in charges[1]]
    assert spent(files["north"]) == spent(others["north"]) == (1, 1)


def test_a_server_gets_the_answers_that_were_charged_and_no_more(tmp_path):
    """Replays get the same bytes; another task in an old round, or one too many, gets nothing."""
    files = make_sites(tmp_path, rounds=1)
    fields = first_task(files)
    half = (np.frombuffer(fields["posterior"]) / 2).tobytes()
    first = asked(files, fields)
    assert asked(files, fields) == first
    for other in ({"posterior": half}, {"mark": b"restarted"}, {"round": 0}, {"round": -7}):
        assert set(asked(files, {**fields, **other})) == {"kind", "error"}
    assert spent(files["north"]) == (1, 1)
    wrong = {"applied_share": numbers(*[np.nan] * (len(half) // 8)), "applied_round": 1}
    assert set(asked(files, {**fields, "round": 2, **wrong})) == {"kind", "error"}
    heard = {first["change"]}
    for number in range(2, 9):
        said = asked(files, {**fields, "round": number})
        assert ("change" in said) == (number <= ANSWERS)
        heard.add(said.get("change"))
    assert len(heard - {None}) == ANSWERS  # each with noise of its own
    assert spent(files["north"]) == (1, ANSWERS)
    assert asked(files, fields) == first  # still, and at no cost
    study, book = study_of(files), Ledger(files["north"].parent / "site.db")
    (charge,) = book.charges
    assert charge.epsilon >= PLD().epsilon(study.prepared.event, 1e-5) * (1 - 1e-6)
    assert study.prepared.event.count == ANSWERS


# Questions at the ends of what a site takes for one.
def as_it_is(question):
    return question


def far_away(question):
    return np.concatenate([np.full(3, 1e6), question[3:]])


def with_steep_metric(question):
    return np.concatenate([question[:3], np.full(9, 1e9), question[12:]])


def with_lengths(question, lengths):
    return np.concatenate([question[:12], np.full(4, lengths), question[16:]])


def of_scores(question):
    """A question for all that a row can add; the first round asks for its count alone."""
    return np.concatenate([question[:-9], np.full(9, 9**-0.5)])


HOSTILE = {
    "scored": [
        *(as_it_is, of_scores),
        lambda question: far_away(of_scores(question)),
        lambda question: with_steep_metric(of_scores(question)),
        *(lambda question, c=c: with_lengths(of_scores(question), c) for c in (1e-6, 1e6)),
        lambda question: with_lengths(with_steep_metric(far_away(of_scores(question))), 1e-6),
    ],
    "statistics": [as_it_is, lambda question: 1e-9 * question, lambda question: 1e9 * question],
}


@pytest.mark.parametrize("scheme", HOSTILE)
def test_answers_to_hostile_questions_have_the_clip_and_the_noise_that_were_charged(
    tmp_path, scheme
):
    """With the same keys noise cancels, and what one row moves is left; with others noise is left."""
    rounds = 2 * len(HOSTILE[scheme])
    files = make_sites(tmp_path / "as they are", scheme, seed=3, rounds=rounds)
    shutil.copytree(tmp_path / "as they are", tmp_path / "one row more")
    with (tmp_path / "one row more" / "north" / "data.csv").open("a") as table:
        table.write("-5,5,19\n")
    study = study_of(files)
    sites = [
        OpenSite(SiteSettings.from_file(tmp_path / each / "north" / "site.toml"), study)
        for each in ("as they are", "one row more")
    ]
    mechanism = study.prepared.work.work.mechanism
    fields, moved, number = first_task(files), [], 0
    for ask in HOSTILE[scheme]:
        question = ask(np.frombuffer(fields["posterior"])).tobytes()
        said = []
        for _ in range(2):
            number += 1
            task = {**fields, "round": number, "posterior": question}
            said.append([np.frombuffer(answer_message(site, task)["change"]) for site in sites])
            moved.append(np.linalg.norm(said[-1][0] - said[-1][1]))
        noise = (said[0][0] - said[1][0]) / np.sqrt(2)
        assert np.sqrt(np.mean(noise**2)) > 0.5 * mechanism.noise_std
    assert max(moved) <= mechanism.clip
    assert max(moved) > 0.5 * mechanism.clip  # somebody gets near it
    assert all(spent(site.settings.ledger) == (1, rounds) for site in sites)


MASKED = {
    "a key of the server's own": lambda f, _: {"keys": [*f["keys"][:-1], bytes(range(32))]},
    "signatures exchanged": lambda f, _: {"signatures": f["signatures"][::-1]},
    "a key of another round": lambda _, old: {k: old[k] for k in ("keys", "signatures")},
    "a site left out": lambda f, _: {k: f[k][:-1] for k in ("sites", "keys", "signatures")},
    "a site twice": lambda f, _: {
        k: [*f[k][:-1], f[k][1]] for k in ("sites", "keys", "signatures")
    },
    "only itself": lambda f, _: {k: f[k][:1] for k in ("sites", "keys", "signatures")},
    "no keys": lambda *_: {"sites": [], "keys": [], "signatures": []},
    "another attempt": lambda *_: {"attempt": 9},
}


def with_keys(files, fields, number):
    """A task with the keys that all sites offer for a round."""
    offers = []
    for node in range(1, len(NAMES) + 1):
        asks = {**fields, "kind": "offer", "round": number, "attempt": 1}
        message = Message(RecordDict({"tacit": ConfigRecord(asks)}), node, "query")
        offers.append(dict(FakeGrid(files).call(message).content.config_records["tacit"]))
    return {
        **fields,
        "round": number,
        "sites": [each["site"] for each in offers],
        "keys": [each["key"] for each in offers],
        "signatures": [each["signature"] for each in offers],
    }


def test_a_server_that_forges_masks_gets_nothing_and_nothing_is_charged(tmp_path):
    files = make_sites(tmp_path, "masked", rounds=1)
    fields = first_task(files)
    old, honest = (with_keys(files, fields, number) for number in (2, 1))
    for name, forged in MASKED.items():
        said = asked(files, {**honest, **forged(honest, old)})
        assert set(said) == {"kind", "error"}, name
        assert spent(files["north"]) == (0, 0), name
    assert "change" in asked(files, honest)
    # Another attempt would open the answer, were its masks of fewer sites or of the server's keys.
    for name in ("a key of the server's own", "a site left out", "only itself", "no keys"):
        again = {**honest, **MASKED[name](honest, old), "attempt": 2}
        assert set(asked(files, again)) == {"kind", "error"}, name
    assert spent(files["north"]) == (1, 1)


# A site that lies -----------------------------------------------------------------------------


class Lying(FakeGrid):
    """The first node answers every task with something else."""

    def __init__(self, files, lie):
        super().__init__(files)
        self.lie, self.first = lie, None

    def call(self, message):
        reply = super().call(message)
        fields = message.content.config_records["tacit"]
        if message.metadata.dst_node_id == 1 and fields["kind"] == "task":
            said = dict(reply.content.config_records["tacit"])
            self.first = self.first or said
            content = RecordDict({"tacit": ConfigRecord(self.lie(self, said))})
            return Message(content, reply_to=message)
        return reply


def changed(value):
    return lambda _, said: {
        **said,
        "change": np.full(len(said.get("change", b"")) // 8, value).tobytes(),
    }


LIES = {
    "nothing": lambda *_: {"nothing": 1},
    "garbage": lambda _, said: {**said, "change": b"garbage"},
    "NaN": changed(np.nan),
    "infinite": changed(np.inf),
    "huge": changed(1e300),
    "large": changed(1e15),
    "minus what it said": lambda _, said: {
        **said,
        "change": (-np.frombuffer(said.get("change", b""))).tobytes(),
    },
    "too long": lambda _, said: {**said, "change": said.get("change", b"") * 2},
    "another site": lambda _, said: {**said, "site": "south", "name": "south"},
    "another run": lambda _, said: {**said, "run": "another"},
    "another round": lambda _, said: {**said, "round": said.get("round", 0) + 1},
    "its first answer again": lambda grid, _: grid.first,
    "other terms": lambda _, said: {**said, "agreed": "{}"},
    "an error": lambda *_: {"kind": "question", "error": "charge everybody again"},
    "text": lambda _, said: {**said, "change": "1, 2, 3", "round": "1"},
    "another type": lambda _, said: {**said, "type": "<i8", "grid": 1e300},
}


# Some in every run; sites that answer like nobody else are of tests/federated/test_trouble.py, too.
USUAL = {"NaN", "large", "another round", "its first answer again"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in USUAL else pytest.mark.slow) for n in LIES],
)
def test_a_lying_site_makes_honest_ones_release_no_more(tmp_path, name):
    files = make_sites(tmp_path, rounds=2, seed=3)
    grid = Lying(files, LIES[name])
    try:
        server = serve(grid, study_of(files), timeout=0.3, patience=1.0)
    except TacitError:
        server = None  # the study ends, which costs nobody anything
    for site in NAMES[1:]:
        charges, answers = spent(files[site])
        assert charges <= 1, site
        assert answers <= 2, site  # one for each round, as in an honest run
    # Nobody was sent what the liar said, and no state that is none.
    sent = [fields for fields, _ in grid.replies if fields["kind"] == "task"]
    assert all(np.isfinite(np.frombuffer(each["posterior"])).all() for each in sent)
    assert server is None or np.isfinite(server.posterior).all()
    assert not any(b"charge everybody" in repr(each).encode() for each in sent)


@pytest.mark.slow
def test_a_lying_site_does_not_speak_for_another(tmp_path):
    """What it says under another's name is its own answer, or none."""
    files = make_sites(tmp_path, rounds=2, seed=3)
    honest = make_sites(tmp_path / "honest", rounds=2, seed=3)
    named = serve(Lying(files, LIES["another site"]), study_of(files), timeout=0.3, patience=1.0)
    plain = serve(FakeGrid(honest), study_of(honest), timeout=0.3, patience=1.0)
    assert np.array_equal(named.posterior, plain.posterior)


def test_a_site_that_is_not_of_the_study_is_not_heard(tmp_path):
    """A fourth node, with settings of its own and the name of a site, is never asked for an answer."""
    files = make_sites(tmp_path, rounds=1, seed=3)
    strangers = make_sites(tmp_path / "strangers", names=("east", "west", "far"), rounds=1, seed=4)
    grid = FakeGrid({**files, "east": strangers["east"]})
    serve(grid, study_of(files), timeout=0.3, patience=1.0)
    assert spent(strangers["east"]) == (0, 0)
    assert all(spent(files[name]) == (1, 1) for name in NAMES)
