"""Messages of one question over Flower's grid, and their answers, however late these come."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

_LOG = logging.getLogger(__name__)
# The name of the record that holds the fields of a message.
RECORD = "tacit"
_KIND = "query"
Fields = dict[str, Any]
# Seconds between two looks for answers: more and more, as each costs the SuperLink time.
_PAUSE, _SLOWER, _LONGEST = 0.25, 1.2, 5.0


class Post:
    """Sends messages and keeps waiting for the answers to all of them.

    A message that is sent again does not replace the one before: whichever is answered first counts. A site
    that takes longer than the time after which it is asked again is therefore heard in the end.

    Args:
        grid: The grid of the ServerApp.
        keep: Seconds for which Flower keeps a message.
    """

    def __init__(self, grid: Grid, keep: float) -> None:
        self._grid, self._keep = grid, max(keep, 60.0)
        self._waiting: dict[str, int] = {}  # the node of every message that was not answered

    def send(self, fields: Mapping[int, Fields]) -> None:
        """Sends fields to nodes."""
        nodes = list(fields)
        messages = [
            Message(RecordDict({RECORD: ConfigRecord(fields[node])}), node, _KIND, ttl=self._keep)
            for node in nodes
        ]
        if messages:
            sent = self._grid.push_messages(messages)
            self._waiting |= {key: node for key, node in zip(sent, nodes, strict=True) if key}

    def answers(self, timeout: float) -> dict[int, Fields]:
        """Answers by node: until every node has answered or failed, or the time is over."""
        end, found, pause = time.monotonic() + timeout, dict[int, Fields](), _PAUSE
        while True:
            found |= self._pulled()
            if not self._waiting or time.monotonic() >= end:
                return found
            time.sleep(min(pause, max(end - time.monotonic(), 0.01)))
            pause = min(_SLOWER * pause, _LONGEST)

    def _pulled(self) -> dict[int, Fields]:
        """The answers that are there. Other messages to the same node need none any more."""
        found: dict[int, Fields] = {}
        if not self._waiting:
            return found
        for reply in self._grid.pull_messages(list(self._waiting)):
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_content() and RECORD in reply.content.config_records:
                found[node] = dict(reply.content.config_records[RECORD])
            elif reply.has_content():
                _LOG.warning("A node sent an invalid answer.")
            else:
                _LOG.warning("A node failed: %s", reply.error.reason)
        self._waiting = {key: node for key, node in self._waiting.items() if node not in found}
        return found
