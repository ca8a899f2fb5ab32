"""Builds the last commit's source distribution and wheel, and tries them in fresh environments.

    python scripts/release.py --python python3.11 --python python3.13 --out dist

Every Python gets the wheel without extras, then the extra `demo`. Tests then run with the first Python and the oldest
versions that `pyproject.toml` allows, and with the last Python and the newest. Needs `pip install uv`.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = (sys.executable, "-m", "uv")
LEFT_OUT = (".ci/", "experiments/results/")  # of the source distribution
# Flower allows few versions of other packages, so that with it the bounds of those would not be tried.
FLOWER = "federated"
TESTS = (
    "tests/accounting/test_ledger.py",
    "tests/data",
    "tests/inference/test_scoring.py",
    "tests/models/test_glm.py",
    "tests/models/test_pymc.py",
    "tests/results",
)

SMOKE = """
import time
start = time.perf_counter()
import tacit
print(f"tacit {tacit.__version__}, imported in {time.perf_counter() - start:.2f} s")
import numpy as np
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, 5_000)
y = (rng.uniform(size=x.size) < 1 / (1 + np.exp(-2 * x))).astype(int)
schema = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Binary()})
ledger = tacit.Ledger.new("ledger.db", total=tacit.Budget(2, 1e-5), unit="row")
post = tacit.fit("y ~ x", {"x": x, "y": y}, schema=schema, epsilon=1, ledger=ledger)
slope = post.draws["x"].mean()
assert 1 < slope < 3, slope
post.save("posterior.nc")
assert tacit.Posterior.load("posterior.nc").draws["x"].mean() == slope
print(post.summary())
"""


def main() -> None:
    """Builds, checks and tries; ends with the first error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--python", action="append", help="a Python to try; repeatable, oldest first"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    pythons = given.python or [sys.executable]
    with tempfile.TemporaryDirectory(prefix="tacit-release-") as name:
        scratch = Path(name)
        os.environ.pop("PYTHONPATH", None)
        os.environ["TACIT_CACHE_DIR"] = str(scratch / "programs")  # the first fits compile
        wheel, sources = build(scratch, given.out.resolve())
        for number, python in enumerate(pythons):
            env = new_environment(scratch / f"bare{number}", python)
            install(env, wheel)
            call(env / "bin/python", "-c", SMOKE, folder=env)
            call(env / "bin/tacit", "--version", folder=env)
            install(env, f"{wheel}[demo]")
            call(env / "bin/tacit", "demo", folder=env)
        with tarfile.open(sources) as archive:
            archive.extractall(scratch / "tests", filter="data")
        (folder,) = (scratch / "tests").iterdir()
        (folder / "src").rename(scratch / "unused")  # tests import the installed package
        # Old packages use what newer ones, which they allow, have deprecated since.
        oldest = ("lowest-direct", "-W", "ignore::DeprecationWarning")
        for python, (resolution, *options) in ((pythons[0], oldest), (pythons[-1], ("highest",))):
            print(f"== dependencies: {resolution}", flush=True)
            env = new_environment(scratch / resolution, python)
            install(env, "--resolution", resolution, wheel, *requirements())
            call(*UV, "pip", "freeze", "--python", env)
            # The package is installed, so the folder of the sources holds no documentation strings to test.
            addopts = "addopts=-p no:doctest -p no:cacheprovider -m 'not slow and not processes'"
            words = ("-q", "-n", "auto", "-o", addopts, *options, *TESTS)
            call(env / "bin/pytest", *words, folder=folder)
    print("The distributions are in", given.out)


def build(scratch: Path, out: Path) -> tuple[Path, Path]:
    """The wheel, built from the sources of the last commit, and the sources; each with the files that it should have."""
    clean = scratch / "clean"
    archive = scratch / "commit.tar"
    call("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(clean, filter="data")
    committed = {str(each.relative_to(clean)) for each in clean.rglob("*") if each.is_file()}
    call(*UV, "build", "--quiet", "--out-dir", out, clean)
    (version,) = re.findall(r'__version__ = "(.*)"', (clean / "src/tacit/__init__.py").read_text())
    wheel = out / f"tacit_bayes-{version}-py3-none-any.whl"
    sources = out / f"tacit_bayes-{version}.tar.gz"
    package = {each.removeprefix("src/") for each in committed if each.startswith("src/")}
    names = zipfile.ZipFile(wheel).namelist()
    difference = package ^ {each for each in names if ".dist-info/" not in each}
    with tarfile.open(sources) as files:
        names = {each.name.partition("/")[2] for each in files if each.isfile()}
    difference |= {each for each in committed if not each.startswith(LEFT_OUT)} ^ names - {
        "PKG-INFO"
    }
    if difference:
        sys.exit(f"Missing, or too much: {sorted(difference)}")
    twine = ("tool", "run", "--with", "readme-renderer[md]", "twine")
    call(*UV, *twine, "check", "--strict", wheel, sources)
    return wheel, sources


def requirements() -> list[str]:
    """The package's requirements with those of tests and of all extras that users install, but Flower."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"]] + [
        extras[each] for each in extras if each not in ("docs", FLOWER)
    ]
    return [each for group in groups for each in group if not each.startswith(project["name"])]


def new_environment(folder: Path, python: str) -> Path:
    """A virtual environment."""
    call(*UV, "venv", "--quiet", "--python", python, folder)
    call(folder / "bin/python", "--version")
    return folder


def install(env: Path, *packages: object) -> None:
    """Installs packages in an environment."""
    call(*UV, "pip", "install", "--quiet", "--python", env, *packages)


def call(*command: object, folder: Path | None = None) -> None:
    """Runs a command; ends with its error, or its first warning."""
    words = [str(each) for each in command]
    done = subprocess.run(words, cwd=folder, check=False, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(done.stderr)
    if done.returncode or "Warning" in done.stderr:
        sys.exit(f"Failed: {' '.join(words[:8])}")


if __name__ == "__main__":
    main()
