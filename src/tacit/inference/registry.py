"""The methods there are. A new one is a file beside this one, and a line here.

Listing them loads none of them.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.accounting import Budget
    from tacit.inference.method import Method
    from tacit.models.base import UnitModel

DEFAULT = "default"


@dataclass(frozen=True)
class MethodEntry:
    """A method: the class, the module it is in, and what leaves by it, as the docs say.

    ``called`` is its name for people who know no Python. ``command`` is its name on the command line; methods whose settings cannot be typed have none.
    A ``usual`` one is taken if nothing is asked for, for models that it can fit.
    """

    name: str
    home: str
    leaves: str
    command: str | None = None
    usual: bool = False
    called: str = ""

    @property
    def kind(self) -> "type[Method]":
        """The class, which is loaded by this."""
        kind: type[Method] = vars(import_module(self.home))[self.name]
        return kind


# The first usual one that can fit a model is its default.
METHODS = (
    MethodEntry("Scoring", "tacit.inference.scoring", "noisy sums of bounded scores and their curvature", "scoring", usual=True, called="private Fisher scoring"),
    MethodEntry("Variational", "tacit.inference.variational", "noisy sums of clipped gradients", "variational", usual=True, called="variational inference"),
    MethodEntry("Barker", "tacit.inference.barker", "one accept/reject decision per step", "barker", called="a chain of Barker tests"),
    MethodEntry("Langevin", "tacit.inference.langevin", "noisy sums of clipped gradients", "langevin", called="Langevin dynamics"),
    MethodEntry("Hamiltonian", "tacit.inference.hamiltonian", "noisy sums of clipped gradients and log ratios", "hamiltonian", called="Hamiltonian Monte Carlo"),
    MethodEntry("Statistics", "tacit.inference.statistics", "one noisy sum of sufficient statistics", "statistics", called="noisy sums"),
    MethodEntry("OneSample", "tacit.inference.one_sample", "one posterior draw", called="private draws of the posterior"),
    MethodEntry("PublishedLangevin", "tacit.papers.langevin", "as Langevin", called="Langevin dynamics as published"),
)  # fmt: skip

COMMANDS = {each.command: each for each in METHODS if each.command is not None}
# As the command line's help says them.
CHOICES = (DEFAULT, *COMMANDS)
CHOICES_TEXT = f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}"


def method_title(method: "Method") -> str:
    """The name of a method for people; that of its class if it is not listed."""
    kind = type(method).__name__
    return next((each.called for each in METHODS if each.name == kind and each.called), kind)


def default_method(
    model: "UnitModel", size: int | None = None, budget: "Budget | None" = None
) -> "Method":
    """What fits a model if nothing is asked for, by what is public of it.

    Args:
        model: The model.
        size: The declared number of units.
        budget: The budget, if there is a size.

    Returns:
        The method, with settings for that size and budget; without them, its usual settings.
    """
    kind = next(each.kind for each in METHODS if each.usual and each.kind.can_fit(model))
    return kind() if size is None or budget is None else kind().for_size(model, size, budget)
