"""All reproductions, in the order of the sources. Add a module here, and `tacit reproduce` has it."""

import ast
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from reproduction import Claim, Experiment, Setting

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
    """Every experiment as its module describes it; the module loads when the experiment runs."""
    return [_described(name) for name in MODULES]


def _described(name: str) -> Experiment:
    """The constants of ``EXPERIMENT = Experiment(...)``, read from the text of the module."""
    text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    (call,) = (
        each.value
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "EXPERIMENT"
    )
    assert isinstance(call, ast.Call)
    told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg != "run"}
    return Experiment(**told, run=partial(_run, name))


def _run(name: str, setting: Setting) -> Sequence[Claim]:
    found: Sequence[Claim] = import_module(name).EXPERIMENT.run(setting)
    return found
