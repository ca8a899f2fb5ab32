"""Builds the last commit's source distribution and wheel, and tries them in fresh environments.

    python scripts/release.py --python python3.11 --python python3.13 --out dist

Every Python gets the wheel without extras, then the extra `demo`. The first Python then runs tests with the oldest
versions that `pyproject.toml` allows, and the last one with the newest. Needs uv, which the test extra brings.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sysconfig.get_path("scripts"), "uv")
TESTS = (
    "tests/accounting/test_ledger.py",
    "tests/data",
    "tests/inference/test_scoring.py",
    "tests/models/test_glm.py",
    "tests/models/test_pymc.py",
    "tests/results",
)
TOOLS = ("bambi", "formulae", "hypothesis", "polars", "pytest", "pytest-xdist")
IN_WHEEL = (
    "py.typed",
    "privacy/PROOFS.md",
    "federated/PROOFS.md",
    "templates/page.html",
    "cli/project/study.py.txt",
)
IN_SOURCES = (
    "CHANGELOG.md",
    "CITATION.cff",
    "docs/index.md",
    "tests/conftest.py",
    "scripts/check.py",
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
        wheel, sources = build(scratch, given.out)
        for number, python in enumerate(pythons):
            env = Environment(scratch / f"bare{number}", python)
            env.install(str(wheel))
            env.run("python", "-c", SMOKE)
            env.run("tacit", "--help", quiet=True)
            env.install(f"{wheel}[demo]")
            env.run("tacit", "demo")
        with tarfile.open(sources) as archive:
            archive.extractall(scratch / "tests", filter="data")
        (folder,) = (scratch / "tests").iterdir()
        (folder / "src").rename(scratch / "unused")  # tests import the installed package
        for python, resolution in ((pythons[0], "lowest-direct"), (pythons[-1], "highest")):
            print(f"== dependencies: {resolution}", flush=True)
            env = Environment(scratch / resolution, python)
            env.install(
                f"{wheel}[{','.join(extras())}]", *TOOLS, pins=versions(env, resolution, scratch)
            )
            env.run("python", "-c", SMOKE)
            env.show()
            # The package is installed, so the folder of the sources holds no documentation strings to test.
            env.run(
                "pytest",
                "-q",
                "-n",
                "auto",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:doctest",
                "-o",
                "addopts=-m 'not slow and not processes'",
                *TESTS,
                folder=folder,
            )
    print("The distributions are in", given.out)


def build(scratch: Path, out: Path) -> tuple[Path, Path]:
    """The wheel and the sources of the last commit, after checks of what they hold."""
    clean = scratch / "clean"
    archive = scratch / "commit.tar"
    call("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(clean, filter="data")
    call(UV, "build", "--quiet", "--out-dir", out, clean)
    (version,) = re.findall(r'__version__ = "(.*)"', (clean / "src/tacit/__init__.py").read_text())
    wheel, sources = (
        out / f"tacit_bayes-{version}-py3-none-any.whl",
        out / f"tacit_bayes-{version}.tar.gz",
    )
    packed = zipfile.ZipFile(wheel).namelist()
    missing = [each for each in IN_WHEEL if f"tacit/{each}" not in packed]
    with tarfile.open(sources) as files:
        names = {each.partition("/")[2] for each in files.getnames()}
    missing += [each for each in IN_SOURCES if each not in names]
    extra = sorted(
        each for each in names if each.startswith((".ci", "site/", "experiments/results"))
    )
    if missing or extra:
        sys.exit(f"Missing: {missing}. Should not be there: {extra}.")
    call(
        UV,
        "tool",
        "run",
        "--with",
        "readme-renderer[md]",
        "twine",
        "check",
        "--strict",
        wheel,
        sources,
    )
    return wheel, sources


def extras() -> list[str]:
    """The extras that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [each for each in project["optional-dependencies"] if each not in ("test", "docs")]


def versions(env: "Environment", resolution: str, scratch: Path) -> Path:
    """The versions of all packages, as one of uv's strategies chooses them within the bounds."""
    file = scratch / f"{resolution}.txt"
    named = [word for each in extras() for word in ("--extra", each)]
    call(
        UV,
        "pip",
        "compile",
        "--quiet",
        "--python",
        env.python,
        "--resolution",
        resolution,
        *named,
        "--output-file",
        file,
        ROOT / "pyproject.toml",
        quiet=True,
    )
    return file


class Environment:
    """A virtual environment."""

    def __init__(self, folder: Path, python: str) -> None:
        call(UV, "venv", "--quiet", "--python", python, folder)
        self.folder, self.python = folder, folder / "bin" / "python"
        call(self.python, "--version")

    def install(self, *packages: str, pins: Path | None = None) -> None:
        """Installs packages, with pinned versions of what they need."""
        pinned = () if pins is None else ("--constraint", pins)
        call(UV, "pip", "install", "--quiet", "--python", self.python, *pinned, *packages)

    def run(
        self, tool: str, *arguments: object, folder: Path | None = None, quiet: bool = False
    ) -> None:
        """Runs a tool of the environment."""
        call(self.folder / "bin" / tool, *arguments, folder=folder or self.folder, quiet=quiet)

    def show(self) -> None:
        """Prints what is installed."""
        call(UV, "pip", "freeze", "--python", self.python)


def call(*command: object, folder: Path | None = None, quiet: bool = False) -> None:
    """Runs a command; ends with its error."""
    shown = subprocess.DEVNULL if quiet else None
    words = [str(each) for each in command]
    if subprocess.run(words, cwd=folder, check=False, stdout=shown).returncode:
        sys.exit(f"Failed: {' '.join(words[:8])}")


if __name__ == "__main__":
    main()
