"""Ten minutes: a table as hospitals export it, from the first look at its header to a report.

python examples/messy_table.py

It writes ward_visits.csv (semicolons, decimal commas, "142 mmHg", dates as 17.03.2020, yes and no, a misspelt ward), runs the
commands that one would type, and prints both.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np


def write_table(path: Path) -> None:
    """Visits of 3,000 people, simulated. The risk of death grows with age and blood pressure."""
    rng = np.random.default_rng(33)
    age = rng.integers(20, 95, 3000)
    lines = ["patient;age;SBP;weight;ward;admitted;died"]
    for patient in rng.integers(0, len(age), 8000):
        pressure = np.clip(rng.normal(120 + 0.3 * (age[patient] - 50), 18), 80, 240)
        weight = f"{rng.normal(78, 14):.1f}".replace(".", ",") if rng.uniform() > 0.03 else ""
        ward = rng.choice(["Medical", "Surgical", "Geriatric", "medcial"], p=[0.48, 0.3, 0.2, 0.02])
        day = np.datetime64("2019-01-01") + int(rng.integers(0, 1460))
        risk = -1.4 + 0.04 * (age[patient] - 57) + 0.015 * (pressure - 120)
        died = "yes" if rng.logistic() < risk + (ward == "Geriatric") else "no"
        date = "{2}.{1}.{0}".format(*str(day).split("-"))
        lines.append(f"{patient};{age[patient]};{pressure:.0f} mmHg;{weight};{ward};{date};{died}")
    path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")


# What the first schema says, by the answers to the questions of tacit schema draft. The unit of the pressure and the
# spelling of the ward are forgotten.
ANSWERS = """
person 8
number 18 100 - years
number 80 250 - -
number 30 200 - kg
category medical,surgical,geriatric - -
date 2019-01-01 2022-12-31 DD.MM.YYYY years -
binary - -
"""


def tacit(command: str, *, typed: str | None = None) -> None:
    """Runs a command of Tacit, and prints it with what it printed."""
    print(f"\n$ tacit {command}", flush=True)
    words = [sys.executable, "-m", "tacit", *shlex.split(command)]
    subprocess.run(words, input=typed, stderr=subprocess.STDOUT, text=True, check=False)  # noqa: S603 (our own)


write_table(Path("ward_visits.csv"))

# What is public about each column? The dash stands for Enter. The first question is whether numbers have a decimal comma.
answers = ["yes", *ANSWERS.split()]
typed = "\n".join("" if answer == "-" else answer for answer in answers) + "\n"
tacit("schema draft ward_visits.csv", typed=typed)

# Which cells can be read? The table says what is missing from the schema.
tacit("schema check schema.yaml ward_visits.csv --rows")
schema = Path("schema.yaml")
text = schema.read_text().replace("high: 250", "high: 250, measured_in: mmHg")
lines = "    ignore_case: true\n    aliases: {medcial: medical}\n  admitted:"
schema.write_text(text.replace("  admitted:", lines))
tacit("schema check schema.yaml ward_visits.csv --rows")

tacit("ledger new registry.db --epsilon 3 --schema schema.yaml")
fit = "fit ward_visits.csv -s schema.yaml -f 'died ~ age + SBP + ward' --epsilon 1 --ledger registry.db"
tacit(f"{fit} --dry-run")
tacit(fit)

Path("new.csv").write_text("id,age,SBP,ward\na,45,120 mmHg,Medical\nb,85,170,geriatric\n")
tacit("predict run new.csv --interval")
tacit("explain run")
