"""A posterior that several sites fitted together, with a statement of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FederatedPosterior(Posterior):
    """A `Posterior`, and in ``sites`` what it cost the people at each site.

    ``privacy`` is the statement of the site that is promised the least.
    """

    sites: Mapping[str, PrivacyStatement] = field(default_factory=dict)
