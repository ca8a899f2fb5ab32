"""Models in Python files, on the command line."""

import csv
import hashlib

import numpy as np
import pytest
import yaml

import tacit
from tacit.cli.main import main

NUMPYRO = """
import numpyro
import numpyro.distributions as dist


def model(age, ill=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("people", age.shape[0]):
        numpyro.sample("ill", dist.Bernoulli(logits=slope * (age - 50) / 30), obs=ill)


def ward_of(age, ward=None):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("people", age.shape[0]):
        numpyro.sample("ward", dist.Categorical(probs=share), obs=ward)


import jax.numpy as jnp
"""
PYMC = """
import numpy as np
import pymc as pm

with pm.Model(coords={"person": np.arange(3)}) as model:
    age = pm.Data("age", np.zeros(3), dims="person")
    ill = pm.Data("ill", np.zeros(3, int), dims="person")
    slope = pm.Normal("slope", 0, 1)
    pm.Bernoulli("outcome", logit_p=slope * (age - 50) / 30, observed=ill, dims="person")
"""
FIT = [
    *("fit", "table.csv", "--schema", "schema.yaml", "--epsilon", "3", "--delta", "1e-5"),
    *("--quiet", "--method", "variational", "--seed", "1"),
    *("--set", "num_steps=300", "--set", "sampling_rate=1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "model.py").write_text(NUMPYRO)
    (folder / "by_pymc.py").write_text(PYMC)
    rng = np.random.default_rng(0)
    age, ward = rng.uniform(20, 80, 500).round(2), rng.choice(["A", "B", "C"], 500)
    ill = (rng.uniform(size=500) < 1 / (1 + np.exp(-(age - 50) / 15))).astype(int)
    with (folder / "table.csv").open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["age", "ward", "ill"])
        writer.writerows(zip(age.tolist(), ward.tolist(), ill.tolist(), strict=True))
    tacit.Schema(
        {
            "age": tacit.Number(20, 80),
            "ward": tacit.Category(["A", "B", "C"]),
            "ill": tacit.Binary(),
        }
    ).to_yaml(folder / "schema.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*FIT, "--model", "model.py", "--out", "run"]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def call(capsys, *arguments):
    capsys.readouterr()
    code = main([*arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_records_the_file(folder):
    asked = yaml.safe_load((folder / "run" / "settings.yaml").read_text())
    assert asked["model"] == "model.py:model"
    assert asked["model_sha256"] == hashlib.sha256(NUMPYRO.encode()).hexdigest()
    assert asked["formula"] is None
    post = tacit.Posterior.load(folder / "run" / "posterior.nc")
    assert list(post.draws) == ["slope"]
    assert 0.5 < post.mean()["slope"] < 4  # 2 in the table, 0 in the prior
    assert "model.py:model" in (folder / "run" / "report.md").read_text()


def test_it_is_the_fit_that_python_makes(folder):
    names = {}
    exec(compile(NUMPYRO, "model", "exec"), names)  # noqa: S102
    schema = tacit.Schema.from_yaml("schema.yaml")
    method = tacit.Variational(num_steps=300, sampling_rate=1.0)
    post = tacit.fit(
        names["model"],
        "table.csv",
        schema=schema,
        budget=tacit.Budget(3, 1e-5),
        method=method,
        seed=1,
    )
    assert post == tacit.Posterior.load(folder / "run" / "posterior.nc")


def test_predictions_need_the_file_that_was_fitted(folder, capsys):
    (folder / "new.csv").write_text("age\n20\n80\n")
    code, _, err = call(capsys, "predict", "run", "new.csv")
    assert code == 2
    assert "pass that file with --model" in err
    code, out, _ = call(capsys, "predict", "run", "new.csv", "--model", "model.py")
    low, high = (float(line.split(",")[-1]) for line in out.split()[1:])
    assert code == 0
    assert low < 0.4
    assert high > 0.6
    (folder / "other.py").write_text(NUMPYRO + "\n")
    code, _, err = call(capsys, "predict", "run", "new.csv", "--model", "other.py")
    assert code == 2
    assert "not the model that was fitted" in err


def test_a_report_runs_no_code(folder, capsys):
    settings = folder / "run" / "settings.yaml"
    written = settings.read_text()
    facts = yaml.safe_load(written)
    moved = (folder / "model.py").rename(folder / "away.py")
    try:
        assert call(capsys, "report", "run")[0] == 0
        # Whoever wrote the folder may have left out what would otherwise be worked out from the model.
        settings.write_text(yaml.safe_dump(facts | {"with": None, "method": "default"}))
        assert call(capsys, "report", "run")[0] == 0
    finally:
        settings.write_text(written)
        moved.rename(folder / "model.py")


def test_a_dry_run_and_a_forecast(capsys):
    code, out, _ = call(capsys, *FIT, "--model", "model.py", "--dry-run")
    assert code == 0
    assert out.startswith("Plan: ill given age; model with slope")
    code, out, _ = call(
        capsys,
        *("forecast", "schema.yaml", "--model", "model.py", "--size", "200", "--epsilon", "1"),
        *("--delta", "1e-5", "--repeats", "2", "--method", "variational"),
        *("--set", "num_steps=20", "--set", "sampling_rate=1"),
        *("--out", "page.html"),
    )
    assert code == 0
    assert "slope" in out


def test_another_name_and_levels_of_the_schema(capsys):
    code, _, err = call(capsys, *FIT, "--model", "model.py:ward_of", "--out", "wards")
    assert (code, err) == (0, "")
    code, out, _ = call(capsys, "predict", "wards", "new.csv", "--model", "model.py:ward_of")
    header, first, *_ = out.split()
    assert header == "age,A,B,C"
    assert sum(map(float, first.split(",")[1:])) == pytest.approx(1, abs=1e-4)


def test_a_pymc_file(folder, capsys):
    pytest.importorskip("pymc")
    code, _, err = call(capsys, *FIT, "--model", "by_pymc.py", "--out", "pymc")
    assert (code, err) == (0, "")
    found = tacit.Posterior.load(folder / "pymc" / "posterior.nc").mean()["slope"]
    assert 0.5 < found < 4
    code, out, _ = call(capsys, "predict", "pymc", "new.csv", "--model", "by_pymc.py")
    assert code == 0
    assert float(out.split()[1].split(",")[-1]) < 0.5 < float(out.split()[2].split(",")[-1])


@pytest.mark.parametrize(
    ("content", "typed", "words"),
    [
        (None, "nowhere.py", "nowhere.py cannot be read: No such file or directory."),
        (None, "table.csv", "takes a Python file"),
        (None, "model.py:nothing", "model.py has no 'nothing'; call the model 'model'"),
        ("import not_there", "a.py", "ModuleNotFoundError in line 1: No module named 'not_there'."),
        ("x = (", "a.py", "was never closed in line 1."),
        ("\nint('a cell')", "a.py", "a.py cannot be used: ValueError in line 2.\n"),
        ("import sys; sys.exit(3)", "a.py", "SystemExit in line 1."),
        ("model = 3", "a.py", "must be a formula, a NumPyro function, a PyMC model"),
    ],
    ids=["missing", "kind", "name", "import", "syntax", "value", "exit", "object"],
)
def test_errors_are_one_sentence_and_charge_nothing(content, typed, words, folder, capsys):
    if content is not None:
        (folder / "a.py").write_text(content)
    code, out, err = call(capsys, *FIT, "--model", typed, "--out", "failed")
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert not (folder / "failed").exists()


def test_one_of_formula_and_model(capsys):
    for more in ([], ["--formula", "ill ~ age", "--model", "model.py"]):
        code, _, err = call(capsys, *FIT, *more)
        assert code == 2
        assert "--formula or with --model" in err
    code, _, err = call(capsys, *FIT, "--model", "model.py", "--family", "bernoulli")
    assert code == 2
    assert "--family" in err


def test_a_file_that_holds_data_is_refused(folder, capsys):
    held = (
        "import numpy as np\nHELD = np.loadtxt('table.csv', delimiter=',', skiprows=1, usecols=0)\n"
    )
    (folder / "held.py").write_text(
        held + NUMPYRO.replace("(age - 50) / 30", "(age - HELD.mean()) / 30")
    )
    code, _, err = call(capsys, *FIT, "--model", "held.py", "--out", "failed")
    assert code == 2
    assert "HELD" in err
    assert not (folder / "failed").exists()
