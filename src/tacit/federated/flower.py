"""Sites over a network, by Flower: the ServerApp, the ClientApp, and how tasks travel between them.

Flower (the extra ``federated``) starts a process for every message, and may lose messages and nodes. So
a site's memory is on its own disk (`tacit.federated.deploy`), and the server asks a site that did not
answer once more, the very same task: the site's journal makes the very same reply of it. A site that
stays away, or answers with an error or with what is no reply, is left out of the round; its next task
tells it so. The server's own memory is on its disk too (`tacit.federated.folds`).

A ClientApp's code comes with the run: a site that does not want it to reach rows runs a guard
(`tacit.federated.guard`). Of a site's errors the server is told a kind and a sentence
(`tacit.federated.told`).
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument, Refused, TacitError
from tacit.federated.compiled import written_to
from tacit.federated.deploy import OpenSite, SiteSettings, Study
from tacit.federated.folds import FoldsFile
from tacit.federated.guard import ask
from tacit.federated.masks import Offer, Session
from tacit.federated.natural import Vector
from tacit.federated.server import conduct
from tacit.federated.told import guarded
from tacit.federated.transport import Reply, Task

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

_LOG = logging.getLogger(__name__)
_RECORD, _KIND = "tacit", "query"
_TYPES = ("<f8", "<i8")
Fields = dict[str, Any]
# Where JAX keeps what it compiles is one setting of the whole process.
_TURN = threading.Lock()


def task_fields(task: Task, attempt: int = 1, offers: Sequence[Offer] = ()) -> Fields:
    """A task as the fields of a message."""
    return {
        "kind": "task",
        "run": task.run,
        "round": task.round,
        "folded": task.folded,
        "share": task.share.astype("<f8").tobytes(),
        "posterior": task.posterior.astype("<f8").tobytes(),
        "mark": task.mark,
        "attempt": attempt,
        "sites": [offer.site for offer in offers],
        "keys": [offer.key for offer in offers],
        "signatures": [offer.signature for offer in offers],
    }


def task_of(fields: Mapping[str, Any]) -> tuple[Task, int, list[Offer]]:
    """The task of a message, and what its masks are made of."""
    task = Task(
        run=str(fields["run"]),
        round=int(fields["round"]),
        posterior=np.frombuffer(fields["posterior"], "<f8").astype(np.float64),
        folded=int(fields["folded"]),
        share=np.frombuffer(fields["share"], "<f8").astype(np.float64),
        mark=bytes(fields["mark"]),
    )
    parts = zip(fields["sites"], fields["keys"], fields["signatures"], strict=True)
    return task, int(fields["attempt"]), [Offer(*part) for part in parts]


def reply_fields(reply: Reply) -> Fields:
    """A reply as the fields of a message."""
    kind = "<i8" if reply.change.dtype.kind == "i" else "<f8"
    grid = {} if reply.grid is None else {"grid": float(reply.grid)}
    return {
        "run": reply.run,
        "round": reply.round,
        "type": kind,
        "change": reply.change.astype(kind).tobytes(),
        **grid,
    }


def reply_of(site: str, fields: Mapping[str, Any]) -> Reply:
    """The reply of a site."""
    kind = str(fields["type"])
    if kind not in _TYPES:
        raise InvalidArgument(f"{site} answered with numbers of a type that no reply has.")
    grid = fields.get("grid")
    return Reply(
        site=site,
        run=str(fields["run"]),
        round=int(fields["round"]),
        change=np.frombuffer(fields["change"], kind).copy(),
        grid=None if grid is None else float(grid),
    )


def answered(site: OpenSite, fields: Mapping[str, Any]) -> Fields:
    """What a site says to one message."""
    kind = fields.get("kind")
    if kind == "hello":
        return {"site": site.name}
    if kind == "offer":
        session = Session(str(fields["run"]), int(fields["round"]), int(fields["attempt"]))
        offer = site.offer(session)
        return {"site": offer.site, "key": offer.key, "signature": offer.signature}
    if kind == "task":
        return reply_fields(site.answer(*task_of(fields)))
    raise Refused("The server sent what this version of Tacit does not know.")


def client_app(settings: Callable[["Context"], SiteSettings] | None = None) -> "ClientApp":
    """The ClientApp of a site.

    The node's configuration names the site's settings file as ``site``, or the socket of its
    guard as ``guard``; ``settings`` finds them otherwise.
    """
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def answer(message: "Message", context: "Context") -> "Message":
        from flwr.app import ConfigRecord, Message, RecordDict

        def said() -> Fields:
            return _handled(dict(message.content.config_records[_RECORD]), context, settings)

        return Message(RecordDict({_RECORD: ConfigRecord(guarded(said))}), reply_to=message)

    return app


def _handled(
    fields: Fields, context: "Context", settings: Callable[["Context"], SiteSettings] | None
) -> Fields:
    node = context.node_config
    if settings is not None:
        return answered_once(settings(context), fields)
    if node.get("guard"):
        return ask(Path(str(node["guard"])), fields)
    if node.get("site"):
        return answered_once(SiteSettings.from_file(str(node["site"])), fields)
    raise Refused(
        "This node does not say which site it is: start it with --node-config "
        "'site=\"/path/of/site.toml\"', or guard= and a socket."
    )


def answered_once(settings: SiteSettings, fields: Fields) -> Fields:
    """What a site says to one message, opened for it alone."""
    # Every message may be a process of its own: what a study compiles serves the next. What takes
    # rows is not kept.
    with _TURN:
        with written_to(settings.ledger.with_suffix(".cache")):
            site = OpenSite(settings)
            if fields.get("kind") == "task":
                site.prepare()
        with written_to(None):
            return answered(site, fields)


class FlowerTransport:
    """Carries tasks over a Flower grid; see `tacit.federated.transport` for what it keeps.

    Sites are found by asking every node for its name. The first node with a name keeps it: another
    that claims it is refused, and if two do at once, both. ``nodes`` says beforehand which node is
    which site. A node with a key has the same number whenever it comes back; one without has a new
    one, which ``roaming`` allows. A message that is not answered within ``timeout`` seconds is sent
    again, until ``patience`` seconds have passed.
    """

    def __init__(
        self,
        grid: "Grid",
        sites: tuple[str, ...],
        *,
        masked: bool = False,
        timeout: float = 600.0,
        patience: float = 3600.0,
        nodes: Mapping[str, int] | None = None,
        roaming: bool = False,
    ) -> None:
        self.sites = sites
        self.refused: dict[str, str] = {}
        self._grid, self._masked = grid, masked
        self._timeout = _validate.positive("timeout", timeout)
        self._patience = _validate.positive("patience", patience)
        self._nodes: dict[str, int] = {}  # where sites are now
        self._bound, self._roaming = dict(nodes or {}), roaming  # who may be which

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """The replies of the sites that answered in time."""
        # A server that begins again asks for masks anew: no key of before is used twice.
        attempt = 1 + secrets.randbelow(2**31)
        offers = self._offers(tasks, attempt) if self._masked else ()
        if offers is None:
            return {}
        fields = {name: task_fields(task, attempt, offers) for name, task in tasks.items()}
        said = {name: _reply(name, each) for name, each in self._delivered(fields).items()}
        return {name: reply for name, reply in said.items() if reply is not None}

    def _offers(self, tasks: Mapping[str, Task], attempt: int) -> list[Offer] | None:
        """The keys of all sites of a round, or None if one stays away: then nobody is asked."""
        asked = {
            name: {"kind": "offer", "run": task.run, "round": task.round, "attempt": attempt}
            for name, task in tasks.items()
        }
        found = {name: _offer(name, each) for name, each in self._delivered(asked).items()}
        offers = [offer for offer in found.values() if offer is not None]
        return offers if len(offers) == len(tasks) else None

    def _delivered(self, fields: Mapping[str, Fields]) -> dict[str, Fields]:
        """What sites say, each asked until it answers or patience ends.

        One that answers with an error is asked again in the next round.
        """
        end, found = time.monotonic() + self._patience, dict[str, Fields]()
        missing = dict(fields)
        while missing and (left := end - time.monotonic()) > 0:
            self._locate(missing, min(self._timeout, left))
            asked = {
                self._nodes[name]: each for name, each in missing.items() if name in self._nodes
            }
            names = {node: name for name, node in self._nodes.items()}
            for node, reply in self._sent(asked, min(self._timeout, left)).items():
                found[names[node]] = reply
            missing = {name: each for name, each in missing.items() if name not in found}
            if missing:
                _LOG.info("No answer yet from %s.", ", ".join(missing))
            for name in missing:  # it may come back as another node
                self._nodes.pop(name, None)
        return {name: reply for name, reply in found.items() if not self._is_refusal(name, reply)}

    def _is_refusal(self, name: str, reply: Fields) -> bool:
        self.refused.pop(name, None)
        if "error" in reply:
            self.refused[name] = str(reply["error"])
            _LOG.warning("%s refuses: %s", name, reply["error"])
        return "error" in reply

    def _locate(self, wanted: Mapping[str, Any], timeout: float) -> None:
        """Asks nodes that are not known to be anybody who they are."""
        if set(wanted) <= set(self._nodes):
            return
        known = set(self._nodes.values())
        strange = [node for node in self._grid.get_node_ids() if node not in known]
        hello: Fields = {"kind": "hello"}
        claims: dict[str, list[int]] = {}
        for node, reply in self._sent(dict.fromkeys(strange, hello), timeout).items():
            if "error" in reply:
                _LOG.warning("A node refuses: %s", reply["error"])
            elif reply.get("site") in self.sites:
                claims.setdefault(str(reply["site"]), []).append(node)
        for name, claimants in claims.items():
            self._admit(name, claimants)
        if not set(wanted) <= set(self._nodes):
            time.sleep(1)

    def _admit(self, name: str, claimants: Sequence[int]) -> None:
        """One node for each name: the one it is bound to, or the only one that claims it."""
        bound, free = self._bound.get(name), name not in self._nodes
        if bound in claimants and free:
            claimants = [each for each in claimants if each != bound]
            self._nodes[name] = int(bound or 0)
        elif len(claimants) == 1 and free and (bound is None or self._roaming):
            self._nodes[name] = self._bound[name] = claimants[0]
            claimants = ()
        if name in self._nodes and free:
            _LOG.info("%s is here, as node %d.", name, self._nodes[name])
        for node in claimants:
            _LOG.warning(
                "Node %d says that it is %s, which is another node, or several claim to be; it is "
                "refused.",
                node,
                name,
            )

    def _sent(self, fields: Mapping[int, Fields], timeout: float) -> dict[int, Fields]:
        """Fields to nodes, and back; nodes that failed or were late are missing."""
        from flwr.app import ConfigRecord, Message, RecordDict

        messages = [
            Message(
                RecordDict({_RECORD: ConfigRecord(each)}), node, _KIND, ttl=max(timeout * 2, 60.0)
            )
            for node, each in fields.items()
        ]
        if not messages:
            return {}
        found: dict[int, Fields] = {}
        for reply in self._grid.send_and_receive(messages, timeout=timeout):
            if reply.has_content() and _RECORD in reply.content.config_records:
                found[reply.metadata.src_node_id] = dict(reply.content.config_records[_RECORD])
            elif reply.has_content():
                _LOG.warning("A node answered with what is no answer.")
            else:
                _LOG.warning("A node failed: %s", reply.error.reason)
        return found


def _reply(site: str, fields: Fields) -> Reply | None:
    """The reply of a site, unless it is none."""
    try:
        return reply_of(site, fields)
    except (TacitError, KeyError, TypeError, ValueError):
        _LOG.warning("%s answered with what is no reply.", site)
        return None


def _offer(site: str, fields: Fields) -> Offer | None:
    """The key of a site, unless it is none."""
    key, signature = fields.get("key"), fields.get("signature")
    if isinstance(key, bytes) and isinstance(signature, bytes):
        return Offer(site, key, signature)
    _LOG.warning("%s offered what is no key.", site)
    return None


def serve(
    grid: "Grid",
    study: Study,
    *,
    timeout: float,
    patience: float,
    state: Path | None = None,
    nodes: Mapping[str, int] | None = None,
    roaming: bool = False,
) -> tuple[Vector, Vector]:
    """Runs a study to its end: the posterior's natural parameters, and those after every round.

    A server that died goes on from its file ``state``. Without one, sites repeat what they answered,
    and it comes to where it was; with noise of the server's own it does not, and the study
    needs a new run.
    """
    server = study.server()
    transport = FlowerTransport(
        grid,
        study.sites,
        masked=study.masked,
        timeout=timeout,
        patience=patience,
        nodes=nodes,
        roaming=roaming,
    )
    folds = None if state is None else FoldsFile(state, f"{study.run}: {study.about}")
    if folds is not None:
        folds.resume(server)
    plan = study.method.plan(len(study.sites))
    trace = conduct(server, transport, plan, _tell, None if folds is None else folds.keep)
    for name, used in server.used.items():
        if used < plan.num_rounds:
            _LOG.warning("Of %d answers of %s, %d are used.", plan.num_rounds, name, used)
    return server.posterior, trace


def nodes_of(text: str) -> dict[str, int]:
    """Which node is which site, as the run's configuration says it: ``north=123 south=456``."""
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    if not all(name and number.isdecimal() for name, _, number in pairs):
        raise InvalidArgument("nodes says which node is which site, as north=123 south=456.")
    return {name: int(number) for name, _, number in pairs}


def _beside(result: Path, run: str) -> str:
    """Where a run keeps its folds unless told."""
    plain = "".join(each if each.isalnum() or each in "-_" else "_" for each in run)
    return f"{result}.{plain}.state"


def _tell(number: int) -> None:
    _LOG.info("Round %d is done.", number)


def _aloud() -> None:
    """Progress into the log that ``flwr run --stream`` shows."""
    logger = logging.getLogger("tacit")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


def server_app(study: Study) -> "ServerApp":
    """The ServerApp of a study.

    Run configuration: ``result``, where the posterior is written; ``state``, where the server
    keeps what it has folded in, by default beside it; ``timeout``, ``patience``, ``nodes`` and
    ``roaming`` as in `FlowerTransport`.
    """
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: "Grid", context: "Context") -> None:
        _aloud()
        settings = context.run_config
        result = Path(str(settings.get("result", "posterior.nc")))
        posterior, trace = serve(
            grid,
            study,
            timeout=float(settings.get("timeout", 600.0)),
            patience=float(settings.get("patience", 3600.0)),
            state=Path(str(settings.get("state") or _beside(result, study.run))),
            nodes=nodes_of(str(settings.get("nodes", ""))),
            roaming=bool(settings.get("roaming", False)),
        )
        if study.finish is not None:
            study.finish(posterior, trace, result)

    return app
