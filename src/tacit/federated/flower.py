"""Sites over a network, by Flower: the ServerApp, the ClientApp, and how tasks travel between them.

Flower (the extra ``federated``) starts a process for every message, and may lose messages and nodes. So
a site's memory is on its own disk (`tacit.federated.deploy`), and the server asks a site that did not
answer once more, the very same task: the site's journal makes the very same reply of it. A site that
stays away is left out of the round; its next task tells it so.

A ClientApp's code comes with the run: a site that does not want it to reach rows runs a guard
(`tacit.federated.guard`). No error at a site but Tacit's own is told to the server: messages of others
may hold values from rows.
"""

import logging
import secrets
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.deploy import OpenSite, SiteSettings, Study
from tacit.federated.guard import ask
from tacit.federated.masks import Offer, Session
from tacit.federated.natural import Vector
from tacit.federated.server import conduct
from tacit.federated.transport import Reply, Task

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

_LOG = logging.getLogger(__name__)
_RECORD, _KIND = "tacit", "query"
_TYPES = ("<f8", "<i8")
Fields = dict[str, Any]


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
    raise InvalidArgument("The server sent what this version of Tacit does not know.")


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

        fields = dict(message.content.config_records[_RECORD])
        said = guarded(lambda: _handled(fields, context, settings))
        return Message(RecordDict({_RECORD: ConfigRecord(said)}), reply_to=message)

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
    raise InvalidArgument(
        "This node does not say which site it is: start it with --node-config "
        "'site=\"/path/of/site.toml\"', or guard= and a socket."
    )


def answered_once(settings: SiteSettings, fields: Fields) -> Fields:
    """What a site says to one message, opened for it alone."""
    import jax

    # Every message may be a process of its own: what was compiled for one serves the next.
    cache = settings.ledger.with_suffix(".cache")
    for name, value in (
        ("jax_compilation_cache_dir", str(cache)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
    ):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    return answered(OpenSite(settings), fields)


def guarded(answer: Callable[[], Fields]) -> Fields:
    """What is answered; of errors, only those that are known to carry no value of a row."""
    try:
        return answer()
    except TacitError as error:
        _LOG.warning("Refused: %s", error)
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (what it says may hold a row, also for a log)
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("This site could not answer: %s at\n%s", type(error).__name__, where)
        return {"error": "The site failed; its own log says where."}


class FlowerTransport:
    """Carries tasks over a Flower grid; see `tacit.federated.transport` for what it keeps.

    Sites are found by asking every node for its name. A message that is not answered within
    ``timeout`` seconds is sent again, until ``patience`` seconds have passed.
    """

    def __init__(
        self,
        grid: "Grid",
        sites: tuple[str, ...],
        *,
        masked: bool = False,
        timeout: float = 600.0,
        patience: float = 3600.0,
    ) -> None:
        self.sites = sites
        self._grid, self._masked = grid, masked
        self._timeout = _validate.positive("timeout", timeout)
        self._patience = _validate.positive("patience", patience)
        self._nodes: dict[str, int] = {}

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """The replies of the sites that answered in time."""
        # A server that begins again asks for masks anew: no key of before is used twice.
        attempt = 1 + secrets.randbelow(2**31)
        offers = self._offers(tasks, attempt) if self._masked else ()
        if offers is None:
            return {}
        fields = {name: task_fields(task, attempt, offers) for name, task in tasks.items()}
        return {name: reply_of(name, each) for name, each in self._delivered(fields).items()}

    def _offers(self, tasks: Mapping[str, Task], attempt: int) -> list[Offer] | None:
        """The keys of all sites of a round, or None if one stays away: then nobody is asked."""
        asked = {
            name: {"kind": "offer", "run": task.run, "round": task.round, "attempt": attempt}
            for name, task in tasks.items()
        }
        found = self._delivered(asked)
        if found.keys() != tasks.keys():
            return None
        return [Offer(name, each["key"], each["signature"]) for name, each in found.items()]

    def _delivered(self, fields: Mapping[str, Fields]) -> dict[str, Fields]:
        """What sites say, each asked until it answers or patience ends."""
        end, found = time.monotonic() + self._patience, {}
        missing = dict(fields)
        while missing and (left := end - time.monotonic()) > 0:
            self._locate(missing, min(self._timeout, left))
            asked = {
                self._nodes[name]: each for name, each in missing.items() if name in self._nodes
            }
            names = {node: name for name, node in self._nodes.items()}
            for node, reply in self._sent(asked, min(self._timeout, left)).items():
                found[names[node]] = _refuse_error(names[node], reply)
            missing = {name: each for name, each in missing.items() if name not in found}
            if missing:
                _LOG.info("No answer yet from %s.", ", ".join(missing))
            for name in missing:  # it may come back as another node
                self._nodes.pop(name, None)
        return found

    def _locate(self, wanted: Mapping[str, Any], timeout: float) -> None:
        """Asks nodes that are not known to be anybody who they are."""
        if set(wanted) <= set(self._nodes):
            return
        known = set(self._nodes.values())
        strange = [node for node in self._grid.get_node_ids() if node not in known]
        hello: Fields = {"kind": "hello"}
        for node, reply in self._sent(dict.fromkeys(strange, hello), timeout).items():
            name = reply.get("site")
            if "error" in reply:
                _LOG.warning("A node refuses: %s", reply["error"])
            elif name in self.sites:
                self._nodes[str(name)] = node
                _LOG.info("%s is here.", name)
        if not set(wanted) <= set(self._nodes):
            time.sleep(1)

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
            if reply.has_content():
                found[reply.metadata.src_node_id] = dict(reply.content.config_records[_RECORD])
            else:
                _LOG.warning("A node failed: %s", reply.error.reason)
        return found


def _refuse_error(site: str, reply: Fields) -> Fields:
    if "error" in reply:
        raise InvalidArgument(f"{site}: {reply['error']}")
    return reply


def serve(grid: "Grid", study: Study, *, timeout: float, patience: float) -> tuple[Vector, Vector]:
    """Runs a study to its end: the posterior's natural parameters, and those after every round.

    If the server dies and begins again, sites repeat what they answered, and it comes to
    where it was; with noise of the server's own it does not, and the study needs a new run.
    """
    server = study.server()
    transport = FlowerTransport(
        grid, study.sites, masked=study.masked, timeout=timeout, patience=patience
    )
    trace = conduct(server, transport, study.method.plan(len(study.sites)), _tell)
    return server.posterior, trace


def _tell(number: int) -> None:
    _LOG.info("Round %d is done.", number)


def _aloud() -> None:
    """Progress into the log that ``flwr run --stream`` shows."""
    logger = logging.getLogger("tacit")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


def server_app(study: Study) -> "ServerApp":
    """The ServerApp of a study. Run configuration: ``timeout``, ``patience``, ``result``."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: "Grid", context: "Context") -> None:
        _aloud()
        settings = context.run_config
        posterior, trace = serve(
            grid,
            study,
            timeout=float(settings.get("timeout", 600.0)),
            patience=float(settings.get("patience", 3600.0)),
        )
        if study.finish is not None:
            study.finish(posterior, trace, Path(str(settings.get("result", "posterior.nc"))))

    return app
