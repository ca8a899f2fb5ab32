"""Privacy schemes of federated fits: how sites protect their data.

The stub ``__init__.pyi`` lists the names. Each is imported when it is first used.

>>> from tacit.federated.schemes import ClippedChanges
>>> ClippedChanges(clip=1.0).each_message_private
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
