"""Sites over a network, by Flower (the extra ``federated``).

Flower starts a process for every message, and may lose messages and nodes. A site's memory is therefore on
its own disk (`tacit.federated.deploy`). The server repeats a task that was not answered, and the site's
journal gives the same reply. A site that does not answer, or answers with an error or an invalid reply, is
left out of the round; its next task tells it so. The server's memory is on its disk too
(`tacit.federated.state`).

The code of a ClientApp comes with the run. A site that wants to keep it away from rows runs a guard
(`tacit.federated.guard`). The server learns only the kind of an error at a site, and a sentence
(`tacit.federated.guard`).

The stub ``__init__.pyi`` lists the names. Each is imported when it is first used: a node that only passes
messages on to a guard needs little of Tacit, and starts quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
