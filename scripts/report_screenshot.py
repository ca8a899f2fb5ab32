"""A picture of a report's page, by headless Chromium.

``python scripts/report_screenshot.py run/report.html docs/images/report.png`` takes the top of the page
as it looks on a screen. ``--example`` fits a small model to made-up rows first, writes its report
into the folder of the given page, and takes a picture of that.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> int:
    """Takes the picture, or says why not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="a report.html")
    parser.add_argument("picture", type=Path, help="the PNG file to write")
    parser.add_argument("--width", type=int, default=900)
    parser.add_argument("--height", type=int, default=1300)
    parser.add_argument("--example", action="store_true", help="make a report first")
    asked = parser.parse_args()
    if asked.example:
        example(asked.page.parent)
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or not asked.page.is_file():
        print("There is no such page." if browser else "Chromium is not installed.")
        return 2
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(browser, *QUIET, f"--user-data-dir={profile}"),
            f"--window-size={asked.width},{asked.height}",
            *(f"--screenshot={asked.picture.resolve()}", asked.page.resolve().as_uri()),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    print(f"{asked.picture}: {asked.picture.stat().st_size / 1000:.0f} kB")
    return 0


def example(folder: Path) -> None:
    """Readmission to hospital, as in the README: made-up patients with several visits."""
    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    import tacit

    rng = np.random.default_rng(0)
    visits = {
        "patient": rng.integers(0, 12_000, 40_000),
        "age": rng.uniform(18, 100, 40_000),
        "dose": rng.uniform(0, 50, 40_000),
    }
    logit = 1.5 * (visits["age"] - 59) / 41 - (visits["dose"] - 25) / 25 - 0.5
    visits["readmitted"] = rng.uniform(size=40_000) < 1 / (1 + np.exp(-logit))
    scaled = {"age": tacit.Number(18, 100, scaled=True), "dose": tacit.Number(0, 50, scaled=True)}
    schema = tacit.Schema({**scaled, "readmitted": tacit.Binary()}, person="patient", most_rows=8)

    def model(age, dose, readmitted=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        level = numpyro.sample("level", dist.Normal(0, 1))
        by_age = numpyro.sample("by age", dist.Normal(0, 1))
        by_dose = numpyro.sample("by dose", dist.Normal(0, 1))
        with numpyro.plate("visits", age.shape[0]):
            odds = level + by_age * age + by_dose * dose
            numpyro.sample("readmitted", dist.Bernoulli(logits=odds), obs=readmitted)

    total = tacit.Budget(3, 1e-5)
    with tempfile.TemporaryDirectory() as place:
        ledger = tacit.Ledger.new(Path(place) / "ledger.db", total=total, unit="person")
        plan = tacit.plan(model, schema, budget=tacit.Budget(1, 1e-6))
        post = tacit.fit(plan, visits, ledger=ledger)
    settings = {
        "title": "Readmission by age and dose",
        "data": "made-up visits",
        "method": plan.method,
        "ledger_total": total,
    }
    post.report(folder, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
