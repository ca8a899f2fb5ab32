"""Privacy schemes of federated fits: how sites protect their data.

>>> from tacit.federated.schemes import ClippedChanges
>>> ClippedChanges(clip=1.0).each_message_private
True
"""

from tacit.federated.schemes.changes import ClippedChanges
from tacit.federated.schemes.hybrid import Hybrid
from tacit.federated.schemes.optimised import Optimised
from tacit.federated.schemes.statistics import ClippedStatistics, OneRelease
from tacit.federated.schemes.variants import algorithm_three, local_averaging, virtual_clients
from tacit.federated.schemes.without_privacy import WithoutPrivacy

__all__ = [
    "ClippedChanges",
    "ClippedStatistics",
    "Hybrid",
    "OneRelease",
    "Optimised",
    "WithoutPrivacy",
    "algorithm_three",
    "local_averaging",
    "virtual_clients",
]
