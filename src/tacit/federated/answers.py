"""What a site answers to one message."""

import threading
from collections.abc import Mapping
from typing import Any

from tacit.errors import Refused
from tacit.federated.compiled import written_to
from tacit.federated.deploy import OpenSite, SiteSettings
from tacit.federated.masks import Session
from tacit.federated.messages import Fields, reply_fields, task_of

# Where JAX stores compiled programs is one setting of the whole process.
_TURN = threading.Lock()


def answered(site: OpenSite, fields: Mapping[str, Any]) -> Fields:
    """The answer of a site to one message, if the server agrees with the site on the study."""
    kind, agreement = fields.get("kind"), site.study.agreement
    if kind == "hello" and "agreed" not in fields:
        return {"site": site.name, "agreed": agreement.text}
    if kind in {"hello", "offer", "task"}:
        agreement.refuse_other(fields.get("agreed"), site.name, "The server")
    return {**_answered(site, fields), "agreed": agreement.text}


def _answered(site: OpenSite, fields: Mapping[str, Any]) -> Fields:
    kind = fields.get("kind")
    if kind == "hello":
        return {"site": site.name}
    if kind == "offer":
        session = Session(str(fields["run"]), int(fields["round"]), int(fields["attempt"]))
        offer = site.offer(session)
        return {"site": offer.site, "key": offer.key, "signature": offer.signature}
    if kind == "task":
        return reply_fields(site.answer(*task_of(fields)))
    raise Refused("The server sent a message that this version of Tacit does not know.")


def answered_once(settings: SiteSettings, fields: Fields) -> Fields:
    """The answer of a site that is opened for one message."""
    # Every message may be a process of its own, so programs of the study are stored for the next one.
    # Programs that take rows are not stored.
    with _TURN:
        with written_to(settings.ledger.with_suffix(".cache")):
            site = OpenSite(settings)
            if fields.get("kind") == "task":
                site.prepare()
        with written_to(None):
            return answered(site, fields)
