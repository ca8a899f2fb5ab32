"""All reproductions, in the order of the sources. Add a module here, and `tacit reproduce` has it."""

from collections.abc import Sequence
from importlib import import_module

from reproduction import Experiment

MODULES: tuple[str, ...] = (
    "abstract_clipping",
    "abstract_sampling",
    "report_gradients",
    "report_sampling",
    "report_bias",
    "report_clipping",
    "report_posteriors",
    "report_dataset",
    "report_theory",
    "blog_theorems",
    "blog_breast_cancer",
    "thesis_composition",
    "thesis_passes",
    "thesis_comparison",
    "thesis_sampling",
    "thesis_clipping",
    "thesis_langevin",
    "thesis_mixture",
    "thesis_choices",
    "mcmc_parameters",
    "mcmc_correction",
    "mcmc_chains",
    "mcmc_choices",
)


def experiments() -> Sequence[Experiment]:
    """Every experiment; their modules load here."""
    return [import_module(name).EXPERIMENT for name in MODULES]
