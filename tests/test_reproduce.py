"""`tacit reproduce`: every experiment of the papers runs, draws, and lists what it found.

On made-up tables of the same columns, so that nothing is fetched: what the papers' numbers are is
for `tacit reproduce --all` on the real ones, and in `experiments/RESULTS.md`.
"""

import importlib
import json
import pkgutil
import re
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import experiments
from mcmc_langevin import SIZE, langevin_chains
from mixture import two_means
from reproduction import PAPERS, SOURCES, Claim, write_results

import tacit
import tacit.papers
from tacit.cli.main import main
from tacit.models.base import single_row_unit

ROOT = Path(__file__).parent.parent
VERDICTS = Claim.__annotations__["verdict"].__args__


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Tables that look like Abalone and Adult."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    shell = rng.uniform(0.1, 1, (600, 7)).round(3)
    rings = np.rint(6 + 8 * shell[:, 0] + rng.normal(0, 1.5, 600)).astype(int)
    names = "length,diameter,height,whole_weight,shucked_weight,viscera_weight,shell_weight"
    lines = [
        f"{sex},{','.join(map(str, row))},{ring}"
        for sex, row, ring in zip(rng.choice(list("MFI"), 600), shell, rings, strict=True)
    ]
    (folder / "abalone.csv").write_text("\n".join([f"sex,{names},rings", *lines]) + "\n")
    header = (
        "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,"
        "sex,capital-gain,capital-loss,hours-per-week,native-country,income,split"
    )
    lines = [
        f"{age},Private,{w},HS-grad,{edu},Divorced,Sales,Wife,White,{sex},{gain},0,{hours},Peru,"
        f"{'>50K' if age / 60 + edu / 10 + rng.normal(0, 0.5) > 2 else '<=50K'},train"
        for age, w, edu, sex, gain, hours in zip(
            rng.integers(17, 90, 1500),
            rng.integers(1e4, 9e5, 1500),
            rng.integers(1, 17, 1500),
            rng.choice(["Male", "Female"], 1500),
            rng.choice([0, 0, 0, 5000], 1500),
            rng.integers(1, 99, 1500),
            strict=True,
        )
    ]
    (folder / "adult.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


# Run always; the others are longer.
QUICK = {
    "report_bias",
    "report_sampling",
    "thesis_composition",
    "thesis_passes",
    "mcmc_parameters",
}


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.slow)
        for each in experiments()
    ],
)
def test_runs_draws_and_claims(experiment, data, tmp_path, capsys):
    code = main(
        ["reproduce", experiment.name, "--quick", "--data", str(data), "--out", str(tmp_path)]
    )
    assert code == 0, capsys.readouterr().err
    assert list(tmp_path.glob(f"{experiment.name}*.png"))
    assert list(tmp_path.glob(f"{experiment.name}*.csv"))
    claims = json.loads((tmp_path / f"{experiment.name}.json").read_text())["claims"]
    assert claims
    for claim in claims:
        assert claim["said"]
        assert claim["found"]
        assert claim["verdict"] in VERDICTS
    page = (tmp_path / "RESULTS.md").read_text()
    assert claims[0]["found"].replace("|", "\\|") in page
    assert f"{experiment.name}.png" in page or f"({experiment.name}" in page


def test_every_source_is_there_and_results_are_kept():
    found = experiments()
    assert {each.source for each in found} == set(SOURCES)
    assert {each.name for each in found} > QUICK
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    page = (ROOT / "experiments" / "RESULTS.md").read_text()
    for each in found:
        assert f"### {each.figure}: {each.title}" in page
    assert "Not run yet" not in page
    assert "How verdicts are made" in page
    guide = (ROOT / "docs" / "evidence/papers.md").read_text()
    for name in names:
        assert f"`{name}`" in guide
    assert "From a" not in page  # all at the usual length


def test_without_data_and_network_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    def unreachable(**_):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    name = next(each.name for each in experiments() if each.source == "000")
    code = main(
        ["reproduce", name, "--quick", "--data", str(tmp_path / "none"), "--out", str(tmp_path)]
    )
    err = capsys.readouterr().err
    assert code == 2
    assert "--data" in err
    assert "abalone.csv" in err


def test_names_that_are_none(capsys):
    assert main(["reproduce", "fig99"]) == 2
    assert "--list" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert "--quick" in capsys.readouterr().err
    assert main(["reproduce", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(experiments())


_LETTERS = {
    "N": 1000, "c": 1.0, "C": 1.0, "L": 1.0, "B": 1.0, "R": 1.0, "s": 1.0, "q": 0.01, "n": 100, "T": 100,
    "tau": 10, "q1": 0.01, "q2": 0.02, "T1": 5, "T2": 5, "beta": 20.0, "schedule": lambda _: 1.0,
    "budget": tacit.Budget(1, 1e-5),
}  # fmt: skip
_MODULES = ("accounting", "federated", "methods", "conjugate")


def test_every_call_of_the_guide_to_the_papers_runs():
    page = (ROOT / "docs" / "evidence/papers.md").read_text()
    tables = page[page.index("## Algorithms") : page.index("## Experiments")]
    for each in pkgutil.iter_modules(tacit.papers.__path__):
        importlib.import_module(f"tacit.papers.{each.name}")
    space = {**_LETTERS, "schemes": tacit.federated.schemes, "papers": tacit.papers}
    space |= {name: getattr(tacit, name) for name in {*tacit.__all__, *_MODULES}}
    calls = {c for c in re.findall(r"`([^`]+)`", tables) if re.match(r"[A-Za-z_.]+(\(|$)", c)}
    words = {"plate", "claim", "noise_multiplier", "windowed_adagrad", "PROOFS.md"}
    assert len(calls - words) > 50
    for call in calls - words:
        eval(call, space)  # noqa: S307


def test_the_guide_to_the_papers_has_a_file_and_a_function_for_every_row():
    page = (ROOT / "docs" / "evidence/papers.md").read_text()
    tables = page[page.index("## Algorithms") : page.index("## Experiments")]
    rows = [line.split(" | ") for line in tables.splitlines() if line.startswith("| 0")]
    assert len(rows) > 40
    for row in rows:
        file, name = row[3].strip(" |").split()
        places = [ROOT / file, ROOT / "src" / "tacit" / file]
        (text,) = (each.read_text() for each in places if each.exists())
        assert re.search(rf"^ *(def|class) {name}\b", text, re.MULTILINE), row


def test_nothing_that_is_committed_is_written_without_being_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    committed = {each: each.read_bytes() for each in (ROOT / "experiments").rglob("RESULTS.md")}
    runs = []
    monkeypatch.setattr("tacit.cli.reproduce._run_all", lambda *each: runs.append(each))
    (tmp_path / "data").mkdir()
    for table in ("abalone", "adult"):
        (tmp_path / "data" / f"{table}.csv").write_text("")
    for folder in ("reproduced", "reproduced/quick"):
        (tmp_path / folder).mkdir()
    assert main(["reproduce", "--quick"]) == 0, capsys.readouterr().err
    assert main(["reproduce", "report_bias", "--paper"]) == 0, capsys.readouterr().err
    assert [each[0] for each in runs] == [[each.name for each in experiments()], ["report_bias"]]
    assert [each[1] for each in runs] == ["quick", "paper"]
    assert [each[2] for each in runs] == [Path("data")] * 2  # found where it was looked for
    assert [each[3] for each in runs] == [Path("reproduced/quick"), Path("reproduced/paper")]
    assert {each: each.read_bytes() for each in committed} == committed


@pytest.mark.slow
def test_several_at_a_time(tmp_path, capsys):
    names = ["thesis_passes", "report_bias"]
    assert main(["reproduce", *names, "--quick", "--jobs", "2", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert all(f"{name}: " in told for name in names)
    assert all((tmp_path / f"{name}.json").exists() for name in names)


def test_runs_as_many_as_the_papers_are_listed_apart(tmp_path):
    experiment = experiments()[0]
    (tmp_path / PAPERS).mkdir()
    for folder, found, verdict in (
        (tmp_path, "5 of 9", "agrees"),
        (tmp_path / PAPERS, "6 of 9", "does not agree"),
    ):
        claims = [
            asdict(Claim(said="So it is.", reported="", found=found, verdict=verdict)),
            asdict(Claim(said="And this.", reported="", found="both", verdict="agrees")),
        ]
        kept = json.dumps({"length": "usual", "claims": claims})
        (folder / f"{experiment.name}.json").write_text(kept)
    write_results(tmp_path, tmp_path / "RESULTS.md", [experiment])
    usual, long = (tmp_path / "RESULTS.md").read_text().split("## With as many runs")
    assert "2 claims of the papers: does not agree 1, agrees 1." in usual
    assert "| So it is. | 6 of 9 | does not agree | agrees |" in long
    assert "And this." not in long


def test_langevin_chain_of_the_papers_follows_the_gradient():
    """In plain JAX, for speed: without noise, its steps are those of the model's own gradient."""
    (((last,),),) = langevin_chains(np.full(10, 0.7), 100, 200, runs=1, variances=(0.0,))
    model = two_means()

    def density(theta):
        likelihood = model.log_likelihood(theta, *single_row_unit({"x": 0.7}), model.constants)
        return 100 * likelihood + model.log_prior(theta, model.constants)

    def step(_, theta):
        return theta + SIZE * jax.grad(density)(theta)

    by_model = jax.lax.fori_loop(0, 200, step, jnp.zeros(2))
    np.testing.assert_allclose(last, by_model, rtol=1e-4)
