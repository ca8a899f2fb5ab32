"""Several sites fit one posterior, and no row leaves a site.

`PooledScoring`, the default, and `Partitioned` have the settings of a run for `tacit.fit_federated` (all sites in one
process) and `tacit.federated_study` (sites on a network). The other names are privacy schemes. See "Several sites" in the documentation.

The stub ``__init__.pyi`` lists the names. Each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
