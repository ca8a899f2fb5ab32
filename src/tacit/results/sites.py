"""What a report says about the sites of a federated fit: who learns what, and the part of one site."""

from collections.abc import Sequence
from dataclasses import dataclass

from tacit._format import less
from tacit.accounting import Budget
from tacit.federated.schemes.trust import BY_NOISE, NO_GUARANTEE
from tacit.results.costs import Spending
from tacit.results.statement import PrivacyStatement

LEARNS = ("", "the server", "the other sites", "readers of the result")
_NOTHING = "nothing"
# What the server learns of the answers of a site, and of its number of rows, by who adds the noise.
_SERVER = {
    "site": (
        "each of them; each has noise that protects people by itself",
        "as much as its noisy answers tell",
    ),
    "split": ("only their sum, which has the noise; single answers are masked", _NOTHING),
    "server": (
        "each of them, without noise; the server is trusted",
        "as much as its answers tell",
    ),
}
_UNPROTECTED = ("each of them, without protection", "as much as its answers tell")
_UNKNOWN = ("as the guarantee assumes", "as much as it learns of its answers")


def who_learns(statement: PrivacyStatement) -> list[Sequence[str]]:
    """What the server, the other sites and readers of the result learn, a line for each kind of thing.

    Args:
        statement: The privacy statement of a site, whose assumptions say who adds the noise.

    Returns:
        The lines below the header `LEARNS`.
    """
    answers, count = _answers_told(statement)
    return [
        ("rows of a site", _NOTHING, _NOTHING, _NOTHING),
        (
            "answers of a site in each round",
            answers,
            "what follows from the questions; of two sites, each may learn what the other answered",
            "what follows from all of them",
        ),
        (
            "where the fit was in each round",
            "everything",
            "everything: it is the question that they are asked",
            "everything: it is in the file of the result",
        ),
        ("how many rows a site has", count, _NOTHING, _NOTHING),
        (
            "which sites answered",
            "in each round",
            "which sites take part in each round, if answers are masked; otherwise nothing",
            "in how many rounds",
        ),
        ("errors at a site", "their kind, and a sentence without values", _NOTHING, _NOTHING),
        ("budget that a site has left", _NOTHING, _NOTHING, _NOTHING),
        ("model, bounds, levels, budget, method, names of sites", *["everything"] * 3),
    ]


def _answers_told(statement: PrivacyStatement) -> tuple[str, str]:
    """What the server learns of answers and of the number of rows, by who adds the noise."""
    said = set(statement.assumptions)
    if statement.event is None or NO_GUARANTEE in said:
        return _UNPROTECTED
    known = (_SERVER[noise] for noise, sentences in BY_NOISE.items() if sentences[0] in said)
    return next(known, _UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class SitePart:
    """The part of one site in a federated fit, for its own board.

    Args:
        name: The name of the site.
        run: The name of the run, by the site's own study.
        used: The number of its answers that the fit used, if that is known.
        asked: The number of answers that the fit asked for.
        given: The number of answers that left the site, by its own journal.
        paid: The number of answers that it paid for.
        charged: What the run was charged, by its own ledger.
        left: What its ledger has left.
        total: The total of its ledger.
    """

    name: str
    run: str
    used: int | None
    asked: int | None
    given: int
    paid: int
    charged: float
    left: Budget
    total: Budget

    @property
    def spending(self) -> Spending:
        """The parts of the ledger's budget."""
        others = less(less(self.total.epsilon, self.left.epsilon), self.charged)
        return Spending(left=self.left, run=self.charged, earlier=others, total=self.total)

    @property
    def facts(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the site did, as pairs of a name and sentences."""
        used = "not known from this file"
        if self.used is not None:
            used = f"{self.used} of the {self.asked} that it was asked for"
        return [
            ("Run", (f"{self.run}, which the site's own study names",)),
            ("Answers that left the site", (f"{self.given} of the {self.paid} that it paid for",)),
            ("Answers that the fit used", (used,)),
            (
                "What an answer is",
                (
                    "A vector of numbers, computed from all rows of the site, with noise. No row leaves.",
                ),
            ),
            (
                "Charged to the site's ledger",
                (f"epsilon {self.charged:.4g}, once, before the first answer was computed",),
            ),
        ]
