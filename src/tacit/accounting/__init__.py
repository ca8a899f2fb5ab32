"""Privacy accounting. It works on public numbers only, never on rows.

A `Budget` is what a person is promised. An event (`events`) is what a run does to the data. An accountant
(`PLD`, `Renyi`, ...) computes the cost of an event. `calibrate` finds the least noise that a budget allows.
`convert` converts one kind of guarantee into another.
The stub ``__init__.pyi`` lists the public names; each is imported when it is first used.

>>> from tacit.accounting import PLD, events
>>> run = events.sampled_gaussian(noise_multiplier=2, sampling_rate=0.005, num_steps=2000)
>>> {adjacency: round(e, 3) for adjacency, e in PLD().epsilons(run, delta=1e-3).items()}
{'add-remove': 0.248, 'replace': 0.521}
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
