"""Fits that are kept in a folder: killed anywhere they go on, to the same posterior and for one charge."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import jax
import numpy as np
import pytest

import tacit
from tacit.accounting import ledger as ledgers
from tacit.api import resume
from tacit.api.plan import build_plan
from tacit.api.resume import agreed_facts
from tacit.cli.main import main
from tacit.errors import InvalidArgument, LedgerError, Unsaved
from tacit.inference.one_sample import GridSampler
from tacit.models.jax_model import Model, Parameter
from tacit.privacy import checkpoint
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.claims import BoundedLikelihood

BUDGET = tacit.Budget(1, 1e-6)
Y = np.random.default_rng(1).normal(0.5, 1, 300)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Every block is stored."""
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)


def log_likelihood(p, row):
    return -0.5 * (row["y"] - p["m"]) ** 2


MODEL = Model(
    parameters={"m": Parameter()},
    log_prior=lambda p: -0.5 * p["m"] ** 2,
    log_likelihood=log_likelihood,
)
SIMULATED = replace(MODEL, simulate=lambda key, p, _: {"y": p["m"] + jax.random.normal(key)})
ROWS = tacit.Rows({"y": Y})
SHORT = tacit.Variational(num_steps=600, sampling_rate=0.2)
LONG = tacit.Barker(num_steps=300, start=SHORT)
METHODS = {
    "variational": SHORT,
    "a start and a chain": LONG,
    "langevin": tacit.Langevin(num_steps=600, size=300, sampling_rate=0.2),
    "one draw": tacit.OneSample(
        sampler=GridSampler(low={"m": -2.0}, high={"m": 2.0}, points=50),
        claim=BoundedLikelihood(bound=20.0),
    ),
}


def fitted(method=SHORT, model=MODEL, **more):
    return tacit.fit(model, ROWS, budget=BUDGET, method=method, **more)


def after(monkeypatch, holder, name, number=1):
    """Kills a fit when a function has been called so many times."""
    usual, done = getattr(holder, name), []

    def counted(*arguments, **more):
        found = usual(*arguments, **more)
        done.append(arguments)
        if len(done) == number:
            raise Killed
        return found

    monkeypatch.setattr(holder, name, counted)


def killed(folder, holder, name, number=1, **more):
    """A fit that is killed, in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        after(patch, holder, name, number)
        patch.setattr(
            resume.ResumableRun, "discard_uncharged", lambda _: None
        )  # nobody cleans up after a kill
        with pytest.raises(Killed):
            fitted(run=folder, **more)


def key_of(folder):
    return bytes.fromhex(json.loads((folder / "unfinished" / "keys").read_text())["key"])


def uninterrupted(monkeypatch, key, **more):
    """A fit by the same key, without a folder."""
    monkeypatch.setattr(resume, "Randomness", lambda _: Randomness.from_key(key))
    return fitted(**more)


def new_ledger(folder, name="l.db"):
    return tacit.Ledger.new(folder / name, total=tacit.Budget(3, 1e-5))


POINTS = {
    "before the charge": (checkpoint, "write_atomically", 2),
    "after the charge": (ledgers.Ledger, "charge", 1),
    "in the middle": (checkpoint, "write_atomically", 3),
    "after the last step": (checkpoint, "write_atomically", 5),
    "when the posterior is saved": (tacit.Posterior, "save", 1),
    "when it was recorded": (ledgers.Ledger, "finish", 1),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_fit_goes_on_bit_for_bit_for_one_charge(tmp_path, monkeypatch, point):
    """Without a seed: the key is the system's."""
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    killed(run, *POINTS[point], ledger=ledger)
    charged = len(ledger.charges)
    assert charged == (point != "before the charge")
    key = key_of(run)
    (run / "unfinished" / ".posterior.nc.0f.part").touch()  # as if it was killed while it saved
    found = fitted(run=run, ledger=ledger)
    assert len(ledger.charges) == 1
    assert found == uninterrupted(monkeypatch, key, ledger=new_ledger(tmp_path, "other.db"))
    assert found.privacy.is_private
    assert [path.name for path in run.iterdir()] == ["posterior.nc"]
    assert tacit.Posterior.load(run / "posterior.nc") == found


def test_a_receipt_is_that_of_its_charge(tmp_path):
    """Whatever was charged before and after."""
    ledger = new_ledger(tmp_path)
    fitted(ledger=ledger)
    killed(tmp_path / "run", ledgers.Ledger, "charge", ledger=ledger)
    fitted(ledger=ledger)
    found = fitted(run=tmp_path / "run", ledger=ledger)
    assert found.privacy.budget_before.epsilon == pytest.approx(2)
    assert found.privacy.budget_left.epsilon == pytest.approx(1)
    assert len(ledger.charges) == 3


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_bit_for_bit(tmp_path, method):
    """Of stages, the ones before are complete; a draw without steps is drawn anew, and is the same."""
    settings = {"method": METHODS[method], "seed": 4}
    whole = fitted(**settings)
    run = tmp_path / "run"
    writes = 2 if method == "one draw" else 7 if method == "a start and a chain" else 3
    killed(run, checkpoint, "write_atomically", writes, **settings)
    assert fitted(run=run, **settings) == whole


@pytest.fixture(scope="module")
def scored():
    settings = {"model": SIMULATED, "method": tacit.Scoring(num_steps=10), "seed": 4}
    return settings, fitted(**settings)


@pytest.mark.parametrize("writes", [3, 7, 12])
def test_rounds_go_on_to_the_same_posterior(tmp_path, scored, writes):
    """What the host made of earlier rounds is made again, of what they released."""
    settings, whole = scored
    run = tmp_path / "run"
    killed(run, checkpoint, "write_atomically", writes, **settings)
    assert fitted(run=run, **settings) == whole


GUIDED = {
    "barker": tacit.Barker(num_steps=600, start=tacit.Scoring(num_steps=12)),
    "hamiltonian": tacit.Hamiltonian(num_steps=300, start=tacit.Scoring(num_steps=12)),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", GUIDED)
def test_chains_that_an_approximation_guides_go_on_bit_for_bit(tmp_path, method):
    """They are killed in the second stage, after the rounds of the first, each of which is a write."""
    settings = {"model": SIMULATED, "method": GUIDED[method], "seed": 4}
    whole, run = fitted(**settings), tmp_path / "run"
    assert whole.chains == 4
    killed(run, checkpoint, "write_atomically", 17, **settings)
    assert fitted(run=run, **settings) == whole


def test_a_fit_that_is_kept_is_the_fit(tmp_path):
    assert fitted(seed=2, run=tmp_path / "run") == fitted(seed=2)
    with pytest.raises(InvalidArgument, match="is finished"):
        fitted(seed=2, run=tmp_path / "run")


def test_a_fit_that_ended_in_its_cleaning_is_finished(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        after(patch, checkpoint, "overwrite_with_zeros")
        with pytest.raises(Killed):
            fitted(run=tmp_path / "run")
    with pytest.raises(InvalidArgument, match="is finished"):
        fitted(run=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["posterior.nc"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A fit with a schema and a ledger that was killed in the middle."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
        patch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)
        ledger = new_ledger(folder)
        after(patch, checkpoint, "write_atomically", 3)
        with pytest.raises(Killed):
            tabled(folder, ledger=ledger)
    return folder, ledger


def tabled(folder, *, data=None, high=5.0, prior=1.0, steps=600, **more):
    def model(y):
        import numpyro
        import numpyro.distributions as dist

        m = numpyro.sample("m", dist.Normal(0, prior))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(m, 1), obs=y)

    return tacit.fit(
        model,
        {"y": Y} if data is None else data,
        schema=tacit.Schema({"y": tacit.Number(-5.0, high)}),
        budget=more.pop("budget", BUDGET),
        method=tacit.Variational(num_steps=steps, sampling_rate=0.2),
        run=folder / "run",
        **more,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"y": Y + 0.01}}, "other data"),
        ({"data": {"y": Y[:-1]}}, "other data"),
        ({"high": 5.5}, "another schema"),
        ({"prior": 1.5}, "another model"),
        ({"steps": 601}, "another method"),
        ({"budget": tacit.Budget(1.1, 1e-6)}, "another"),
        ({"seed": 3}, "another seed"),
        ({"ledger": None}, "without one"),
    ],
)
def test_what_was_begun_otherwise_is_refused(begun, monkeypatch, changes, said):
    """Without a charge, and without a word being drawn."""
    folder, ledger = begun
    before = {path.name: path.read_bytes() for path in (folder / "run" / "unfinished").iterdir()}
    monkeypatch.setattr(
        "tacit.privacy.checkpoint.Randomness.from_key", lambda *_, **__: pytest.fail("keys")
    )
    with pytest.raises(InvalidArgument, match=said):
        tabled(folder, **({"ledger": ledger} | changes))
    assert len(ledger.charges) == 1
    held = {path.name: path.read_bytes() for path in (folder / "run" / "unfinished").iterdir()}
    assert held == before


def test_another_version_is_refused(begun, monkeypatch):
    folder, ledger = begun
    monkeypatch.setattr(resume, "version", lambda name: "0.0" if name == "jaxlib" else "1.0")
    with pytest.raises(InvalidArgument, match="another version of Tacit or of a library"):
        tabled(folder, ledger=ledger)


def test_another_number_of_threads_is_refused(begun, monkeypatch):
    """Products of matrices may round by how many threads share them."""
    folder, ledger = begun
    monkeypatch.setenv("NPROC", "77")
    with pytest.raises(InvalidArgument, match=r"another number of threads \(\d+, now 77\)"):
        tabled(folder, ledger=ledger)
    assert len(ledger.charges) == 1


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "XLA_FLAGS"])
def test_other_settings_of_libraries_are_refused(begun, monkeypatch, name):
    folder, ledger = begun
    monkeypatch.setenv(name, "1")
    with pytest.raises(InvalidArgument, match="other settings of JAX, XLA or BLAS"):
        tabled(folder, ledger=ledger)


def test_processes_compare_their_threads(monkeypatch):
    """Before anything is charged; `PartitionedRows.check_same` compares these bytes."""
    plan = build_plan(MODEL.unit_model, None, ROWS.blank(), BUDGET, SHORT)
    before = agreed_facts(plan, None, kept=False)
    assert agreed_facts(plan, None, kept=False) == before
    monkeypatch.setenv("NPROC", "77")
    assert agreed_facts(plan, None, kept=False) != before


def hidden(shift):
    """A model with numbers that no text of its trace has: in a function of a function."""

    def likelihood(p, row):
        table = jax.jit(lambda y: (y * np.full(3, shift, np.float32)).sum())
        return log_likelihood({"m": p["m"] - table(1.0)}, row)

    return replace(MODEL, log_likelihood=likelihood)


def scheduled(late):
    """A method with a function that differs in its last steps alone, and not by its name."""
    return replace(SHORT, clip=lambda step: np.where(step < 500, 1.0, late))


SECOND = {
    "a model": ({"model": hidden(0.1)}, {"model": hidden(0.2)}, "another model"),
    "a method": ({"method": scheduled(1.0)}, {"method": scheduled(2.0)}, "another model, method"),
}


@pytest.mark.parametrize("case", SECOND)
def test_a_copy_cannot_be_finished_with_another(tmp_path, monkeypatch, case):
    """Killed right after the charge, when no step was stored."""
    first, second, said = SECOND[case]
    ledger = new_ledger(tmp_path)
    killed(tmp_path / "run", ledgers.Ledger, "charge", ledger=ledger, **first)
    assert len(ledger.charges) == 1
    # A single word is that of the model's own draws, which protects nobody.
    usual = Randomness.words
    monkeypatch.setattr(
        Randomness,
        "words",
        lambda self, count: usual(self, count) if count == 1 else pytest.fail("drawn"),
    )
    with pytest.raises(InvalidArgument, match=said):
        fitted(run=tmp_path / "run", ledger=ledger, **second)
    assert len(ledger.charges) == 1


@pytest.mark.parametrize("charged", [True, False])
def test_copies_without_a_question_share_no_noise(tmp_path, charged):
    """Their methods have functions of one name. Neither a ledger of its own nor none helps a copy."""
    ledgers_of = [new_ledger(tmp_path, name) if charged else None for name in ("a.db", "b.db")]
    run, copy = tmp_path / "run", tmp_path / "copy"
    killed(run, checkpoint, "write_atomically", ledger=ledgers_of[0], method=scheduled(1.0))
    shutil.copytree(run, copy)
    of = zip((run, copy), ledgers_of, (1.0, 2.0), strict=True)
    first, second = (
        fitted(run=folder, ledger=book, method=scheduled(late)).trace["log_scale"]
        for folder, book, late in of
    )
    assert not np.array_equal(first[:4], second[:4])


def test_a_copy_from_before_the_charge_is_refused(tmp_path):
    """Also a folder that lost its question: the charge has one answer, and it is not charged again."""
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    killed(run, ledgers.Ledger, "charge", ledger=ledger)
    (run / "unfinished" / "state").unlink()
    with pytest.raises(InvalidArgument, match="although the run was charged"):
        fitted(run=run, ledger=ledger)
    assert len(ledger.charges) == 1


def test_one_posterior_leaves_for_a_charge(tmp_path, monkeypatch):
    """A copy that is finished later is refused before a word is drawn; one that is at work, at its end."""
    ledger, run, copies = new_ledger(tmp_path), tmp_path / "run", [tmp_path / "a", tmp_path / "b"]
    killed(run, checkpoint, "write_atomically", 3, ledger=ledger)
    for copy in copies:
        shutil.copytree(run, copy)
    found = fitted(run=run, ledger=ledger)
    assert tacit.Posterior.load(run / "posterior.nc") == found
    with monkeypatch.context() as patch:
        patch.setattr(Randomness, "words", lambda *_: pytest.fail("drawn"))
        with pytest.raises(InvalidArgument, match="A result has left for the charge"):
            fitted(run=copies[0], ledger=ledger)
    save = tacit.Posterior.save

    def otherwise(self, path):
        save(self, path)
        with path.open("ab") as file:
            file.write(b" ")

    with monkeypatch.context() as patch:  # as if the first was not finished when this one began
        patch.setattr(ledgers.Ledger, "finished_digest", lambda *_: None)
        patch.setattr(tacit.Posterior, "save", otherwise)
        with pytest.raises(Unsaved, match="A result has left for the charge"):
            fitted(run=copies[1], ledger=ledger)
    assert not [file for copy in copies for file in copy.rglob("*.nc")]


def test_what_was_recorded_is_what_leaves(tmp_path):
    """A crash after that loses nothing, also if another posterior would be computed now."""
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    killed(run, ledgers.Ledger, "finish", ledger=ledger)
    saved = (run / "unfinished" / "posterior.nc").read_bytes()
    assert not (run / "posterior.nc").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tacit.Posterior, "save", lambda *_: pytest.fail("saved anew"))
        found = fitted(run=run, ledger=ledger)
    assert (run / "posterior.nc").read_bytes() == saved
    assert tacit.Posterior.load(run / "posterior.nc") == found
    assert found.model is not None
    assert [path.name for path in run.iterdir()] == ["posterior.nc"]


def test_a_posterior_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """After a loss of power the file could be empty, and no other would ever leave."""
    sync, move, synced, named = os.fsync, Path.replace, set(), []

    def recorded(handle):
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    def moved(path, target):
        if Path(target).name == "posterior.nc":
            named.append(path.stat().st_ino in synced)
        return move(path, target)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(Path, "replace", moved)
    fitted(run=tmp_path / "run")
    assert named == [True, True]


def test_a_ledger_without_the_charge_is_refused(begun):
    """A run that has read rows is never charged later."""
    folder, _ = begun
    with pytest.raises(LedgerError, match="no charge for the run"):
        tabled(folder, ledger=new_ledger(folder, "empty.db"))


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_folder_without_room_is_refused_before_the_charge(tmp_path, monkeypatch):
    ledger = new_ledger(tmp_path)
    monkeypatch.setattr(checkpoint, "reserve", full_disk)
    with pytest.raises(InvalidArgument, match="No space left"):
        fitted(run=tmp_path / "run", ledger=ledger)
    assert ledger.charges == []


def test_a_folder_that_cannot_be_written_is_refused_before_the_charge(tmp_path):
    ledger = new_ledger(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="cannot be kept in"):
        fitted(run=tmp_path / "file" / "run", ledger=ledger)
    assert ledger.charges == []


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte, where the system lets us have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["/usr/bin/env", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["/usr/bin/env", "umount", str(place)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs tmpfs")
def test_a_small_disk_is_refused_before_the_charge(tmp_path, small_disk):
    ledger = new_ledger(tmp_path)
    with pytest.raises(InvalidArgument, match="No space left"):
        fitted(run=small_disk / "run", ledger=ledger)
    assert ledger.charges == []
    assert list((small_disk / "run").iterdir()) == []


def test_a_posterior_that_cannot_be_saved_is_not_lost(tmp_path, monkeypatch):
    ledger, run = new_ledger(tmp_path), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tacit.Posterior, "save", full_disk)
        with pytest.raises(Unsaved, match=r"No space left.*call tacit.fit with the same arguments"):
            fitted(run=run, ledger=ledger)
    key = key_of(run)
    found = fitted(run=run, ledger=ledger)
    assert len(ledger.charges) == 1
    assert found == uninterrupted(monkeypatch, key, ledger=new_ledger(tmp_path, "other.db"))


def test_a_fit_that_is_refused_leaves_nothing(tmp_path):
    """The ledger has too little left, and the keys of the run are destroyed."""
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(0.5, 1e-5))
    with pytest.raises(tacit.errors.Overspent):
        fitted(run=tmp_path / "run", ledger=ledger)
    assert list((tmp_path / "run").iterdir()) == []
    assert ledger.charges == []


def test_a_fit_that_fails_after_the_charge_says_how_to_go_on(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise tacit.errors.BoundaryError("No.")

    ledger = new_ledger(tmp_path)
    monkeypatch.setattr("tacit.privacy.gate.BlockRunner.run", fails)
    with pytest.raises(
        Unsaved, match=r"was charged and then failed: No. To continue without another"
    ):
        fitted(run=tmp_path / "run", ledger=ledger)


# The command line, in processes of its own.

FIT = [
    *("fit", "visits.csv", "--schema", "visits.yaml", "--epsilon", "1", "--delta", "1e-6"),
    *("--formula", "readmitted ~ age", "--method", "variational", "--set", "sampling_rate=1"),
    *("--set", "num_steps=1000", "--seed", "5", "--quiet"),
]
# Kills itself when the state was written so many times, or in the middle of that write.
DYING = """
import os, signal, sys
from tacit.cli.main import main
from tacit import _files
from tacit.privacy import checkpoint

number, where, left = int(sys.argv[1]), sys.argv[2], [int(sys.argv[1])]
checkpoint._MIN_SECONDS_BETWEEN_WRITES = checkpoint._WRITE_TIME_FACTOR = 0.0
write, sync = checkpoint.write_atomically, os.fsync

def end():
    os.kill(os.getpid(), signal.SIGKILL)

def counted(path, content):
    left[0] -= path.name == "state"
    if left[0] == 0 and where == "within":
        _files.os.fsync = lambda handle: end()  # the draft is there, and not in its place
    write(path, content)
    if left[0] == 0:
        end()

checkpoint.write_atomically = counted
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """The example's files, and an undisturbed run."""
    folder = tmp_path_factory.mktemp("visits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["example"]) == 0
        lines = Path("visits.csv").read_text().splitlines()[:1000]
        Path("visits.csv").write_text("\n".join([*lines, ""]))
        for name in ("l.db", "whole.db"):
            assert main(f"ledger new {name} --epsilon 3 --delta 1e-5 --unit person".split()) == 0
        assert main([*FIT, "--ledger", "whole.db", "--out", "whole"]) == 0
    return folder


def call(capsys, *arguments):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
@pytest.mark.processes
def test_a_command_that_is_killed_again_and_again_goes_on(visits, monkeypatch, capsys):
    """By SIGKILL: in the middle of a write, then after the next one, which another process makes."""
    monkeypatch.chdir(visits)
    command = [*FIT, "--ledger", "l.db", "--out", "run"]
    for point, arguments in ((("3", "within"), command), (("1", "after"), ["resume", "run"])):
        program = [sys.executable, "-c", DYING, *point, *arguments]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    held = {path.name for path in Path("run", "unfinished").iterdir()}
    assert {"keys", "state", "lock"} <= held
    assert len(tacit.Ledger("l.db").charges) == 1
    code, out, err = call(capsys, "resume", "run")
    assert code == 0
    assert "Report: run/report.html" in out
    assert len(tacit.Ledger("l.db").charges) == 1
    assert tacit.Posterior.load("run/posterior.nc") == tacit.Posterior.load("whole/posterior.nc")
    assert {path.name for path in Path("run").iterdir()} == {
        path.name for path in Path("whole").iterdir()
    }
    code, out, err = call(capsys, "resume", "run")
    assert (code, err) == (0, "")
    assert "finished, and its keys are destroyed" in out


def interrupted(monkeypatch, number):
    """Ctrl-C at the time of a write."""
    write, done = checkpoint.write_atomically, []

    def counted(path, content):
        done.append(path)
        if len(done) == number:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_atomically", counted)


@pytest.mark.slow
def test_an_interruption_after_the_posterior_was_saved_leaves_the_run_whole(
    visits, monkeypatch, capsys
):
    """Ctrl-C while the last files of the finished run are removed."""
    monkeypatch.chdir(visits)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "destroy_checkpoint", Mock(side_effect=KeyboardInterrupt))
        assert call(capsys, *FIT, "--out", "late")[0] == 130
    assert call(capsys, "resume", "late")[0] == 0
    assert {path.name for path in Path("late").iterdir()} > {"posterior.nc", "settings.yaml"}


def test_an_interrupted_command_says_how_to_go_on_and_does(visits, monkeypatch, capsys):
    monkeypatch.chdir(visits)
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, 4)
        code, _, err = call(capsys, *FIT, "--out", "stopped")
    assert code == 130
    assert "tacit resume stopped" in err
    lines = Path("visits.csv").read_text().splitlines()
    Path("moved.csv").write_text("\n".join([*lines, ""]))
    Path("other.csv").write_text("\n".join([*lines[:-1], ""]))
    code, _, err = call(capsys, "resume", "stopped", "--data", "other.csv")
    assert code == 2
    assert "begun with other data" in err
    assert err.count("\n") == 1
    code, _, err = call(capsys, "resume", "stopped", "--ledger", "whole.db")
    assert code == 2
    assert "without a ledger" in err
    shutil.copytree("stopped", "edited")
    bounds = Path("edited", "schema.yaml")
    bounds.write_text(bounds.read_text().replace("100", "101"))
    code, _, err = call(capsys, "resume", "edited")
    assert code == 2
    assert "begun with another schema" in err
    code, _, err = call(capsys, "resume", "stopped", "--data", "moved.csv", "--quiet")
    assert code == 0
    found, whole = (tacit.Posterior.load(f"{run}/posterior.nc") for run in ("stopped", "whole"))
    assert all(np.array_equal(found.draws[name], whole.draws[name]) for name in whole.draws)


def test_a_command_that_was_killed_before_its_charge_begins(visits, monkeypatch, capsys):
    """With the ledger that it was begun with, and for one charge; in another it must have one."""
    monkeypatch.chdir(visits)
    tacit.Ledger.new("l5.db", total=tacit.Budget(3, 1e-5), unit="person")
    with pytest.MonkeyPatch.context() as patch:
        after(patch, resume.ResumableRun, "randomness")
        patch.setattr(resume.ResumableRun, "discard_uncharged", lambda _: None)
        with pytest.raises(Killed):
            main([*FIT, "--ledger", "l5.db", "--out", "early"])
    shutil.copytree("early", "moved")
    for command in (["explain", "early"], ["report", "early"], [*FIT, "--out", "early"]):
        code, _, err = call(capsys, *command)
        assert code == 2
        assert "unfinished" in err
        assert "tacit resume early" in err
    code, _, err = call(capsys, "resume", "moved", "--ledger", "whole.db")
    assert code == 2
    assert "resume it without --ledger" in err
    assert tacit.Ledger("l5.db").charges == []
    assert len(tacit.Ledger("whole.db").charges) == 1
    code, _, err = call(capsys, "resume", "early", "--quiet")
    assert (code, err) == (0, "")
    (charge,) = tacit.Ledger("l5.db").charges
    assert charge.run == "early"
    found, whole = (tacit.Posterior.load(f"{run}/posterior.nc") for run in ("early", "whole"))
    assert all(np.array_equal(found.draws[name], whole.draws[name]) for name in whole.draws)


@pytest.mark.parametrize("handle", ["is locked", "has keys"])
def test_an_interruption_before_the_charge_says_what_to_do(visits, monkeypatch, capsys, handle):
    monkeypatch.chdir(visits)
    run = f"pressed {handle}"
    usual = checkpoint._write_new_keys

    def interrupted_there(folder, keys, room):
        if handle == "has keys":
            usual(folder, keys, room)
        else:
            (folder / "unfinished" / "lock").touch()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_write_new_keys", interrupted_there)
        code, _, err = call(capsys, *FIT, "--out", run)
    assert code == 130
    if handle == "has keys":
        assert err == f"Interrupted. To continue, run: tacit resume {run}.\n"
    else:
        assert err == "Interrupted. Nothing was charged.\n"
        assert not Path(run).exists()  # and the same command may be typed again


def test_what_is_no_run_cannot_go_on(visits, monkeypatch, capsys):
    monkeypatch.chdir(visits)
    for folder, said in (("nowhere", "not a run"), (".", "not a run")):
        code, _, err = call(capsys, "resume", folder)
        assert code == 2
        assert said in err
