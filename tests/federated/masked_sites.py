"""Masked sites in this process, for tests."""

from dataclasses import replace

from tacit.federated.protocol import Session


class MaskedInProcess:
    """Masked sites in this process, for tests."""

    refused = {}  # noqa: RUF012 (as a transport has it)

    def __init__(self, sites):
        self._sites = {site.name: site for site in sites}
        self._attempt, self.sent = 0, True

    @property
    def sites(self):
        """The sites' names, in the order given."""
        return tuple(self._sites)

    def exchange(self, tasks):
        """First all keys, then all replies."""
        self._attempt += 1
        offers = [
            self._sites[name].offer(Session(task.run, task.round, self._attempt))
            for name, task in tasks.items()
        ]
        members = tuple(tasks)
        return {
            name: replace(self._sites[name].answer(task, self._attempt, offers), members=members)
            for name, task in tasks.items()
        }
