"""The Flower apps of a study (the extra ``federated``): a site's end and the server's end.

Flower starts a process for every message, and may lose messages and nodes. A site's memory is therefore on
its own disk (`tacit.federated.deploy`). The server repeats a task that was not answered, and the site's
journal gives the same reply. A site that does not answer, or answers with an error or an invalid reply, is
left out of the round; its next task tells it so. The server's memory is on its disk too
(`tacit.federated.state`).

The code of a ClientApp comes with the run. A site that wants to keep it away from rows runs a guard. The server
learns only the kind of an error at a site, and a sentence (`tacit.federated.guard`). What loads JAX is imported
when it is needed: a node that only passes messages on to a guard starts quickly.

What takes long, the study, its rows and its compiled programs, stays in the memory of the guard; Flower's own program for a
message in the memory of the node (`tacit.federated.node`).
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.errors import InvalidArgument, Refused, TacitError
from tacit.federated.guard import answer_or_error, ask
from tacit.federated.protocol import Fields

if TYPE_CHECKING:  # they load JAX, which a node with a guard does not need
    from tacit.federated.deploy import Study
    from tacit.federated.settings import SiteSettings
    from tacit.federated.targets import Target

_LOG = logging.getLogger(__name__)
# The name of the record that holds the fields of a message.
RECORD = "tacit"


def client_app(settings: Callable[[Context], "SiteSettings"] | None = None) -> ClientApp:
    """The ClientApp of a site.

    Args:
        settings: A function that returns the settings of the site. By default the node's
            configuration has the path of the settings file as ``site``, or of the guard's
            socket as ``guard``.

    Returns:
        The app.
    """
    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def answer(message: Message, context: Context) -> Message:
        def reply() -> Fields:
            return _answer_message(dict(message.content.config_records[RECORD]), context, settings)

        return Message(RecordDict({RECORD: ConfigRecord(answer_or_error(reply))}), reply_to=message)

    return app


def _answer_message(
    fields: Fields, context: Context, settings: Callable[[Context], "SiteSettings"] | None
) -> Fields:
    """The answer of the site that a node belongs to."""
    node = context.node_config
    if settings is None and node.get("guard"):
        return ask(Path(str(node["guard"])), fields)

    from tacit.federated.deploy import answer_once
    from tacit.federated.settings import SiteSettings

    if settings is not None:
        return answer_once(settings(context), fields)
    if node.get("site"):
        return answer_once(SiteSettings.from_file(str(node["site"])), fields)
    raise Refused(
        "The node's configuration does not name a site: start it with --node-config "
        "'site=\"/path/of/site.toml\"', or with guard= and a socket."
    )


def server_app(study: "Study[Target]", *, pinned: bool = True) -> ServerApp:
    """The ServerApp of a study.

    The run configuration has ``result``, the file of the posterior; ``state``, the file in which the
    server keeps what it received, by default beside the result; ``nodes``, the number of the node of each site,
    as `tacit federated register` writes them; and ``timeout`` and ``patience`` as in
    `tacit.federated.flower_grid.FlowerTransport`.

    Args:
        study: The study.
        pinned: Whether ``nodes`` must name the node of each site. Otherwise, as in simulations, the first
            node with a site's name is the site.

    Returns:
        The app.
    """
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        from tacit.federated.deploy import study_checks
        from tacit.federated.flower_grid import serve

        _log_progress()
        for name, found, fine in study_checks(study):
            if not fine:
                raise InvalidArgument(f"{name}: {found}")
            _LOG.info("%s: %s", name, found)
        settings = context.run_config
        nodes = parse_nodes(str(settings.get("nodes", "")))
        unnamed = [name for name in study.sites if name not in nodes]
        if pinned and unnamed:
            raise InvalidArgument(
                f"The run does not know the node of {', '.join(unnamed)}: pass --run-config "
                "\"nodes='$(cat nodes)'\", with the file that tacit federated register writes."
            )
        result = Path(str(settings.get("result", "posterior.nc")))
        run = "".join(each if each.isalnum() or each in "-_" else "_" for each in study.run)
        server = serve(
            grid,
            study,
            timeout=float(settings.get("timeout", 120.0)),
            patience=float(settings.get("patience", 900.0)),
            state=Path(str(settings.get("state") or f"{result}.{run}.state")),
            nodes=nodes,
        )
        if study.finish is not None:
            study.finish(server, result)

    return app


def parse_nodes(text: str) -> dict[str, int]:
    """Node numbers of sites, from text such as ``north=123 south=456``."""
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    if not all(name and number.isdecimal() for name, _, number in pairs):
        raise InvalidArgument(
            "nodes must have a node number for each site, as in north=123 south=456."
        )
    return {name: int(number) for name, _, number in pairs}


def hide_traceback(record: logging.LogRecord) -> bool:
    """Makes a line of Flower's log of an error that Tacit raised on purpose, without a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, TacitError):
        record.msg, record.args, record.exc_info = "%s", (str(error),), None
    return True


def _log_progress() -> None:
    """Sends progress to the log that ``flwr run --stream`` shows."""
    logging.getLogger("flwr").addFilter(hide_traceback)
    logger = logging.getLogger("tacit")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
