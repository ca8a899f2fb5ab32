"""A guard answers as the site would, whoever asks, and code that asks holds no rows."""

import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from sites_on_disk import NAMES, copy_study, make_sites

from tacit import Ledger
from tacit.errors import InvalidArgument, LedgerError, Refused
from tacit.federated.deploy import OpenSite, WarmSite, answer_once, load_study
from tacit.federated.guard import Guard, answer_or_error, ask, decode_message, encode_message
from tacit.federated.protocol import reply_from_fields, task_fields
from tacit.federated.settings import SiteSettings


@pytest.fixture
def listening(tmp_path):
    files = make_sites(tmp_path / "sites", seed=2)
    settings = SiteSettings.from_file(files["north"])
    place = tmp_path / "guard"
    with Guard(
        place, lambda fields: answer_or_error(lambda: answer_once(settings, fields))
    ) as guard:
        thread = threading.Thread(target=guard.serve_forever)
        thread.start()
        yield place, files
        guard.shutdown()
        thread.join()


def first_task(files):
    study = load_study(files["north"].parent / "study.py")
    return study.server().tasks(NAMES)["north"], study.agreement.text


def test_a_guard_says_what_the_site_would(listening):
    place, files = listening
    task, agreed = first_task(files)
    said = reply_from_fields("north", ask(place, task_fields(task, agreed=agreed)))
    direct = OpenSite(SiteSettings.from_file(files["north"])).answer(task)
    assert np.array_equal(said.change, direct.change)
    assert ask(place, {"kind": "hello"})["site"] == "north"


def test_a_guard_survives_nonsense(listening):
    place, files = listening
    for line in (
        b"nonsense\n",
        b"[1]\n",
        b"\n",
        b'{"hex": "00"}\n',
        b'{"hex": "no"}\n',
        b'{"kind": "task", "mark": {"hex": 3}}\n',
        b'{"kind": "task", "mark": {"hex": null}}\n',
        b'{"kind": "task", "mark": {"hex": ["00"]}}\n',
        b"[" * 100_000 + b"\n",
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(place))
            connection.sendall(line)
            with connection.makefile("rb") as file:
                assert "error" in decode_message(file.readline())
    for fields in ({}, {"kind": "rows"}, {"kind": "task"}, {"kind": "task", "run": "study"}):
        assert "error" in ask(place, fields)
    task, agreed = first_task(files)
    assert "error" in ask(place, {**task_fields(task, agreed=agreed), "mark": 2**50})
    assert not Ledger(files["north"].parent / "site.db").charges
    assert ask(place, {"kind": "hello"})["site"] == "north"


def test_fields_come_through_as_they_were():
    fields = {"a": b"\x00\xff", "b": [b"1", b""], "c": 1.5, "d": "text", "e": 3, "f": []}
    assert decode_message(encode_message(fields)) == fields


def test_without_a_guard_the_node_says_so(tmp_path):
    with pytest.raises(InvalidArgument, match="tacit federated guard"):
        ask(tmp_path / "nobody", {"kind": "hello"})


@pytest.mark.parametrize("place", ["nowhere/guard", "long" * 40])
def test_a_place_where_no_guard_can_listen_is_named(tmp_path, place):
    with pytest.raises(InvalidArgument, match=f"cannot listen at .*{place}"):
        Guard(tmp_path / place, dict)


# A process that was started in the background may be deaf to Ctrl-C, and its children with it.
INTERRUPTIBLE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from tacit.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.mark.slow
@pytest.mark.processes
def test_the_command_listens_for_the_group_only_and_cleans_up(tmp_path):
    files = make_sites(tmp_path / "sites")
    place = tmp_path / "guard"
    command = [sys.executable, "-c", INTERRUPTIBLE, "federated", "guard", files["west"], place]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"west is listening at {place}.\n"
            assert place.stat().st_mode & 0o777 == 0o660
            assert ask(place, {"kind": "hello"})["site"] == "west"
        finally:
            process.send_signal(2)
    assert process.returncode == 130
    assert not place.exists()


def test_a_warm_site_loads_its_study_once_and_notices_what_changed(tmp_path):
    files = make_sites(tmp_path)
    settings = SiteSettings.from_file(files["north"])
    warm = WarmSite(settings)
    task, agreed = first_task(files)
    said = reply_from_fields("north", warm.answer(task_fields(task, agreed=agreed)))
    assert np.array_equal(said.change, OpenSite(settings).answer(task).change)
    study = warm.open().study
    assert warm.open().study is study
    copy_study(settings.study.parent, "statistics", NAMES, rounds=2)
    assert warm.open().study is not study
    with pytest.raises(Refused, match="another method"):
        warm.answer(task_fields(task, agreed=agreed))
    # The posterior that a study checks lies beside it.
    study = warm.open().study
    (settings.study.parent / "posterior.nc").write_bytes(b"draws")
    assert warm.open().study is not study
    # A ledger that is gone is noticed at once, and not made anew.
    copy_study(settings.study.parent, "statistics", NAMES)
    settings.ledger.unlink()
    with pytest.raises(LedgerError):
        warm.answer(task_fields(task, agreed=agreed))
    assert not settings.ledger.exists()


def test_a_module_that_the_study_imports_is_loaded_again_when_it_changes(tmp_path, monkeypatch):
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "bounds_of_tests.py").write_text("BOUNDS = 'some'\n")
    monkeypatch.syspath_prepend(folder)
    settings = SiteSettings.from_file(make_sites(tmp_path / "sites")["north"])
    settings.study.write_text(
        settings.study.read_text() + "import bounds_of_tests\n"
        "study = replace(study, schema=bounds_of_tests.BOUNDS)\n"
    )
    warm = WarmSite(settings)
    study = warm.open().study
    assert warm.open().study is study
    assert study.schema == "some"
    (folder / "bounds_of_tests.py").write_text("BOUNDS = 'quite different'\n")
    assert warm.open().study.schema == "quite different"
