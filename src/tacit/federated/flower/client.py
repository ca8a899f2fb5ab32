"""The ClientApp: a site's end of a Flower run."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tacit.errors import Refused
from tacit.federated.flower.mailbox import RECORD, Fields
from tacit.federated.guard import answer_or_error, ask

if TYPE_CHECKING:  # they load JAX, which a node with a guard does not need
    from tacit.federated.deploy import SiteSettings


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
        def said() -> Fields:
            return _answer_message(dict(message.content.config_records[RECORD]), context, settings)

        return Message(RecordDict({RECORD: ConfigRecord(answer_or_error(said))}), reply_to=message)

    return app


def _answer_message(
    fields: Fields, context: Context, settings: Callable[[Context], "SiteSettings"] | None
) -> Fields:
    """The answer of the site that a node belongs to."""
    node = context.node_config
    if settings is None and node.get("guard"):
        return ask(Path(str(node["guard"])), fields)

    from tacit.federated.deploy import SiteSettings, answer_once

    if settings is not None:
        return answer_once(settings(context), fields)
    if node.get("site"):
        return answer_once(SiteSettings.from_file(str(node["site"])), fields)
    raise Refused(
        "The node's configuration does not name a site: start it with --node-config "
        "'site=\"/path/of/site.toml\"', or with guard= and a socket."
    )
