"""The server's end of a Flower run: a transport over Flower's grid, and a study run to its end.

The transport finds sites among nodes, and repeats messages until they answer, however late the answers come.
"""

import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from tacit import _validate
from tacit._precision import in_32_bits
from tacit.errors import Refused
from tacit.federated.agreement import Agreement
from tacit.federated.deploy import Study
from tacit.federated.flower import RECORD
from tacit.federated.protocol import (
    Fields,
    Offer,
    Reply,
    Task,
    task_fields,
    valid_offer,
    valid_reply,
)
from tacit.federated.server import Server, run_schedule
from tacit.federated.state import RunStatus, ServerStateFile
from tacit.federated.targets import Target

_LOG = logging.getLogger(__name__)
_MESSAGE_TYPE = "query"
# Seconds between two looks for answers: more and more, as each costs the SuperLink time.
_POLL_SECONDS, _POLL_GROWTH, _MAX_POLL_SECONDS = 0.25, 1.2, 5.0
# Seconds before a question that failed is repeated: at first, and at most.
_RETRY_SECONDS = 0.5, 30.0


class Mailbox:
    """Sends messages and keeps waiting for the answers to all of them.

    A message that is sent again does not replace the one before: whichever is answered first counts. A site
    that takes longer than the time after which it is asked again is therefore used in the end. Each time it
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
            found |= self._pull()
            if not self._waiting or time.monotonic() >= end:
                return found
            time.sleep(min(pause, max(end - time.monotonic(), 0.01)))
            pause = min(_POLL_GROWTH * pause, _MAX_POLL_SECONDS)

    def _pull(self) -> dict[int, Fields]:
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


class RoundGroups(Protocol):
    """Remembers the sites of rounds whose answers are masked: other sites would be refused."""

    def round_members(self, number: int) -> tuple[str, ...] | None:
        """The sites of a round, if it was asked."""
        ...

    def bind_round(self, number: int, members: tuple[str, ...]) -> None:
        """Remembers the sites of a round, before they are asked."""
        ...


class _GroupsInMemory:
    """Groups of rounds until the process ends."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[str, ...]] = {}

    def round_members(self, number: int) -> tuple[str, ...] | None:
        """The sites of a round, if it was asked."""
        return self._groups.get(number)

    def bind_round(self, number: int, members: tuple[str, ...]) -> None:
        """Remembers the sites of a round."""
        self._groups[number] = members


class FlowerTransport:
    """Carries tasks over a Flower grid; see `tacit.federated.protocol` for its guarantees.

    Every node sends the name of its site. The first node with a name keeps it. Another node
    that claims it is refused; if two claim it at once, both are.

    Args:
        grid: The grid of the ServerApp.
        sites: Names of the sites.
        agreement: What sites must agree on. It goes with every message, and an answer without it is
            left out.
        masked: Whether replies are masked.
        dropouts: Of masked replies, how many sites may be missing from a round.
        groups: Where the sites of such rounds are remembered; by default in memory.
        timeout: Seconds after which a message that was not answered is sent again.
        patience: Seconds after which the round continues without the site. In later rounds it is
            waited for no longer than ``timeout``, until it answers again.
        nodes: Node numbers of sites, by name, if they are known.
    """

    def __init__(
        self,
        grid: Grid,
        sites: tuple[str, ...],
        *,
        agreement: Agreement,
        masked: bool = False,
        dropouts: int = 0,
        groups: RoundGroups | None = None,
        timeout: float = 600.0,
        patience: float = 3600.0,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        self.sites = sites
        self.refused: dict[str, str] = {}
        self._grid, self._agreement = grid, agreement
        self._masked, self._dropouts = masked, dropouts
        self._groups, self.sent = groups or _GroupsInMemory(), True
        self._absent: set[str] = set()  # sites that nobody waits for any more
        self._timeout = _validate.positive("timeout", timeout)
        self._patience = _validate.positive("patience", patience)
        self._nodes: dict[str, int] = {}  # the present node of each site
        self._hellos = self._new_mailbox()
        self._bound = dict(nodes or {})  # the node that may be each site
        self._said = ""  # about sites that are waited for

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """The replies of the sites that answered in time."""
        # A restarted server asks for new masks, so that no key is used twice.
        attempt = 1 + secrets.randbelow(2**31)
        if not self._masked:
            return self._replies(tasks, attempt)
        number = next(iter(tasks.values())).round
        group = self._groups.round_members(number)
        self.sent = group is not None
        asked = {name: task for name, task in tasks.items() if group is None or name in group}
        offers = self._offers(asked, attempt)
        members = tuple(offer.site for offer in offers)
        if group is not None and set(members) != set(group):
            return {}  # the answers of the others are bound to the whole group
        if group is None:
            if len(members) < len(tasks) - self._dropouts:
                return {}  # no task is sent, and nobody's answer is bound to these members
            self._groups.bind_round(number, members)
            self.sent = True
        replies = self._replies({name: tasks[name] for name in members}, attempt, offers)
        return {name: replace(each, members=members) for name, each in replies.items()}

    def _replies(
        self, tasks: Mapping[str, Task], attempt: int, offers: Sequence[Offer] = ()
    ) -> dict[str, Reply]:
        """The replies to tasks, with the keys of all sites of the round."""
        agreed = self._agreement.text
        fields = {
            name: task_fields(task, attempt, offers, agreed=agreed) for name, task in tasks.items()
        }
        replies = {name: valid_reply(name, each) for name, each in self._deliver(fields).items()}
        return {name: reply for name, reply in replies.items() if reply is not None}

    def _offers(self, tasks: Mapping[str, Task], attempt: int) -> list[Offer]:
        """The keys of the sites of a round."""
        asked = {
            name: {
                "kind": "offer",
                "agreed": self._agreement.text,
                "run": task.run,
                "round": task.round,
                "attempt": attempt,
            }
            for name, task in tasks.items()
        }
        offers = [valid_offer(name, each) for name, each in self._deliver(asked).items()]
        return [offer for offer in offers if offer is not None]

    def _deliver(self, fields: Mapping[str, Fields]) -> dict[str, Fields]:
        """The answers of sites, each asked until it answers or patience ends; late ones count.

        One that answers with an error, or that refuses the study, is asked again in the next round. Between
        two questions that failed there is a pause, which gets longer.
        """
        end, found = time.monotonic() + self._patience, dict[str, Fields]()
        missing, mailbox = dict(fields), self._new_mailbox()
        names, pause = dict[int, str](), _RETRY_SECONDS[0]
        while missing and (left := end - time.monotonic()) > 0:
            refusing = self._find_sites(missing, min(self._timeout, left))
            missing = {name: each for name, each in missing.items() if name not in refusing}
            asked = {
                self._nodes[name]: each for name, each in missing.items() if name in self._nodes
            }
            names |= {node: name for name, node in self._nodes.items()}
            mailbox.send(asked)
            for node, reply in mailbox.answers(min(self._timeout, left)).items():
                found[names[node]] = reply
            missing = {name: each for name, each in missing.items() if name not in found}
            self._tell_missing(missing)
            self._forget_disconnected(missing, mailbox)
            if missing.keys() <= self._absent:
                break
            if not mailbox.waits:
                time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
                pause = min(2 * pause, _RETRY_SECONDS[1])
        self._absent = (self._absent | fields.keys()) - found.keys()
        return {name: reply for name, reply in found.items() if not self._is_refusal(name, reply)}

    def _tell_missing(self, names: Collection[str]) -> None:
        """Logs which sites are waited for, and of which there is no node; the same only once."""
        absent = [name for name in names if name not in self._nodes]
        there = [name for name in names if name in self._nodes]
        said = f"No answer yet from {', '.join(there)}." if there else ""
        if absent:
            said += (
                f" No node of {', '.join(absent)} is connected: it is starting, or its key is not registered, or it "
                "does not run; the node's own log says which."
            )
        if said != self._said:
            self._said = said
            _LOG.info("%s", said.strip() or "All sites have answered.")

    def _forget_disconnected(self, missing: Mapping[str, Fields], mailbox: Mailbox) -> None:
        """Forgets nodes that are not connected any more: the site may return as another node."""
        connected = set(self._grid.get_node_ids())
        for name in missing:
            if name in self._nodes and self._nodes[name] not in connected:
                node = self._nodes.pop(name)
                mailbox.forget(node)
                self._hellos.forget(node)

    def _new_mailbox(self) -> Mailbox:
        return Mailbox(self._grid, 2 * self._patience, self._timeout)

    def _is_refusal(self, name: str, reply: Fields) -> bool:
        self.refused.pop(name, None)
        error = str(reply["error"]) if "error" in reply else self._disagreement(name, reply)
        if error is not None:
            self.refused[name] = error
            _LOG.warning("%s %s: %s", name, "refuses" if "error" in reply else "is refused", error)
        return error is not None

    def _disagreement(self, name: str, reply: Fields) -> str | None:
        """A sentence about how a site's terms differ from those of the server, if they do."""
        try:
            self._agreement.check_same(reply.get("agreed"), "the server", name)
        except Refused as error:
            return str(error)
        return None

    def _find_sites(self, wanted: Mapping[str, Fields], timeout: float) -> set[str]:
        """Asks nodes of unknown sites for their names.

        Returns:
            Wanted sites that refuse the study, or are refused. A node may refuse without a name, because its
            settings are not valid: if there are as many of them as sites without a node, they are these.
        """
        absent = set(wanted) - set(self._nodes)
        if not absent:
            return set()
        known = set(self._nodes.values())
        unknown = [node for node in self._grid.get_node_ids() if node not in known]
        hello: Fields = {"kind": "hello", "agreed": self._agreement.text}
        claims, refusing = dict[str, list[int]](), list[str]()
        self._hellos.send(dict.fromkeys(unknown, hello))
        for node, reply in self._hellos.answers(timeout).items():
            name = str(reply.get("site"))
            error = str(reply["error"]) if "error" in reply else None
            if error is None and name in self.sites:
                error = self._disagreement(name, reply)
            if error is not None:
                free = name in absent and self._bound.get(name, node) == node
                refusing.append(name if free else f"node {node}")
                self.refused[refusing[-1]] = error
                _LOG.warning("%s (node %d) refuses, or is refused: %s", name, node, error)
            elif name in self.sites:
                claims.setdefault(name, []).append(node)
        for name, claimants in claims.items():
            self._assign_node(name, claimants)
        absent -= set(self._nodes)
        named = absent & set(refusing)
        return absent if len(set(refusing) - named) >= len(absent - named) else named

    def _assign_node(self, name: str, claimants: Sequence[int]) -> None:
        """Assigns a name to its known node, or to the only node that claims it."""
        bound, free = self._bound.get(name), name not in self._nodes
        if bound in claimants and free:
            claimants = [each for each in claimants if each != bound]
            self._nodes[name] = int(bound or 0)
        elif len(claimants) == 1 and free and bound is None:
            self._nodes[name] = self._bound[name] = claimants[0]
            claimants = ()
        if name in self._nodes and free:
            _LOG.info("%s is node %d.", name, self._nodes[name])
        for node in claimants:
            _LOG.warning(
                "Node %d claims to be %s, which is another node, or is claimed by several; it is "
                "refused.",
                node,
                name,
            )


@in_32_bits
def serve(
    grid: Grid,
    study: Study[Target],
    *,
    timeout: float,
    patience: float,
    state: Path | None = None,
    nodes: Mapping[str, int] | None = None,
) -> Server:
    """Runs a study to its end.

    A server that died continues from its file ``state``. Without the file, sites repeat their answers and
    the server gets back to where it was. If the server adds noise of its own it cannot, and the study
    needs a new run.

    Args:
        grid: The grid of the ServerApp.
        study: The study.
        timeout: See `FlowerTransport`.
        patience: See `FlowerTransport`.
        state: File in which the server keeps what it received.
        nodes: See `FlowerTransport`.

    Returns:
        The server at the end of the run.
    """
    server = study.server()
    file = None if state is None else ServerStateFile(state, f"{study.run}: {study.about}")
    transport = FlowerTransport(
        grid,
        study.sites,
        agreement=study.agreement,
        masked=study.masked,
        dropouts=study.setting.dropouts,
        groups=file,
        timeout=timeout,
        patience=patience,
        nodes=nodes,
    )
    rounds = study.method.rounds(len(study.sites))
    status = RunStatus(
        run=study.run,
        sites=study.sites,
        num_rounds=rounds.num_rounds,
        groups=len(rounds.groups(study.sites)),
        budget=str(study.budget),
    )
    if file is not None:
        file.resume(server, status)

    def save(updated: Server) -> None:
        abandoned = len(updated.trace) == len(status.updates)
        update = None if abandoned else status.add_update(updated)
        if file is not None:
            file.save_abandoned(updated.abandoned) if abandoned else file.save(updated, update)

    run_schedule(server, transport, rounds, lambda _: _LOG.info(status.line), save)
    for name, used in server.used.items():
        if used < rounds.num_rounds:
            _LOG.warning("Of %d answers of %s, %d were used.", rounds.num_rounds, name, used)
    return server
