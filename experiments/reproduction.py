"""What every reproduction of a figure or table shares: settings, claims, files, the page of results.

An experiment is a module with ``EXPERIMENT``. Its ``run`` gets a `Setting`, draws into
``setting.out`` by `save_figure` and `save_table`, and returns claims: what the paper says, in
our words, the number we found, and whether they agree.
"""

import csv
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

SOURCES = {
    "000": "Jälkö, Dikmen and Honkela, Differentially private automatic differentiation variational "
    "inference (extended abstract)",
    "001": "Sharma, Differential privacy and approximate Bayesian inference (report, 2019)",
    "002": "Differentially private variational inference (blog post)",
    "003": "Jälkö, the thesis on privacy-preserving statistical inference",
    "004": "Heikkilä, Jälkö, Dikmen and Honkela, Differentially private Markov chain Monte Carlo (2019)",
}
# In the words of a claim that no paper makes: what Tacit does in the same setting.
OURS = "(not "
# At the end of "why" where a rule is younger than a result that it might have been fitted to.
KNOWN = "(Rule written with a trial known.)"
# At the end of "why" where hardly any result could have failed the rule.
EASY = "(Can hardly fail.)"
# What `tacit.fit` does if nothing else is asked of it.
DEFAULT = "Tacit's default (Fisher scoring)"
# The folder, within that of the usual results, for runs as many as the papers'.
PAPERS = "paper"
RULES = (
    'How verdicts are made. Every claim has a rule, with its tolerance where it has one, in the column "why" or else in the claim itself. Rules are in the code before the run that they judge.',
    f'Rows with "{KNOWN}" are the exceptions to the principle that a rule comes before any number: their rule was changed, or first written, when a result of an earlier run was known,',
    "because the authors' public programs showed another setting, or the old rule asked for more than chance allows or left a case out. Where settings alone were corrected, rules stayed as they were, also if a claim now fails by little.",
    '"Paper is wrong" means that a statement is not true as printed, misprints included. Lines with "not a claim", "not in" or "not shown in" in brackets are about Tacit, and are counted apart.',
)
Length = Literal["quick", "usual", "paper"]
Verdict = Literal["agrees", "agrees in part", "does not agree", "paper is wrong", "not shown"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How long to run, where the data are, and where to write.

    ``quick`` shows that it works; ``usual`` is what `RESULTS.md` is made of; ``paper`` has as many runs as
    the paper, where the usual has fewer, and finer curves.
    """

    length: Length
    data: Path
    out: Path

    def pick(self, *, quick: Any, usual: Any, paper: Any = None) -> Any:
        """A number by length; the paper's is the usual one unless told."""
        lengths = {"quick": quick, "usual": usual, "paper": usual if paper is None else paper}
        return lengths[self.length]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something that a paper says, in our words, and what we found.

    ``reported`` and ``found`` are numbers in words, such as "0.760 at epsilon 0.63". ``why`` says
    why they differ, or what is not the same as in the paper.
    """

    said: str
    reported: str
    found: str
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or table of a source, and the public tables that it reads."""

    name: str
    source: str
    figure: str
    title: str
    run: Callable[[Setting], Sequence[Claim]]
    tables: tuple[str, ...] = ()


def save_figure(setting: Setting, name: str, figure: Any) -> None:
    """Writes a figure that is legible on a page, and lets go of it."""
    import matplotlib.pyplot as plt
    from PIL import Image

    path = setting.out / f"{name}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    # A palette makes the file a third as large, and looks the same.
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def save_table(
    setting: Setting, name: str, header: Sequence[str], lines: Iterable[Sequence[Any]]
) -> None:
    """Writes the numbers behind a figure."""
    with (setting.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_short(cell) for cell in line] for line in lines)


def _short(cell: Any) -> Any:
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def perform(experiment: Experiment, setting: Setting) -> float:
    """Runs an experiment, keeps its claims beside its figures, and returns the seconds it took."""
    setting.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    claims = [asdict(claim) for claim in experiment.run(setting)]
    took = time.monotonic() - began
    kept = {
        **{k: getattr(experiment, k) for k in ("name", "source", "figure", "title")},
        "length": setting.length,
        "claims": claims,
    }
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    (setting.out / f"{experiment.name}.json").write_text(text + "\n", encoding="utf-8")
    return took


def write_results(out: Path, page: Path, experiments: Sequence[Experiment]) -> None:
    """Writes the page of all claims, from what the experiments kept."""
    lines = [
        "# What the papers say, and what we find",
        "",
        "Written by `tacit reproduce --all`; `tacit reproduce --list` names the experiments. Each figure has",
        "the paper's own setting, what the paper reports where that is known, and, where methods are compared, what `tacit.fit`'s default",
        "(private Fisher scoring) achieves at the same epsilon. Runs are seeded and give the same numbers again with the same versions; the data are public.",
        "[docs/evidence/papers.md](../docs/evidence/papers.md) goes from the papers to Tacit's calls.",
        "",
        *RULES,
    ]
    verdicts: dict[str, int] = {}
    for source, title in SOURCES.items():
        mine = [each for each in experiments if each.source == source]
        lines += ["", f"## {source}: {title}"]
        for experiment in mine:
            lines += _section(experiment, out, page, verdicts)
    own = verdicts.pop("", 0)
    known, easy = (
        sum(line.startswith("| ") and remark in line for line in lines) for remark in (KNOWN, EASY)
    )
    counts = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())
    lines[6:6] = [
        "",
        f"{sum(verdicts.values())} claims of the papers: {counts}. And {own} lines on what Tacit does in the same setting.",
        f"A claim counts with the verdict of the run with as many runs as the paper's, where there is one ({PAPERS}/).",
        f'{known} rows have the remark "{KNOWN}", and {easy} the remark "{EASY}".',
    ]
    lines += _at_length(out, experiments)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(experiment: Experiment, out: Path, page: Path, verdicts: dict[str, int]) -> list[str]:
    kept_at = out / f"{experiment.name}.json"
    lines = ["", f"### {experiment.figure}: {experiment.title}", ""]
    if not kept_at.exists():
        return [*lines, f"Not run yet: `tacit reproduce {experiment.name}`."]
    kept: Mapping[str, Any] = json.loads(kept_at.read_text(encoding="utf-8"))
    lines += [
        "| the paper says | reported | found | verdict | why |",
        "|---|---|---|---|---|",
    ]
    at_length = {claim["said"]: claim for claim in _kept_claims(out / PAPERS, experiment)}
    for claim in kept["claims"]:
        lines.append(_row(claim[key] for key in ("said", "reported", "found", "verdict", "why")))
        counted = at_length.get(claim["said"], claim)
        verdict = "" if OURS in claim["said"] else counted["verdict"]
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    for picture in sorted(out.glob(f"{experiment.name}*.png")):
        lines += ["", f"![{experiment.title}]({picture.relative_to(page.parent)})"]
    if kept["length"] != "usual":
        lines += ["", f"From a {kept['length']} run."]
    return lines


def _kept_claims(folder: Path, experiment: Experiment) -> list[dict[str, str]]:
    """The claims of a run that is kept in a folder; none if there is no such run."""
    place = folder / f"{experiment.name}.json"
    if not place.exists():
        return []
    claims: list[dict[str, str]] = json.loads(place.read_text(encoding="utf-8"))["claims"]
    return claims


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _at_length(out: Path, experiments: Sequence[Experiment]) -> list[str]:
    """The claims of runs as many as the papers', where they are kept and differ from the usual ones."""
    lines: list[str] = []
    for experiment in experiments:
        before = {claim["said"]: claim for claim in _kept_claims(out, experiment)}
        for claim in _kept_claims(out / PAPERS, experiment):
            old = before.get(claim["said"], {})
            if before and claim["found"] != old.get("found"):
                told = (experiment.figure, claim["said"], claim["found"], claim["verdict"])
                lines.append(_row((*told, old.get("verdict", ""))))
    if not lines:
        return []
    return [
        "",
        "## With as many runs as in the papers",
        "",
        "From `tacit reproduce --all --paper`, by the same rules: ten runs for each point of the figures on Abalone and Adult where the usual run has",
        "five, longer chains, finer curves. Rows without a random number, and those whose settings are the papers' in the usual run already, are not repeated.",
        "",
        "| figure | the paper says | found | verdict | in the usual run |",
        "|---|---|---|---|---|",
        *lines,
    ]
