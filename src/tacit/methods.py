"""Inference methods and their parts: guides, proposals, samplers and claims.

`Scoring` and `Variational` fit most models, and `tacit.fit` chooses between them by default. "Methods"
in the documentation says what each method releases and which models it takes.

The names here that are not methods are arguments of methods:

- guides of `Variational`: `MeanField`, `FullRank`, `LowRank`;
- proposals of `Barker`: `GaussianWalk`, `BoundedWalk`; `coarsened_size` computes its tempering;
- samplers of `OneSample`: `GridSampler`, `ChainSampler`, `ConjugateSampler`, `LogisticRejection`;
- claims about a likelihood, for the samplers: `BoundedLikelihood`, `LipschitzLikelihood`,
  `LogConcave`.
"""

from tacit.inference.barker import Barker, BoundedWalk, GaussianWalk
from tacit.inference.guides import FullRank, LowRank, MeanField
from tacit.inference.hamiltonian import Hamiltonian
from tacit.inference.langevin import Langevin
from tacit.inference.method import coarsened_size
from tacit.inference.one_sample import (
    ChainSampler,
    ConjugateSampler,
    GridSampler,
    LogisticRejection,
    OneSample,
)
from tacit.inference.scoring import Scoring
from tacit.inference.statistics import Statistics
from tacit.inference.variational import Variational
from tacit.papers.langevin import PublishedLangevin
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave

__all__ = [
    "Barker",
    "BoundedLikelihood",
    "BoundedWalk",
    "ChainSampler",
    "ConjugateSampler",
    "FullRank",
    "GaussianWalk",
    "GridSampler",
    "Hamiltonian",
    "Langevin",
    "LipschitzLikelihood",
    "LogConcave",
    "LogisticRejection",
    "LowRank",
    "MeanField",
    "OneSample",
    "PublishedLangevin",
    "Scoring",
    "Statistics",
    "Variational",
    "coarsened_size",
]
