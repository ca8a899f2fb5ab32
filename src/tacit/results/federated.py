"""The posterior of a federated fit, with a privacy statement for each site."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit.results.posterior import Posterior
from tacit.results.statement import PrivacyStatement


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FederatedPosterior(Posterior):
    """A `Posterior` with the privacy statement of each site.

    ``privacy`` is the weakest statement of all sites.

    Attributes:
        sites: The privacy statement of each site, by name.
    """

    sites: Mapping[str, PrivacyStatement] = field(default_factory=dict)
