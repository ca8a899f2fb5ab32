"""A Flower grid without processes or a network: nodes are calls of the ClientApp."""

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tacit.federated import flower_grid
from tacit.federated.flower import client_app

# Seconds that a slow node takes, longer than tests let a message wait.
SLOW = 8.0


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
    clock = Clock()
    monkeypatch.setattr(flower_grid, "time", clock)
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class FakeGrid:
    """Calls a ClientApp for every message, with a context as a node would give it.

    ``trouble(node, fields, count)`` may say "lost" (the node never sees the message), "late" (it
    answers, and nobody hears), "slow" (its answer comes after it was asked again) or "dead"
    (Flower reports an error).
    """

    def __init__(self, files, trouble=None):
        self.files = dict(enumerate(files.values(), start=1))
        self.trouble, self.count, self.replies = trouble or (lambda *_: None), 0, []
        self.waiting = {}
        self.app = client_app()

    def get_node_ids(self):
        return list(self.files)

    def call(self, message):
        node = message.metadata.dst_node_id
        config = {"site": str(self.files[node])}
        context = Context(1, node, config, RecordDict(), {})
        return self.app(message, context)

    def push_messages(self, messages):
        return [self._pushed(message) for message in messages]

    def _pushed(self, message):
        self.count += 1
        key = message.metadata.__dict__["_message_id"] = f"message {self.count}"
        fields = dict(message.content.config_records["tacit"])
        bad = self.trouble(message.metadata.dst_node_id, fields, self.count)
        if bad == "lost":
            return key
        if bad == "dead":
            self.waiting[key] = 0.0, Message(Error(0), reply_to=message)
            return key
        reply = self.call(message)
        self.replies.append((fields, dict(reply.content.config_records["tacit"])))
        if bad != "late":
            slow = SLOW if bad == "slow" else 0.0
            self.waiting[key] = flower_grid.time.monotonic() + slow, reply
        return key

    def pull_messages(self, message_ids):
        now = flower_grid.time.monotonic()
        there = [key for key in message_ids if self.waiting.get(key, (np.inf, None))[0] <= now]
        return [self.waiting.pop(key)[1] for key in there]
