"""The list of methods, as the command line, the docs and plans use it. A new method needs a line here.

Methods are listed by name, so that listing them loads none of them.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting import Budget
    from tacit.inference.method import Method
    from tacit.models.base import UnitModel

DEFAULT = "default"


@dataclass(frozen=True)
class MethodEntry:
    """A method by its class and module, and what it releases.

    ``command`` is its name on the command line; methods whose settings cannot be typed there have none. ``title`` is its
    name in reports. With ``is_default``, it is a default for models that it can fit.
    """

    name: str
    module: str
    releases: str
    command: str | None = None
    is_default: bool = False
    title: str = ""

    @property
    def kind(self) -> "type[Method]":
        """The class; loads its module."""
        kind: type[Method] = vars(import_module(self.module))[self.name]
        return kind


# The default of a model is the first of the default methods that can fit it.
METHODS = (
    MethodEntry("Scoring", "tacit.inference.scoring", "noisy sums of bounded scores and their curvature", "scoring", is_default=True, title="private Fisher scoring"),
    MethodEntry("Variational", "tacit.inference.variational", "noisy sums of clipped gradients", "variational", is_default=True, title="variational inference"),
    MethodEntry("Barker", "tacit.inference.barker", "one accept/reject decision per step", "barker", title="a chain of Barker tests"),
    MethodEntry("Langevin", "tacit.inference.langevin", "noisy sums of clipped gradients", "langevin", title="Langevin dynamics"),
    MethodEntry("Hamiltonian", "tacit.inference.hamiltonian", "noisy sums of clipped gradients and log ratios", "hamiltonian", title="Hamiltonian Monte Carlo"),
    MethodEntry("Statistics", "tacit.inference.statistics", "one noisy sum of sufficient statistics", "statistics", title="noisy sums"),
    MethodEntry("OneSample", "tacit.inference.one_sample", "one posterior draw", title="private draws of the posterior"),
    MethodEntry("PublishedLangevin", "tacit.papers.langevin", "as Langevin", title="Langevin dynamics as published"),
)  # fmt: skip

METHODS_BY_COMMAND = {each.command: each for each in METHODS if each.command is not None}
# The choices on the command line, and in its help.
CHOICES = (DEFAULT, *METHODS_BY_COMMAND)
CHOICES_TEXT = f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}"


def method_title(method: "Method") -> str:
    """The name of a method in reports: its title, or the name of its class if it is not listed."""
    kind = type(method).__name__
    return next((each.title for each in METHODS if each.name == kind and each.title), kind)


def choose_method(
    model: "UnitModel",
    method: "Method | str | None",
    size: int | None = None,
    budget: "Budget | None" = None,
) -> "Method":
    """The method of a call that takes settings, a name such as ``"variational"``, or None for the default.

    Raises:
        InvalidArgument: If it is none of them.
    """
    from tacit.inference.method import Method

    if isinstance(method, Method):
        return method
    if method is None or method == DEFAULT:
        return default_method(model, size, budget)
    if not isinstance(method, str):
        raise InvalidArgument(
            'method must be a name such as "variational", or settings such as tacit.Scoring(num_steps=57).'
        )
    named = entry_named(method).kind()
    return named if size is None or budget is None else named.for_size(model, size, budget)


def entry_named(name: str, others: tuple[str, ...] = ()) -> MethodEntry:
    """The method of a name: that of the command line or of the class, in any case.

    Raises:
        InvalidArgument: If there is no such method; the message lists them, and ``others``.
    """
    known = {_plain(each.name): each for each in METHODS}
    if _plain(name) in known:
        return known[_plain(name)]
    near = get_close_matches(_plain(name), known, n=1)
    hint = f" Did you mean {known[near[0]].name!r}?" if near else ""
    listed = ", ".join([*METHODS_BY_COMMAND, *others])
    raise InvalidArgument(f"There is no method {name!r}; the names are {listed}.{hint}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def default_method(
    model: "UnitModel", size: int | None = None, budget: "Budget | None" = None
) -> "Method":
    """The default method of a model, chosen by public facts alone.

    Args:
        model: The model.
        size: The declared number of units.
        budget: The budget, if there is a size.

    Returns:
        The method, with settings for that size and budget; without them, its default settings.
    """
    kind = next(each.kind for each in METHODS if each.is_default and each.kind.can_fit(model))
    return kind() if size is None or budget is None else kind().for_size(model, size, budget)
