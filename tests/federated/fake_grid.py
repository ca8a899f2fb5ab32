"""A Flower grid without processes or a network: nodes are calls of the ClientApp."""

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tacit.federated.flower import client_app, grid


class Clock:
    """The time of a server that waits for nothing but answers that do not come."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def as_by_flower(monkeypatch):
    """The server's clock is ours, and this process may send messages: those Flower starts are told."""
    monkeypatch.setattr(grid, "time", Clock())
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class FakeGrid:
    """Calls a ClientApp for every message, with a context as a node would give it.

    ``trouble(node, fields, count)`` may say "lost" (the node never sees the message), "late" (it
    answers, and nobody hears) or "dead" (Flower reports an error).
    """

    def __init__(self, files, trouble=None):
        self.files = dict(enumerate(files.values(), start=1))
        self.trouble, self.count, self.replies = trouble or (lambda *_: None), 0, []
        self.app = client_app()

    def get_node_ids(self):
        return list(self.files)

    def call(self, message):
        node = message.metadata.dst_node_id
        config = {"site": str(self.files[node])}
        context = Context(1, node, config, RecordDict(), {})
        return self.app(message, context)

    def send_and_receive(self, messages, *, timeout):
        missing = False
        for message in messages:
            self.count += 1
            fields = dict(message.content.config_records["tacit"])
            bad = self.trouble(message.metadata.dst_node_id, fields, self.count)
            missing |= bad in {"lost", "late"}
            if bad == "lost":
                continue
            if bad == "dead":
                yield Message(Error(0), reply_to=message)
                continue
            reply = self.call(message)
            self.replies.append((fields, dict(reply.content.config_records["tacit"])))
            if bad != "late":
                yield reply
        if missing:
            grid.time.sleep(timeout)
