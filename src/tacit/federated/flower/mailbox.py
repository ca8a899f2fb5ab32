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
_MESSAGE_TYPE = "query"
Fields = dict[str, Any]
# Seconds between two looks for answers: more and more, as each costs the SuperLink time.
_POLL_SECONDS, _POLL_GROWTH, _MAX_POLL_SECONDS = 0.25, 1.2, 5.0


class Mailbox:
    """Sends messages and keeps waiting for the answers to all of them.

    A message that is sent again does not replace the one before: whichever is answered first counts. A site
    that takes longer than the time after which it is asked again is therefore heard in the end. Each time it
    is given twice as long, so that messages do not pile up at a slow site.

    Args:
        grid: The grid of the ServerApp.
        keep: Seconds for which Flower keeps a message.
        again: Seconds after which a node that did not answer may be asked again.
    """

    def __init__(self, grid: Grid, keep: float, again: float) -> None:
        self._grid, self._keep, self._again = grid, max(keep, 60.0), again
        self._waiting: dict[str, int] = {}  # the node of every message that was not answered
        self._due: dict[
            int, tuple[float, float]
        ] = {}  # when a node may be asked again, and after what

    def send(self, fields: Mapping[int, Fields]) -> None:
        """Sends fields to those nodes that were not asked a short time ago."""
        now, never = time.monotonic(), (0.0, self._again)
        nodes = [node for node in fields if node not in self._due or self._due[node][0] <= now]
        for node in nodes:
            after = self._due.get(node, never)[1]
            self._due[node] = now + after, 2 * after
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord(fields[node])}),
                node,
                _MESSAGE_TYPE,
                ttl=self._keep,
            )
            for node in nodes
        ]
        if messages:
            sent = self._grid.push_messages(messages)
            self._waiting |= {key: node for key, node in zip(sent, nodes, strict=True) if key}

    def forget(self, node: int) -> None:
        """Asks a node without delay when it is there again."""
        self._due.pop(node, None)

    @property
    def waits(self) -> bool:
        """Whether a message has neither been answered nor failed."""
        return bool(self._waiting)

    def answers(self, timeout: float) -> dict[int, Fields]:
        """Answers by node: until every node has answered or failed, or the time is over."""
        end, found, pause = time.monotonic() + timeout, dict[int, Fields](), _POLL_SECONDS
        while True:
            found |= self._pulled()
            if not self._waiting or time.monotonic() >= end:
                return found
            time.sleep(min(pause, max(end - time.monotonic(), 0.01)))
            pause = min(_POLL_GROWTH * pause, _MAX_POLL_SECONDS)

    def _pulled(self) -> dict[int, Fields]:
        """The answers that are there. Other messages to the same node need none any more."""
        found: dict[int, Fields] = {}
        if not self._waiting:
            return found
        for reply in self._grid.pull_messages(list(self._waiting)):
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            self.forget(node)
            if reply.has_content() and RECORD in reply.content.config_records:
                found[node] = dict(reply.content.config_records[RECORD])
            elif reply.has_content():
                _LOG.warning("A node sent an invalid answer.")
            else:
                _LOG.warning("A node failed: %s", reply.error.reason)
        self._waiting = {key: node for key, node in self._waiting.items() if node not in found}
        return found
