"""How to read the parameters of a generalised linear model: units, reference levels and priors."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpyro.distributions import Distribution

from tacit.models.design import Group, Term
from tacit.models.families.base import Outcome
from tacit.models.priors import described, in_words
from tacit.models.program import INTERCEPT, Program
from tacit.models.reading import Meaning, Prior, Reading, Reference

# Names of columns that a question lists.
_MOST_NAMES = 6


class _Scale(NamedTuple):
    """What coefficients are changes of, and what their exponentials are called."""

    words: str
    ratio: str | None = None


# By link. A softmax compares each level of the outcome with the first.
_SCALES = {
    "identity": _Scale("the mean of {outcome}"),
    "log": _Scale("the logarithm of the mean of {outcome}", "ratio of means"),
    "logit": _Scale("the log-odds that {event}", "odds ratio"),
    "probit": _Scale("the probit of the probability that {event}"),
    "cloglog": _Scale("the complementary log-log of the probability that {event}"),
    "softmax": _Scale("the log-odds of each level of {outcome} against {first}", "odds ratio"),
}
# Where a family's coefficients are changes of something else than its link says.
_OF_FAMILY = {
    ("beta", "logit"): _Scale("the log-odds of the mean of {outcome}", "ratio of odds"),
    ("ordinal", "logit"): _Scale("the log-odds of a higher level of {outcome}", "odds ratio"),
    ("ordinal", "probit"): _Scale("the probit of the probability of a higher level of {outcome}"),
    ("weibull", "log"): _Scale("the logarithm of {outcome}", "ratio of times"),
}
# What regressions are called, by family and link.
_CALLED = {
    ("bernoulli", "logit"): "logistic regression",
    ("binomial", "logit"): "logistic regression",
    ("categorical", "softmax"): "multinomial logistic regression",
    ("beta", "logit"): "beta regression",
    ("gamma", "log"): "gamma regression",
    ("gaussian", "identity"): "linear regression",
    ("negativebinomial", "log"): "negative binomial regression",
    ("ordinal", "logit"): "ordinal logistic regression",
    ("poisson", "log"): "Poisson regression",
    ("weibull", "log"): "Weibull regression",
    ("zero_inflated_negativebinomial", "log"): "zero-inflated negative binomial regression",
    ("zero_inflated_poisson", "log"): "zero-inflated Poisson regression",
}
_RATES = (
    "poisson",
    "negativebinomial",
    "zero_inflated_poisson",
    "zero_inflated_negativebinomial",
)


def reading_of_glm(formula: str, program: Program, priors: Mapping[str, Any]) -> Reading:
    """How to read the parameters of a formula.

    Args:
        formula: The formula.
        program: The model, which has all public facts.
        priors: The priors of its parameters.

    Returns:
        The reading.
    """
    outcome, scale = program.outcome, _scale(program)
    measured = program.link == "identity" and not outcome.facts.levels
    return Reading(
        formula=formula,
        question=_question(program),
        outcome=outcome.name,
        kind=_kind(program.family.name, program.link),
        scale=scale.words,
        ratio=scale.ratio,
        reference=_reference(program.terms),
        bounds=(outcome.facts.low, outcome.facts.high) if measured else None,
        parameters=_meanings(program, priors, ratio=scale.ratio is not None),
    )


def meaning_of(program: Program, name: str) -> str:
    """What a parameter of the model means, in its own steps, in a few words."""
    for group in program.groups:
        if name == f"{group.name}_sd":
            return "; ".join(filter(None, (_BETWEEN, group.varying.meaning)))
    if name in (further := _further(program)):
        return further[name][0]
    if name == INTERCEPT:
        return "at the reference"
    if name == program.cutpoint:
        return _CUTPOINTS
    return next(term.block.meaning for term in program.terms if term.name == name)


_BETWEEN = "standard deviation between groups"
_CUTPOINTS = "between levels, in order; at the reference"


def _meanings(program: Program, priors: Mapping[str, Any], *, ratio: bool) -> dict[str, Meaning]:
    found = {name: Meaning("spread", prior=_prior(each)) for name, each in priors.items()}
    if INTERCEPT in found:
        words = "at the reference" if _reference(program.terms) else ""
        found[INTERCEPT] = Meaning("intercept", words, prior=_prior(priors[INTERCEPT]))
    if program.cutpoint is not None:
        prior = _prior(priors[program.cutpoint])
        found[program.cutpoint] = Meaning("intercept", _CUTPOINTS, prior=prior)
    for term in program.terms:
        found[term.name] = _of_term(term, _prior(priors[term.name]), ratio=ratio)
    for group in program.groups:
        found |= _grouped(group, priors, ratio=ratio)
    for name, (words, start) in _further(program).items():
        found[name] = Meaning("spread", prior=_prior(priors[name]), start=start, note=words)
    return found


def _further(program: Program) -> dict[str, tuple[str, float]]:
    """The family's parameters beside the coefficients: what each is, and where a fit begins."""
    return {
        name: (each.meaning, each.start(program.scales)) for name, each in program.further.items()
    }


def _of_term(term: Term, prior: Prior, *, ratio: bool) -> Meaning:
    block = term.block
    if term.is_level:
        return Meaning("intercept", block.text, block.steps, prior)
    if not block.alone:
        return Meaning("coefficient", "part of a curve", block.steps, prior, note=block.text)
    return Meaning("coefficient", block.text, block.steps, prior, ratio)


def _grouped(group: Group, priors: Mapping[str, Any], *, ratio: bool) -> dict[str, Meaning]:
    """Effects of groups, which people's are not reported of, and their standard deviation."""
    of, sd = group.varying, f"{group.name}_sd"
    between = "; ".join(filter(None, (_BETWEEN, of.text)))
    found = {sd: Meaning("spread", "", of.steps, _prior(priors[sd]), note=between)}
    if group.person is None:
        around = Prior(f"Normal(0, {sd})")
        text = "; ".join(filter(None, ("against the mean of groups", of.text)))
        found[group.name] = Meaning("effect", text, of.steps, around, ratio)
    return found


def _prior(prior: Distribution) -> Prior:
    return Prior(described(prior), *in_words(prior))


def _scale(program: Program) -> _Scale:
    outcome, family = program.outcome, program.family.name
    by_link = _SCALES.get(program.link, _Scale("the linear predictor of {outcome}"))
    scale = _OF_FAMILY.get((family, program.link), by_link)
    ratio = "rate ratio" if family in _RATES and program.link == "log" else scale.ratio
    first = outcome.facts.levels[0] if outcome.facts.levels else ""
    words = scale.words.format(outcome=_measured(outcome), event=_event(outcome), first=first)
    return _Scale(words, ratio)


def _kind(family: str, link: str) -> str:
    return _CALLED.get((family, link), f"{family} regression with link {link}")


def _measured(outcome: Outcome) -> str:
    measure = outcome.facts.measure
    if measure in (None, outcome.name):
        return outcome.name
    return f"{outcome.name} in {measure}"


def _event(outcome: Outcome) -> str:
    """What has odds: that a binary outcome is yes, or that a trial is a success."""
    return "a trial is a success" if outcome.trials is not None else outcome.described


def _reference(terms: Sequence[Term]) -> tuple[Reference, ...]:
    """Where all numbers of the design are zero, each variable once."""
    at = dict(each for term in terms for each in term.block.reference)
    return tuple(Reference(*each) for each in at.items())


def _question(program: Program) -> str:
    """What the formula asks, as a question."""
    outcome, names = program.outcome, _predictors(program)
    levels = outcome.facts.levels
    named = (
        "" if levels in ((), ("0", "1")) or len(levels) > 2 else f" ({' or '.join(levels[::-1])})"
    )
    if outcome.trials is not None:
        named = f" ({outcome.described})"
    if not names:
        return f"How is {outcome.name}{named} distributed?"
    return f"How does {outcome.name}{named} depend on {_listed(names)}?"


def _predictors(program: Program) -> list[str]:
    """The columns that the outcome depends on, in the order of the formula."""
    parts: tuple[Term | Group, ...] = (*program.terms, *program.groups)
    steps: list[str] = []
    for part in parts:
        block = part.block if isinstance(part, Term) else part.varying
        steps += [name for name, _ in block.reference if name in part.columns]
        steps += [name for name in _named(part.name, part.columns) if name not in steps]
    return list(dict.fromkeys(steps))


def _named(name: str, columns: frozenset[str]) -> list[str]:
    """Columns by where they are in the name of a part."""
    return sorted(columns, key=name.find)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown.append(f"{len(names) - _MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
