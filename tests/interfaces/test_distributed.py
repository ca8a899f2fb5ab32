"""Fits to several files, in one process and in several: the same posterior, for one charge."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jaxlib
import numpy as np
import pandas as pd
import pytest
from jax._src import distributed, xla_bridge

import tacit
from tacit.api.rows import read_files
from tacit.cli import distributed as workers
from tacit.cli.main import main
from tacit.errors import InvalidArgument
from tacit.models.front_ends import adapt_model
from tacit.models.jax_model import Model, Parameter
from tacit.privacy import checkpoint
from tacit.privacy.distributed import PartitionedRows

BUDGET = tacit.Budget(1, 1e-6)
SCHEMA = tacit.Schema({"y": tacit.Number(-5, 5)})
MODEL = Model(
    parameters={"m": Parameter()},
    log_prior=lambda p: -0.5 * p["m"] ** 2,
    log_likelihood=lambda p, row: -0.5 * (row["y"] - p["m"]) ** 2,
)
METHOD = tacit.Variational(num_steps=200, sampling_rate=0.2)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, values = tmp_path_factory.mktemp("files"), np.random.default_rng(1).normal(0.5, 1, 3000)
    paths = [folder / f"{i}.csv" for i in range(3)]
    for i, path in enumerate(paths):
        pd.DataFrame({"y": values[i::3]}).to_csv(path, index=False)
    return [str(path) for path in paths]


def fitted(data, seed=3, **more):
    return tacit.fit(MODEL, data, schema=SCHEMA, budget=BUDGET, method=METHOD, seed=seed, **more)


@pytest.fixture(scope="module")
def whole(files):
    """A fit that was never disturbed."""
    return fitted(files)


def test_a_fit_to_several_files_finds_the_posterior(files, whole):
    """The exact posterior is normal, with mean sum / (n + 1); noise adds about 0.02 here."""
    values = np.concatenate([pd.read_csv(path).y for path in files])
    exact = values.sum() / (len(values) + 1)
    assert whole.draws["m"].mean() == pytest.approx(exact, abs=0.12)
    assert "3000" not in str(whole.privacy)


def test_the_order_of_files_is_part_of_the_seeded_fit(files, whole):
    """Other draws for other parts: the same seed on files in another order is another sample."""
    assert not np.array_equal(fitted(files[::-1]).draws["m"], whole.draws["m"])


@pytest.mark.parametrize("number", [1, 4])
def test_a_killed_fit_to_several_files_goes_on_bit_for_bit(
    files, whole, tmp_path, monkeypatch, number
):
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)
    ledger = tacit.Ledger.new(tmp_path / "ledger.db", total=tacit.Budget(3, 1e-5))
    usual, stored = checkpoint.CheckpointedSession.store, []

    def kills(*arguments, **more):
        usual(*arguments, **more)
        stored.append(1)
        if len(stored) == number:
            raise Killed

    monkeypatch.setattr(checkpoint.CheckpointedSession, "store", kills)
    with pytest.raises(Killed):
        fitted(files, ledger=ledger, run=tmp_path / "run")
    found = fitted(files, ledger=ledger, run=tmp_path / "run")
    np.testing.assert_array_equal(found.draws["m"], whole.draws["m"])
    assert ledger.left.epsilon == pytest.approx(2)
    assert not (tmp_path / "run" / "unfinished").exists()


def test_other_rows_in_a_file_are_refused(files, tmp_path, monkeypatch):
    def kills(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.CheckpointedSession, "store", kills)
        with pytest.raises(Killed):
            fitted(files, run=tmp_path / "run")
    with pytest.raises(InvalidArgument, match="begun with other data"):
        fitted([files[1], files[0], files[2]], run=tmp_path / "run")


@pytest.mark.parametrize("method", [tacit.Barker(num_steps=100), tacit.Barker(start=METHOD)])
def test_methods_without_one_sequence_of_sums_are_refused_before_the_charge(
    files, tmp_path, method
):
    ledger = tacit.Ledger.new(tmp_path / "ledger.db", total=tacit.Budget(3, 1e-5))
    with pytest.raises(InvalidArgument, match="Rows in several files need a method"):
        tacit.fit(MODEL, files, schema=SCHEMA, budget=BUDGET, method=method, ledger=ledger)
    assert ledger.left.epsilon == 3


def test_a_file_that_is_named_twice_is_refused(files, tmp_path):
    """Its rows would count twice, and the sum would move by two clips for one of them."""
    link = tmp_path / "again.csv"
    link.symlink_to(files[0])
    hard = tmp_path / "hard.csv"
    os.link(files[1], hard)
    for twice in ([*files, files[0]], [*files, str(link)], [*files, str(hard)]):
        with pytest.raises(InvalidArgument, match="would count twice"):
            fitted(twice)


def test_exact_fits_need_one_table(files):
    with pytest.raises(InvalidArgument, match="all rows in one table"):
        tacit.fit_without_privacy(MODEL, files, schema=SCHEMA)


def test_processes_with_files_in_another_order_have_other_facts(files, monkeypatch):
    """So they refuse each other: a file would be read by two of them."""
    told = []
    monkeypatch.setattr(PartitionedRows, "check_same", lambda _, facts: told.append(facts))
    for order in (files, files[::-1]):
        read_files(adapt_model(MODEL, SCHEMA), SCHEMA, order)
    assert told[0] != told[1]


def test_a_list_must_hold_paths():
    for data in ([], [1.0, 2.0], [{"y": [1]}]):
        with pytest.raises(InvalidArgument, match="paths of files"):
            fitted(data)


def command(files, out, *more):
    fit = ["fit", *map(str, files), "--schema", "schema.yaml", "--formula", "sick ~ age"]
    return [*fit, "--epsilon", "1", "--delta", "1e-6", "--out", out, "--seed", "5", *more]


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """A folder with rows in three files, a schema and a ledger."""
    folder, generator = tmp_path_factory.mktemp("visits"), np.random.default_rng(2)
    age = generator.uniform(20, 90, 3000)
    sick = generator.uniform(size=3000) < 1 / (1 + np.exp(2 - 0.03 * age))
    table = pd.DataFrame({"age": age, "sick": sick.astype(int)})
    for i in range(3):
        table[i::3].to_parquet(folder / f"{i}.parquet")
    schema = tacit.Schema({"age": tacit.Number(20, 90), "sick": tacit.Binary()})
    schema.to_yaml(folder / "schema.yaml")
    tacit.Ledger.new(folder / "ledger.db", total=tacit.Budget(50, 1e-3))
    return folder


FILES = ["0.parquet", "1.parquet", "2.parquet"]


def test_fewer_files_than_processes_are_refused(visits, monkeypatch, capsys):
    monkeypatch.chdir(visits)
    assert main(command(FILES, "few", "--workers", "4")) == 2
    said = capsys.readouterr().err
    assert "4 processes and 3 files" in said
    assert "tacit shard FILES --into 4" in said
    assert not Path("few").exists()


def test_a_scheduler_that_jax_does_not_find_is_told_in_a_sentence(visits, monkeypatch, capsys):
    monkeypatch.chdir(visits)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    assert main(command(FILES, "none", "--workers", "2")) == 2
    assert "JAX did not find the other processes" in capsys.readouterr().err


def test_processes_on_one_machine_listen_on_it_only(monkeypatch):
    """Gloo would listen where the name of the machine leads; JAX passes no place to it."""
    asked = []
    monkeypatch.setattr(
        jaxlib._jax, "make_gloo_tcp_collectives", lambda **given: asked.append(given)
    )
    monkeypatch.setattr(distributed.global_state, "client", "a client")
    workers._listen_on_localhost()
    with pytest.raises(TypeError):  # as no collectives were made
        xla_bridge.make_cpu_client()
    assert asked == [{"distributed_client": "a client", "hostname": "127.0.0.1"}]


def told(codes, said=b"", capsys=None):
    with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second:
        second.write(said)
        code = workers._exit_code(codes, [first, second], "run")
    return code, capsys.readouterr().err


def test_one_sentence_says_why_the_processes_ended(capsys):
    assert told([0, 0], b"", capsys) == (0, "")
    assert told([1, -9], b"", capsys) == (1, "")  # the first has said it
    assert told([4, 2], b"a warning\nError: no such file.\n", capsys) == (
        2,
        "Error: no such file.\n",
    )
    code, said = told([4, -9], b"", capsys)
    assert (code, said) == (
        1,
        "Error: Process 1 of 2 was lost, and the run ended. Nothing was charged.\n",
    )
    code, said = told([-9, 4], b"Error: lost", capsys)
    assert code == 1
    assert said.startswith("Error: Process 0 of 2 was lost")
    assert said.endswith("tacit resume run.\n")
    assert said.count("\n") == 1


def killed_after(process, rank, folder):
    """Kills a worker once the run was charged, which is when its question was stored."""
    ledger = tacit.Ledger(folder.parent / "ledger.db")
    before = len(ledger.charges)
    while len(ledger.charges) == before:
        assert process.poll() is None
        time.sleep(0.05)
    assert (folder / "unfinished" / "state").exists()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            told = (each / "environ").read_bytes().split(b"\0")
            ours = int((each / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process.pid
        except (OSError, ValueError):
            continue
        if ours and any(
            text.startswith(f"{workers.WORKER_VARIABLE}={rank} ".encode()) for text in told
        ):
            os.kill(int(each.name), signal.SIGKILL)
            return
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_commands_in_1_2_and_3_processes_agree_also_after_a_lost_process(visits, rank):
    def run(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "tacit", *arguments],
            cwd=visits,
            stderr=subprocess.PIPE,
            text=True,
        )

    def draws(name):
        return tacit.Posterior.load(visits / name / "posterior.nc").draws

    before = tacit.Ledger(visits / "ledger.db").left.epsilon
    for count in ("1", "2", "3"):
        more = ["--quiet", "--ledger", "ledger.db", "--workers", count]
        process = run(*command(FILES, f"{rank} of {count}", *more))
        if count == "3":
            killed_after(process, rank, visits / f"{rank} of {count}")
            said = process.communicate()[1]
            assert process.returncode == 1
            assert said.count("\n") == 1
            assert "lost" in said
            process = run("resume", f"{rank} of 3", "--quiet")
        process.communicate()
        assert process.returncode == 0
        for name, values in draws(f"{rank} of 1").items():
            np.testing.assert_array_equal(draws(f"{rank} of {count}")[name], values)
    assert before - tacit.Ledger(visits / "ledger.db").left.epsilon == pytest.approx(3)


@pytest.mark.slow
def test_a_fit_in_two_processes_stops_after_one_count_and_one_charge(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"y\n1 mmHg of {name}\n")
    tacit.Schema({"y": tacit.Number(-5, 5)}).to_yaml(tmp_path / "y.yaml")
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(3, 1e-5))
    asked = ["fit", "a.csv", "b.csv", "--schema", "y.yaml", "--formula", "y ~ 1", "--out", "run"]
    more = [
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--ledger",
        "l.db",
        "--workers",
        "2",
        "--seed",
        "1",
    ]
    for arguments in ([*asked, *more], ["resume", "run", "--workers", "2"]):
        done = subprocess.run(
            [sys.executable, "-m", "tacit", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 5
        assert "noisy count found about" in done.stderr
        assert done.stderr.count("\n") == 1
    assert [each.stopped for each in ledger.charges] == [True]
