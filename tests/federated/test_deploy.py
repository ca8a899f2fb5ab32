"""A site opened from its own files: what is wrong with them is said before anything is charged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites_on_disk import NAMES, make_sites

from tacit import Budget, Ledger
from tacit.errors import BudgetError, InvalidArgument, LedgerError
from tacit.federated import Partitioned
from tacit.federated.deploy import (
    MAX_MASKED_SITES,
    OpenSite,
    load_study,
    open_ledger,
    site_checks,
)
from tacit.federated.journal import LedgerJournal
from tacit.federated.protocol import Session
from tacit.federated.schemes import ClippedChanges, WithoutPrivacy
from tacit.federated.settings import SiteSettings


@pytest.fixture
def north(tmp_path):
    return SiteSettings.from_file(make_sites(tmp_path)["north"])


def first_task(settings):
    return load_study(settings.study).server().tasks(NAMES)["north"]


@pytest.mark.parametrize("text", ["", "name = 3", "not toml at all =", 'name = "a"\nstudy = 1'])
def test_settings_that_lack_something_are_refused(tmp_path, text):
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match="must have the settings"):
        SiteSettings.from_file(file)


def beside(settings, name="other.db", **changes):
    """The same site with another ledger."""
    return replace(settings, ledger=settings.ledger.with_name(name), **changes)


def test_a_ledger_is_opened_with_a_limit_or_not_at_all(north):
    with pytest.raises(InvalidArgument, match="total budget of all runs"):
        open_ledger(beside(north, total=None))
    assert not beside(north).ledger.exists()


def test_a_run_beyond_the_sites_own_limit_is_refused(north):
    small = beside(north, total=Budget(1, 1e-5))
    open_ledger(small)
    with pytest.raises(BudgetError):
        OpenSite(small).answer(first_task(north))
    assert not Ledger(small.ledger).charges


def test_a_site_answers_by_an_open_ledger_only(north):
    never = beside(north)
    with pytest.raises(LedgerError, match="no ledger"):
        OpenSite(never).answer(first_task(north))
    assert not never.ledger.exists()


@pytest.mark.parametrize("lose", [Path.unlink, lambda book: book.write_bytes(b"")])
def test_a_lost_or_emptied_ledger_is_not_opened_anew(north, lose):
    """It would have the full budget, and one task would be answered with noise after noise."""
    first = OpenSite(north).answer(first_task(north))
    kept = north.ledger.read_bytes()
    lose(north.ledger)
    for _ in range(2):
        with pytest.raises(LedgerError, match="newest copy"):
            OpenSite(north).answer(first_task(north))
    with pytest.raises(LedgerError, match=r"newest copy|exists"):
        open_ledger(north)
    north.ledger.write_bytes(kept)
    assert np.array_equal(OpenSite(north).answer(first_task(north)).change, first.change)


def test_an_older_ledger_is_not_answered_by(north):
    """Its charge is there, and the answer is not: it would be given again with new noise."""
    study = load_study(north.study)
    server = study.server()
    older = north.ledger.read_bytes()
    OpenSite(north).answer(server.tasks(NAMES)["north"])
    north.ledger.write_bytes(older)
    with pytest.raises(LedgerError, match="older than its mark"):
        OpenSite(north).answer(server.tasks(NAMES)["north"])


def test_a_ledger_from_the_middle_of_an_answer_is_refused(north, tmp_path, monkeypatch):
    """It has the key of the answer's noise: with other rows, the two answers would differ by rows alone."""
    store, copy, task = LedgerJournal.finish, tmp_path / "copy", first_task(north)

    def finish(journal, *given):
        copy.write_bytes(north.ledger.read_bytes())
        return store(journal, *given)

    monkeypatch.setattr(LedgerJournal, "finish", finish)
    sent = OpenSite(north).answer(task)
    assert np.array_equal(OpenSite(north).answer(task).change, sent.change)
    north.ledger.write_bytes(copy.read_bytes())
    rows = north.data.read_text().splitlines(keepends=True)
    north.data.write_text("".join(rows[1:]))
    with pytest.raises(LedgerError, match="older than its mark"):
        OpenSite(north).answer(task)


def test_a_site_that_the_study_does_not_name_is_refused(north):
    with pytest.raises(InvalidArgument, match="east is not a site"):
        OpenSite(replace(north, name="east"))


def test_masks_need_a_key_and_everybody_elses(tmp_path):
    settings = SiteSettings.from_file(make_sites(tmp_path, "masked")["north"])
    others = {name: key for name, key in settings.members.items() if name != "west"}
    for lacking in (replace(settings, identity=None), replace(settings, members=others)):
        with pytest.raises(InvalidArgument, match="public keys of all"):
            OpenSite(lacking).offer(Session("study", 1))
    with pytest.raises(InvalidArgument, match="takes part in the run"):
        OpenSite(settings).offer(Session("other", 1))


def lines_of_a_check(settings, **changes):
    study = replace(load_study(settings.study), **changes)
    return {name: (said, fine) for name, said, fine in site_checks(OpenSite(settings, study))}


def test_a_check_says_whether_the_run_can_be_charged(north):
    said, fine = lines_of_a_check(north)["ledger"]
    assert fine
    assert said.endswith("the run can be charged, or was")
    small = beside(north, total=Budget(1, 1e-5))
    assert lines_of_a_check(small)["ledger"][0].endswith("tacit federated open, once")
    open_ledger(small)
    said, fine = lines_of_a_check(small)["ledger"]
    assert not fine
    assert "epsilon 1, delta 1e-5 (add-remove) is left" in said
    OpenSite(north).answer(first_task(north))
    assert lines_of_a_check(north)["ledger"][1]
    assert not lines_of_a_check(north, budget=Budget(2, 1e-5))["ledger"][1]  # the same run
    assert len(Ledger(north.ledger).charges) == 1


def test_a_check_says_that_a_seed_protects_nobody(north):
    assert lines_of_a_check(north)["noise"][0] == "from a secret key of each answer"
    assert lines_of_a_check(north, seed=0)["noise"][0].startswith("NOT PRIVATE")


@pytest.mark.parametrize("key", ["", "no key", "00" * 32])
def test_a_check_finds_a_signing_key_that_is_none_or_another(tmp_path, key):
    settings = SiteSettings.from_file(make_sites(tmp_path, "masked")["north"])
    assert lines_of_a_check(settings)["keys of masks"][1]
    settings.identity.write_text(key)
    said, fine = lines_of_a_check(settings)["keys of masks"]
    assert not fine
    assert "is no signing key" in said or "has another key" in said
    assert lines_of_a_check(beside(settings))["ledger"][0].startswith("there is none")


def test_a_study_that_is_no_python_is_named_with_its_line(tmp_path):
    file = tmp_path / "study.py"
    file.write_text("import tacit\nstudy = (\n")
    with pytest.raises(InvalidArgument, match=r"study.py, line 2, is not valid Python"):
        load_study(file)


def test_a_file_without_a_study_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="no Python file"):
        load_study(tmp_path / "study.py")
    (tmp_path / "study.py").write_text("study = 3\n")
    with pytest.raises(InvalidArgument, match="must define"):
        load_study(tmp_path / "study.py")


def test_studies_that_cannot_run_are_refused(north):
    study = load_study(north.study)
    for wrong in ({"run": ""}, {"sites": ("a", "a")}, {"sites": ()}):
        with pytest.raises(InvalidArgument):
            replace(study, **wrong)


def test_split_noise_is_for_no_more_sites_than_was_tried(north):
    study = load_study(north.study)
    split = replace(study.method, scheme=ClippedChanges(clip=50.0, noise="split"))
    for count, fits in ((MAX_MASKED_SITES, True), (MAX_MASKED_SITES + 1, False)):
        names = tuple(map(str, range(count)))
        assert replace(study, sites=names).sites == names  # each message private by itself
        if fits:
            assert replace(study, sites=names, method=split).masked
        else:
            with pytest.raises(InvalidArgument, match="at most 300 sites"):
                replace(study, sites=names, method=split)


def test_real_sites_take_no_part_in_a_study_without_privacy(north):
    study = load_study(north.study)
    for wrong in ({"budget": None}, {"method": Partitioned(scheme=WithoutPrivacy())}):
        with pytest.raises(InvalidArgument, match="needs a budget"):
            replace(study, **wrong)


def test_a_ledger_for_another_unit_is_refused(north):
    people = beside(north)
    Ledger.new(people.ledger, total=north.total, unit="person")
    with pytest.raises(InvalidArgument, match="unit person"):
        OpenSite(people).answer(first_task(north))
